"""Criteria on speed: is a step the same work, does it get faster with more ranks, and where does its time go."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import Twin, criterion
from fixtures.faults import SLOW_LINK, Fault
from fixtures.spread import MOST_HOSTS, Spread, carried_bytes, wrong_spread
from fixtures.trace import Trace
from suite.efficiency.breakdown import accounted_for
from suite.efficiency.diagnosis import bound_by_compute, rate_for
from suite.efficiency.repeats import REPEATS, room_of, timed
from suite.efficiency.scaling import scales
from suite.efficiency.work import same_work

LOOKS = (REPEATS, 9, 12)  # repeats after which a decision is tried; more are made only while the interval straddles the bound
LINKED_STEPS = 6  # over a slow link each takes several times as long
DELAY_MS = 120.0


@criterion(
    "efficiency.same_work",
    claim="An optimizer step is the same amount of work at every world size: same samples, same number of steps.",
    twin=Fault("skip_sample", rank=1, step=2),
    because=r"process \d+ samples in step 2 where one device processes \d+: samples are lost|rank 1 takes other samples than rank 0 in step 2",
    threshold="exactly one device's samples in every step",
    assumptions=("The rows of the model's inputs are the samples.",),
    limitations=("Rows are counted, not their length: padding inside a row is work that is not seen.",),
    overturned_by="A step that processes another number of samples at some world size.",
)
def test_same_work(audit: Audit) -> None:
    """More ranks share a step's work, they do not multiply it."""
    padding = audit.job.capabilities.get("padding", "")
    together = [audit.run(world_size=count) for count in audit.worlds[1:]]
    audit.judge(same_work, audit.run(world_size=1), together, padding=padding if isinstance(padding, str) else "")


@criterion(
    "efficiency.scaling",
    claim="More ranks make the training faster, each by at least the agreed share of one device's speed.",
    twin=Fault("sleep", rank=1, ms=DELAY_MS, where="forward"),
    because=r"rank 1 takes .* ms in forward where the others take",
    threshold="the bound scaling_efficiency, outside the 95 % interval of interleaved repeats",
    timed=True,
    assumptions=("A step has the same global batch at every world size, so its time is the time of the same work.",),
    limitations=(
        "Medians: what slows fewer than half of the steps (saving, rare stragglers) does not move them.",
        "One machine, and no more ranks than it has cores or GPUs.",
        "While the interval straddles the bound, repeats are added at most twice; each further look costs some of the 95 %.",
    ),
    overturned_by="Repeats on a quiet machine whose interval lies on the other side of the bound.",
)
def test_scaling(audit: Audit) -> None:
    """Another rank pays for itself."""
    room = room_of(audit)
    if reason := room.oversubscribed(audit.world_size):
        audit.inconclusive(reason)
    work = [audit.run(world_size=count, planted=False) for count in audit.worlds]
    for repeats in LOOKS:
        alone, *together = timed(audit, planted=audit.worlds, repeats=repeats)
        found = scales(alone, together, work, bound=audit.targets("scaling_efficiency"), room=room)
        if found.accepted is not None:
            break
    audit.judge(lambda: found)


@criterion(
    "efficiency.breakdown",
    claim="Every rank's step is accounted for, and waiting for input and for communication stay below their agreed shares.",
    twin=Fault("sleep", ms=DELAY_MS, where="data"),
    because=r"the bottleneck is data wait",
    threshold="the bounds data_wait_share and exposed_share; unnamed time at most the smaller of them",
    timed=True,
    assumptions=("Time in a phase that runs on the host is the job's time in that phase.",),
    limitations=("On a GPU, work that is queued and not waited for is counted where the host waits for it.",),
    overturned_by="A profile of the same step that gives input or communication another share.",
)
def test_breakdown(audit: Audit) -> None:
    """The time of a step goes into computing."""
    room = room_of(audit)
    if reason := room.oversubscribed(audit.world_size):
        audit.inconclusive(reason)
    bounds = {"data_wait_share": audit.targets("data_wait_share"), "exposed_share": audit.targets("exposed_share")}
    audit.judge(accounted_for, timed(audit, planted=(audit.world_size,)), room=room, **bounds)


@criterion(
    "efficiency.diagnosis",
    claim="Computing bounds the step: neither input, copies, exposed communication, checkpointing nor one slow rank takes more of the time.",
    twins=(
        Twin(Fault("sleep", ms=DELAY_MS, where="data"), r"^input bounds the step", "input"),
        Twin(Fault("sleep", rank=1, ms=DELAY_MS, where="forward"), r"^one slow rank, 1, bounds the step", "slow_rank"),
        Twin(Fault(SLOW_LINK, times=2), r"^exposed communication bounds the step", "slow_link"),
    ),
    threshold="the largest other share of the time stays below computing's, outside the 95 % interval of repeats",
    timed=True,
    assumptions=("What all ranks wait for is the job's; what one rank adds to the others' waiting is that rank's.",),
    limitations=(
        "Host-to-device copies are seen as time between the phases, not apart from other code there.",
        "A save counts with what it adds to the step that follows it, at the cadence of the audited run.",
    ),
    overturned_by="A change to another cause than the named one that makes the step faster by more than its share.",
)
def test_diagnosis(audit: Audit) -> None:
    """Nothing that is cheaper to mend than computing comes first."""
    if reason := room_of(audit).oversubscribed(audit.world_size):
        audit.inconclusive(reason)
    link = _slow_link(audit)
    largest = _linked(audit, link) if link else timed(audit, planted=(audit.world_size,))[-1]
    audit.judge(bound_by_compute, largest, room=room_of(audit))


def _slow_link(audit: Audit) -> Spread | None:
    """Two hosts for the twin with the slow link: its rate is chosen for this job, from the bytes and the time of its own step."""
    if audit.twin is None or audit.twin.kind != SLOW_LINK:
        return None
    if (possible := audit.environment.get("two_hosts", "possible")) != "possible":
        audit.not_applicable(f"two hosts could not be made: {possible}")
    if wrong := wrong_spread(MOST_HOSTS, None, audit.world_size):
        audit.not_applicable(f"two hosts could not be made: {wrong}")
    rate_mbit = rate_for(audit.run(world_size=audit.world_size, planted=False), times=audit.twin["times"])
    if rate_mbit is None:
        audit.not_applicable("the job sends nothing from rank to rank, so no link can slow it")
    return Spread(MOST_HOSTS, rate_mbit)


def _linked(audit: Audit, link: Spread) -> list[Trace]:
    """Repeats of the largest world over a link between two hosts."""
    steps = min(audit.job.steps, LINKED_STEPS)
    runs = [
        audit.run(world_size=audit.world_size, level="timing", steps=steps, timed=True, repeat=repeat, spread=link)
        for repeat in range(REPEATS)
    ]
    audit.plant(all(carried_bytes(run.folder) > 0 for run in runs))
    return runs

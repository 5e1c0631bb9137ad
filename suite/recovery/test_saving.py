"""The save itself: it changes nothing, one in the background is whole, and it costs no more of the time than was agreed."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.cases import Case, all_come_back, unproven_kill
from suite.recovery.kills import cadence, control_run, killed_after, planned_cadence, resumed_from, saved_steps, steps_of
from suite.recovery.returns import GOOD, Outcome
from suite.recovery.saving import background_writers, changes_nothing, cut_short, save_share, sleep_to_exceed

REPEATS = 3
ASSUMED_INTERRUPTION_H = 6.0


@criterion(
    "recovery.save_is_neutral",
    claim="Saving changes nothing in what is trained: parameters, optimizer, buffers and RNG are after a save what they were before it.",
    twin=Fault("disturb_save", delta=1e-3),
    because=r"changed .*parameters|saving changed them",
    threshold="0 saves that change what is trained; bit for bit the run that never saves, where the job can run so",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("what the probe can digest is what the next step depends on, besides the place in the data",),
    limitations=("RNG is compared where it stands still between two steps that no save lies between",),
    overturned_by="a run without saves, on the same samples, with other parameters",
)
def test_save_is_neutral(audit: Audit) -> None:
    """A job that saves trains the model that it would have trained."""
    checkpoint = audit.job.checkpoint
    saves = audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full")
    without = None
    if checkpoint is not None and checkpoint.without_saving is not None:
        without = audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", planted=False, saving=False)
    audit.judge(changes_nothing, saves, without)


@criterion(
    "recovery.async_save",
    claim="A checkpoint that is written in the background holds one step, whole, and the run waits for its last one.",
    twin=Fault("forget", part="weights"),
    because=r"weights that the uninterrupted run never had",
    threshold="0 checkpoints that hold anything but the state of their step",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("a save is in the background where a thread writes files while the main one trains, or the job claims it",),
    limitations=(
        "a writer in another process is not seen; such a job claims async_save = true",
        "killed before its first checkpoint was complete a job may start afresh: there is none before it",
    ),
    overturned_by="a checkpoint written in the background that mixes two steps, or is missing when the run has ended",
)
def test_async_save(audit: Audit) -> None:
    """Training that goes on while a checkpoint is written does not show in it."""
    control = control_run(audit)
    if not audit.claims("async_save") and not background_writers(control):
        audit.not_applicable(
            "the job saves in the foreground: no thread wrote a file while another one trained, and it claims no async_save"
        )
    kills = [(saved, killed_after(audit, saved)) for saved in (saved_steps(audit) if audit.twin is None else saved_steps(audit)[-1:])]
    cases = [
        Case(
            f"the checkpoint of step {saved}", resumed_from(audit, killed), saved, unproven=unproven_kill(killed),
            allowed=(*GOOD, "fresh_start") if saved == cadence(audit) and cut_short(control, killed, every=saved) else GOOD,
        )
        for saved, killed in kills
    ]  # fmt: skip
    if audit.twin is None:
        last = steps_of(audit) // cadence(audit) * cadence(audit)
        allowed: tuple[Outcome, ...] = (*GOOD, "exit_0_without_resuming") if last == steps_of(audit) else GOOD
        cases.append(
            Case("the last checkpoint of a finished run", resumed_from(audit, control, planted=False), last, least=last, allowed=allowed)
        )
    audit.judge(all_come_back, control, cases, unit="checkpoints that are not their step's state")


@criterion(
    "recovery.cadence",
    claim="At the cadence planned for the real run saving holds training up for no more of the time than is agreed; the cadence that its cost calls for is reported.",
    twin=Fault("slow_save", rank=0, ms=1000),
    because=r"a save holds training up for",
    threshold="the bound save_share, outside the 95 % interval of the saves of repeated runs",
    needs=("checkpoint",),
    timed=True,
    min_world=1,
    assumptions=("what a save adds to the step that follows it is its cost; what it writes in the background costs nothing",),
    limitations=("the time between interruptions is the job's target mean_interruption_h, or assumed to be 6 h",),
    overturned_by="a longer run on the same machine in which saving takes another share of the time",
)
def test_cadence(audit: Audit) -> None:
    """A checkpoint is cheap enough to be taken as often as planned."""
    planned, bound = planned_cadence(audit), audit.targets("save_share")
    traces = [_timed(audit, repeat) for repeat in range(REPEATS)]
    if audit.twin is not None:  # slow enough to break this job's bound, whatever its steps take
        slow = audit.twin.with_parameters(ms=sleep_to_exceed(traces, every=planned, bound=bound))
        traces = [_timed(audit, 0, slow)]
    hours = audit.job.targets.get("mean_interruption_h")
    interruption_h = ASSUMED_INTERRUPTION_H if hours is None else float(hours)
    audit.judge(
        save_share, traces, every=cadence(audit), planned=planned, bound=bound, mean_interruption_h=interruption_h, assumed=hours is None
    )


def _timed(audit: Audit, repeat: int, *faults: Fault) -> Trace:
    steps = max(audit.job.steps, 2 * cadence(audit) + 2)
    return audit.run(world_size=audit.world_size, level="timing", steps=steps, timed=True, repeat=repeat, faults=faults, planted=False)

"""Criteria on what speed is for: a baseline to hold it against, and the time until the loss is reached."""

from __future__ import annotations

from functools import partial

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.efficiency.baseline import known_well
from suite.efficiency.repeats import REPEATS, room_of, steps_of, timed
from suite.efficiency.time_to_quality import Interruptions, reaches_sooner
from suite.equivalence.starts import in_other_orders
from suite.recovery.kills import cadence, planned_cadence
from suite.recovery.kills import steps_of as steps_with_saves
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.recovery.recovery_time import restored_s

DELAY_MS = 120.0


@criterion(
    "efficiency.baseline",
    claim="One device's step time, memory and loss are known, the time better than by half of the loss that the efficiency bound allows.",
    twin=Fault("sleep", rank=0, ms=DELAY_MS, where="forward"),
    because=r"the baseline is no baseline: .* repeats of the same work differ",
    threshold="spread of the repeats at most half of 1 - scaling_efficiency",
    timed=True,
    min_world=1,
    assumptions=("Repeats one after the other on one machine; another day or machine is another baseline, and `compare` refuses it.",),
    limitations=(
        "Memory is the ranks' resident peak, Python and libraries included.",
        "The loss is the one at the end of the audited steps.",
    ),
    overturned_by="Repeats of the same run on a quiet machine that lie further apart.",
)
def test_baseline(audit: Audit) -> None:
    """What everything else is held against is itself measured."""
    repeats = [
        audit.run(world_size=1, level="timing", steps=steps_of(audit, hit=hit), timed=True, repeat=repeat, planted=hit)
        for repeat, hit in enumerate(audit.hits(1) and repeat % 2 == 1 for repeat in range(REPEATS))
    ]
    audit.judge(known_well, repeats, audit.run(world_size=1, planted=False), scaling_bound=audit.targets("scaling_efficiency"))


@criterion(
    "efficiency.time_to_quality",
    claim="More ranks reach the loss that one device reaches sooner, saves, interruptions and restarts included, each rank by its agreed share.",
    twin=Fault("sleep", rank=1, ms=DELAY_MS, where="forward"),
    because=r"each rank is worth 0\.\d+ .* of one device, at least",
    threshold="the bound scaling_efficiency, outside the 95 % interval of interleaved repeats",
    needs=("checkpoint",),
    timed=True,
    assumptions=(
        "Interruptions come at the policy's mean_interruption_h, for the whole world, and each costs a restart and half an interval of work.",
        "The loss of the audited steps stands for the quality that the job is trained to.",
    ),
    limitations=(
        "Queueing for new machines is not in it.",
        "With the warm launcher, Python and the import of torch are not in the restart.",
    ),
    overturned_by="A training to the real target whose time per rank is longer.",
)
def test_time_to_quality(audit: Audit) -> None:
    """Speed counts only if it arrives at the same loss."""
    if reason := room_of(audit).oversubscribed(audit.world_size):
        audit.inconclusive(reason)
    _, killed = killed_between_checkpoints(audit)
    restarted = audit.run(
        world_size=audit.world_size, steps=steps_with_saves(audit), level="timing", timed=True, planted=False, resume_from=killed,
        deadline_s=audit.job.time_limit_s,
    )  # fmt: skip
    lost = Interruptions(3600.0 * audit.targets("mean_interruption_h"), restored_s(restarted), planned_cadence(audit), cadence(audit))
    alone, *together = timed(audit, planted=(audit.world_size,))
    whole = [audit.run(world_size=count, planted=False) for count in (1, audit.world_size)]
    permuted = in_other_orders(partial(audit.run, level="gradient", planted=False))
    audit.judge(reaches_sooner, alone, together[-1], *whole, permuted, lost, bound=audit.targets("scaling_efficiency"))

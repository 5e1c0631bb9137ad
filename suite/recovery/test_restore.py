"""Save, die, restore: look at the state the moment it is back, before training can hide or spread a loss."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import Twin, criterion
from fixtures.faults import Fault
from suite.recovery.kills import control_run, killed_after, saved_steps
from suite.recovery.restore import Restored, idle_part, restores

LEFT_OUT = {
    "weights": r"parameters|began again|weights",
    "optimizer": r"optimizer state",
    "counters": r"optimizer state",
    "scheduler": r"learning rate",
    "scaler": r"loss scale",
    "rng": r"RNG",
    "position": r"samples",
    "ema": r"averaged weights",
    "buffers": r"buffers|loss|gradient",
}
"""By part of the state: what the judge must name when that part alone is left out."""


@criterion(
    "recovery.restore",
    claim="A restore brings back all that was saved: parameters, optimizer, learning rate, loss scale, RNG, place in the data, step count, averaged weights, buffers.",
    twins=[Twin(Fault("forget", part=part), because, part) for part, because in LEFT_OUT.items()],
    threshold="0 parts that differ right after the restore, for the first, a middle and the last checkpoint",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("the state before the first step and the records of the first two show all that a restore has to bring back",),
    limitations=(
        "says nothing of the steps after the second (that is recovery.continuation) nor of a save cut short",
        "averaged weights are seen where they are a module of the trained one's shapes, not where they are a bare list of tensors",
    ),
    overturned_by="a checkpoint whose restored state differs from the state of the uninterrupted run at that step",
    version=3,
)
def test_restore(audit: Audit) -> None:
    """Right after a restore the job holds the state that the uninterrupted run had at the saved step, for every checkpoint tried."""
    control, saved = control_run(audit), saved_steps(audit)
    tried = saved if audit.twin is None else saved[-1:]  # one restore shows that a part left out is noticed
    checkpoints = [_restored(audit, step) for step in tried]
    if audit.twin is not None and (idle := idle_part(control, checkpoints[-1].resumed, audit.twin["part"])):
        audit.not_applicable(idle)
    audit.judge(restores, control, checkpoints, every=audit.job.checkpoint.every if audit.job.checkpoint else 1)


def _restored(audit: Audit, saved: int) -> Restored:
    killed = killed_after(audit, saved)
    return Restored(saved, killed, audit.run(world_size=audit.world_size, steps=killed.spec["steps"], level="full", resume_from=killed))

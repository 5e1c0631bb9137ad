"""Save, die, restore: look at the state the moment it is back, before training can hide or spread a loss."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.restore import Restored, restores

PARTS = ("optimizer", "rng", "scheduler")
MOST_CHECKPOINTS = 3


@criterion(
    "recovery.restore",
    claim="A restore brings back what was saved at that step: parameters, optimizer state, learning rate, RNG and the place in the data.",
    twin=Fault("forget", part="weights"),
    because=r"parameters|began again|weights",
    threshold="0 parts that differ right after the restore, for the first, a middle and the last checkpoint",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("the state before the first step and the records of the first two show all that a restore has to bring back",),
    limitations=(
        "says nothing of the steps after the second (that is recovery.continuation) nor of a save cut short (recovery.worst_boundary)",
        "state that acts later than that, such as a loss scaler's growth counter, is not looked at here",
    ),
    overturned_by="a checkpoint whose restored state differs from the state of the uninterrupted run at that step",
)
def test_restore(audit: Audit) -> None:
    """Right after a restore the job holds the state that the uninterrupted run had at the saved step, for every checkpoint tried."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    steps = max(audit.job.steps, 2 * every + 2)
    control = audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False)
    checkpoints = [_restored(audit, saved, every, steps) for saved in _saved_steps(every, steps)]
    newest = checkpoints[-1].killed
    forgotten = {
        part: audit.run(
            world_size=audit.world_size, steps=steps, level="full", faults=(Fault("forget", part=part),), planted=False, resume_from=newest
        )
        for part in PARTS
    }
    audit.judge(restores, control, checkpoints, forgotten, every=every)


def _saved_steps(every: int, steps: int) -> list[int]:
    """The first, a middle and the last step at which a checkpoint is due and at least one step follows."""
    due = list(range(every, steps, every))
    return sorted({due[0], due[len(due) // 2], due[-1]})[:MOST_CHECKPOINTS]


def _restored(audit: Audit, saved: int, every: int, steps: int) -> Restored:
    """The kill comes a step later than it could: the collective of the step between makes sure that every rank is through with its save."""
    kill = Fault("kill", rank=0, step=min(saved + min(2, every), steps))
    killed = audit.run(world_size=audit.world_size, steps=steps, level="full", faults=(kill,), planted=False)
    return Restored(saved, killed, audit.run(world_size=audit.world_size, steps=steps, level="full", resume_from=killed))

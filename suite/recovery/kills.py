"""The runs that recovery is measured on: one that was never interrupted, and those that lost a rank at a chosen point.

They are asked for by the same arguments everywhere, so each is made once per audit, whichever criterion needs it first.
"""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.alignment import epoch_starts, states_of

MOST_CHECKPOINTS = 3


def cadence(audit: Audit) -> int:
    """Steps between the checkpoints that the job declares; 1 where it declares none (its criteria are then never judged)."""
    return audit.job.checkpoint.every if audit.job.checkpoint else 1


def planned_cadence(audit: Audit) -> int:
    """Steps between the checkpoints of the real run."""
    return audit.job.checkpoint.planned if audit.job.checkpoint else 1


def steps_of(audit: Audit) -> int:
    """Steps of a run: enough for two checkpoints and what follows them."""
    return max(audit.job.steps, 2 * cadence(audit) + 2)


def control_run(audit: Audit) -> Trace:
    """The uninterrupted run; no planted fault comes along."""
    return audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", planted=False)


def saved_steps(audit: Audit) -> list[int]:
    """The first, a middle and the last step at which a checkpoint is due and at least one step follows."""
    due = list(range(cadence(audit), steps_of(audit), cadence(audit)))
    return sorted({due[0], due[len(due) // 2], due[-1]})[:MOST_CHECKPOINTS]


def killed_after(audit: Audit, saved: int) -> Trace:
    """The run whose rank 0 is killed after the checkpoint of step `saved`.

    The kill comes a step later than it could: the collective of the step between makes sure that every rank is through with its save.
    """
    kill = Fault("kill", rank=0, step=min(saved + min(2, cadence(audit)), steps_of(audit)))
    return audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", faults=(kill,), planted=False)


def resumed_from(audit: Audit, earlier: Trace, *faults: Fault, planted: bool = True, keep: bool = False, repeat: int = 0) -> Trace:
    """The same job started again on what `earlier` left."""
    return audit.run(
        world_size=audit.world_size, steps=steps_of(audit), level="full", faults=faults, planted=planted, resume_from=earlier, keep=keep, repeat=repeat
    )  # fmt: skip


def without_store(audit: Audit, *, planted: bool = True) -> tuple[Trace, Trace]:
    """The run that is killed behind its last save, and the one started again with its checkpoints gone."""
    killed = killed_after(audit, saved_steps(audit)[-1])
    return killed, resumed_from(audit, killed, Fault("checkpoint_store_missing"), planted=planted)


def epoch_end(audit: Audit, control: Trace) -> tuple[int, str] | None:
    """The due checkpoint that lies at the end of an epoch, or else the last one before it, with words; None where no epoch ends in the run."""
    due = list(range(cadence(audit), steps_of(audit) - 1, cadence(audit)))
    ends = [start - 1 for start in epoch_starts(states_of(control)) if start > 1]
    exact = [step for step in due if step in ends]
    if exact:
        return exact[0], f"killed after the checkpoint of step {exact[0]}, with which an epoch ends"
    before = [step for step in due if ends and step < ends[-1]]
    return (
        (before[-1], f"killed after the checkpoint of step {before[-1]}, before the epoch that ends with step {ends[-1]}")
        if before
        else None
    )

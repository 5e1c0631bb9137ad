"""The world that loses a rank between two checkpoints, and the one that was never interrupted: what recovery is measured against."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.faults import Fault
from fixtures.trace import Trace


def killed_between_checkpoints(audit: Audit) -> tuple[Trace, Trace]:
    """The uninterrupted run, and the one whose last rank is killed half an interval past a checkpoint."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    steps = max(audit.job.steps, 2 * every + 2)
    kill = Fault("kill", rank=audit.world_size - 1, step=_between_checkpoints(every, steps))
    control = audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False)
    return control, audit.run(world_size=audit.world_size, steps=steps, level="full", faults=(kill,), planted=False)


def _between_checkpoints(every: int, steps: int) -> int:
    """The step in which to kill: half an interval past the last checkpoint that leaves at least as many steps again to compare."""
    last = max(1, (steps - 1) // 2 // every) * every
    return min(last + max(1, every // 2) + 1, steps)

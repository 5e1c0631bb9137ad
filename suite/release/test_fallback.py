"""When the world is gone, one device goes on, and what it does can be audited."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.release.fallback import takes_over
from suite.release.programs import release_of


@criterion(
    "release.fallback",
    claim="When the world is lost, one device alone goes on from its last complete checkpoint, does the work that was left, and leaves a complete record of its own.",
    twin=Fault("forget", part="weights"),
    because=r"not with those of the last checkpoint",
    threshold="0 steps left undone or with other samples, 0 gaps in the record of the one-device run",
    needs=("release", "checkpoint"),
    assumptions=("the checkpoint directory outlives the world",),
    limitations=(
        "the numbers of one device differ from the world's by rounding, so samples are compared and not bits",
        "one kill, between two checkpoints",
    ),
    overturned_by="a checkpoint from which one device alone cannot go on, or a run of it that leaves no record",
)
def test_fallback(audit: Audit) -> None:
    """The fallback's result is as auditable as the world's."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    control, killed = killed_between_checkpoints(audit)
    path = release_of(audit).record
    alone = audit.run(world_size=1, steps=control.spec["steps"], level="full", resume_from=killed, files=(path,))
    audit.judge(takes_over, control, killed, alone, every=every, record=audit.written(alone, path))

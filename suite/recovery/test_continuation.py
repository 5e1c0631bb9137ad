"""Kill one rank between two checkpoints, start the job again, and hold every later step against the run that was never interrupted."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.continuation import continues
from suite.recovery.lost_rank import killed_between_checkpoints


@criterion(
    "recovery.continuation",
    claim="A job that loses a rank between two checkpoints and is started again repeats, bit for bit, the steps of the run that was never interrupted.",
    twin=Fault("forget", part="optimizer"),
    because=r"optimizer state|parameters",
    threshold="0 later steps that differ in parameters, optimizer state, learning rate, loss, samples or RNG; lost steps <= the checkpoint cadence",
    needs=("checkpoint",),
    min_world=1,
    assumptions=(
        "the machine that resumes is like the one that failed (same number of ranks, same library versions), so equal means bit-equal",
        "a kill is SIGKILL to one rank; the launcher then ends the others",
    ),
    limitations=(
        "one kill, in the middle of an interval between checkpoints",
        "RNG is compared where the job draws from it in at least half of its steps",
    ),
    overturned_by="a kill at another step, another world size or another device after which a later step differs",
)
def test_continuation(audit: Audit) -> None:
    """After a SIGKILL and a resume every later step is the one of the uninterrupted run, and no more than one cadence of steps is lost."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    control, killed = killed_between_checkpoints(audit)
    resumed = audit.run(world_size=audit.world_size, steps=control.spec["steps"], level="full", resume_from=killed)
    audit.judge(continues, control, killed, resumed, every=every)

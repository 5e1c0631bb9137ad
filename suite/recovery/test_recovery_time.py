"""Kill the job, start it again several times from the same checkpoint, and take the time until it does new work."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.kills import cadence, steps_of
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.recovery.recovery_time import back_in_time

RESTARTS = 5
OVER_THE_BOUND = 1.2


@criterion(
    "recovery.recovery_time",
    claim="After a failure the job does new work within the agreed time: the failure is noticed, the checkpoint restored, the lost steps done again.",
    twin=Fault("slow_resume", ms=6000),
    because=r"from the kill to the first new step",
    threshold="the bound recovery_s, outside the 95 % interval of repeated restarts",
    needs=("checkpoint",),
    timed=True,
    min_world=1,
    assumptions=("the failed rank can be started again at once: queueing and a new machine are not in it",),
    limitations=(
        "with the warm launcher Python and the import of torch are not in it",
        "files are in the page cache, as on a machine that goes on",
    ),
    overturned_by="a restart on the machine that is used in production that takes longer than the bound",
)
def test_recovery_time(audit: Audit) -> None:
    """How long a failure keeps the job from its work is measured, and bounded."""
    _, killed = killed_between_checkpoints(audit)
    bound_s = audit.targets("recovery_s")
    slow = () if audit.twin is None else (audit.twin.with_parameters(ms=round(1e3 * OVER_THE_BOUND * bound_s)),)
    restarts = [
        audit.run(
            world_size=audit.world_size, steps=steps_of(audit), level="timing", timed=True, repeat=repeat, faults=slow, planted=False,
            resume_from=killed, deadline_s=audit.job.time_limit_s + (2 * bound_s if slow else 0),
        )
        for repeat in range(RESTARTS if not slow else 1)
    ]  # fmt: skip
    audit.judge(back_in_time, killed, restarts, every=cadence(audit), bound_s=bound_s)

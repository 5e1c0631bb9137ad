"""Ask every rank to end, as a scheduler does before it takes the machine away, and start the job again."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.kills import cadence, control_run, resumed_from, steps_of
from suite.recovery.preemption import ends_on_request


@criterion(
    "recovery.preemption",
    claim="Asked to end (SIGTERM), the job saves, ends by itself within the grace, and continues later without a step lost.",
    twin=Fault("checkpoint_lost"),
    because=r"steps were lost|fresh start|loud failure",
    threshold="0 finished steps lost; every rank ended by itself",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("every rank is asked, as torchrun, Slurm and Kubernetes do", "the grace is the time limit of a run"),
    limitations=("all ranks are asked in the same step; a scheduler may be seconds apart, which the job has to allow for",),
    overturned_by="a SIGTERM at another moment after which a finished step is lost",
)
def test_preemption(audit: Audit) -> None:
    """A machine that is taken away with notice costs no work."""
    if not audit.claims("preemption"):
        audit.not_applicable(
            "the job does not claim to save when it is asked to end ([capabilities] preemption = true); a SIGTERM costs what a kill does"
        )
    every, control = cadence(audit), control_run(audit)
    asked = audit.run(
        world_size=audit.world_size, steps=steps_of(audit), level="full", faults=(Fault("preempt", step=every + max(1, every // 2)),), planted=False
    )  # fmt: skip
    resumed = resumed_from(audit, asked, *((audit.twin,) if audit.twin else ()))
    audit.judge(ends_on_request, control, asked, resumed)

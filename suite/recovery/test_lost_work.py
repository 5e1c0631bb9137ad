"""Kill the job at several points and count the steps that have to be done again."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.cases import Case, finished_steps, unproven_kill
from suite.recovery.kills import cadence, control_run, killed_after, resumed_from, saved_steps
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.recovery.lost_work import loses_at_most


@criterion(
    "recovery.lost_work",
    claim="No failure costs more steps than lie between two checkpoints as the job declares them.",
    twin=Fault("checkpoint_lost"),
    because=r"of them were lost",
    threshold="lost steps <= the declared cadence, for every failure tried",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("a checkpoint that was due in the step before the kill is complete when the step after it has begun",),
    limitations=("a kill inside a save may cost one cadence more, by design: the checkpoint before is then the newest one",),
    overturned_by="a failure between two checkpoints that costs more steps than the cadence",
)
def test_lost_work(audit: Audit) -> None:
    """What is done again after a failure is at most one cadence of steps."""
    every, control = cadence(audit), control_run(audit)
    lost = (audit.twin,) if audit.twin else ()
    kills = (
        [killed_after(audit, saved_steps(audit)[-1])]
        if lost
        else [*(killed_after(audit, saved) for saved in saved_steps(audit)), killed_between_checkpoints(audit)[1]]
    )
    cases = [
        Case(
            f"killed in step {finished_steps(killed) + 1}", resumed_from(audit, killed, *lost), newest=finished_steps(killed) // every * every,
            done=finished_steps(killed), unproven=unproven_kill(killed),
        )
        for killed in kills
    ]  # fmt: skip
    audit.judge(loses_at_most, control, cases, every=every)

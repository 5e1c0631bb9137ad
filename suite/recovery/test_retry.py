"""Start the job again, and again, and once more when it has finished: a retry must change nothing."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.cases import Case, all_come_back, unproven_kill
from suite.recovery.kills import cadence, control_run, killed_after, resumed_from, saved_steps, steps_of
from suite.recovery.returns import GOOD


@criterion(
    "recovery.retry",
    claim="Starting again is idempotent: repeated, after a restart that died at once, and after the job has finished, it gives the one same run.",
    twin=Fault("forget", part="weights"),
    because=r"weights that the uninterrupted run never had",
    threshold="0 retries that differ from the uninterrupted run or add a step to it",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("a scheduler starts the job with the same arguments each time",),
    limitations=(
        "the restart that dies is killed in its first step, not while it reads; recovery.incomplete_never_advertised dies while it writes",
    ),
    overturned_by="a retry after which a step differs, is done twice, or the job ends with an error though it had finished",
)
def test_retry(audit: Audit) -> None:
    """However often it is started again, the job does the steps that are left, each once."""
    control, newest = control_run(audit), saved_steps(audit)[-1]
    killed = killed_after(audit, newest)
    unproven = unproven_kill(killed)
    cases = [Case("started again a second time from the same checkpoint", resumed_from(audit, killed, repeat=1), newest, unproven=unproven)]
    if audit.twin is None:
        died = resumed_from(audit, killed, Fault("kill", rank=0, step=1), planted=False, keep=True)
        after = resumed_from(audit, died, planted=False)
        cases.append(
            Case("started again after a restart that was killed in its first step", after, newest, unproven=unproven or unproven_kill(died))
        )
        last, finished = steps_of(audit) // cadence(audit) * cadence(audit), resumed_from(audit, control, planted=False)
        cases.append(Case("started again after it had finished", finished, last, allowed=(*GOOD, "exit_0_without_resuming")))
    audit.judge(all_come_back, control, cases, unit="retries that differ")

"""Judge: a job that is asked to end saves what it has and ends; started again it goes on with the next step."""

from __future__ import annotations

import signal

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.cases import cannot_compare, finished_steps
from suite.recovery.ends import how_it_ended, hung
from suite.recovery.returns import GOOD, come_back

RIGHT_CODES = (0, 128 + signal.SIGTERM)


def ends_on_request(control: Trace, asked: Trace, resumed: Trace) -> Finding:
    """The run that got SIGTERM ended by itself, all ranks after the same step, and the run after it began with the very next one."""
    if reason := cannot_compare(control):
        return Finding(None, explanation=reason)
    if not asked.fired("preempt"):
        return Finding(None, explanation=f"no rank was asked to end: {how_it_ended(asked)}")
    if hung(asked):
        return Finding(False, explanation=f"asked to end, {how_it_ended(asked)}")
    ends = [
        end
        for end in asked.ended.get("ranks", ())
        if end.get("killed_by_us") or end.get("signal") or end.get("exit_code") not in RIGHT_CODES
    ]
    if ends:
        return Finding(False, explanation=f"asked to end, the job did not end by itself: {how_it_ended(asked)}")
    done, last = finished_steps(asked), finished_steps(control)
    begun = max(int(record["step"]) for record in asked.faults() if record["fault"]["kind"] == "preempt")
    if done == last:
        return Finding(
            False, explanation=f"asked to end in step {begun}, the job went on to its last step, {last}, as if nothing had been said"
        )
    back = come_back(control, resumed, newest=done)
    story = f"asked to end in step {begun}, every rank ended by itself after step {done}; started again it {back.words}"
    lost = done - back.step if back.step is not None else None
    if back.outcome == "not_seen":
        return Finding(None, explanation=story)
    if back.outcome in GOOD and not lost:
        return Finding(True, 0, "steps lost", 0, "at_most", story, samples=back.compared)
    return Finding(
        False, lost, "steps lost", 0, "at_most", f"{story}; {lost} finished steps were lost" if lost else story, samples=back.compared
    )

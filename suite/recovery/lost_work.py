"""Judge: no failure costs more work than lies between two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.cases import Case, cannot_compare, judged, table


def loses_at_most(control: Trace, cases: Sequence[Case], *, every: int) -> Finding:
    """The most steps that any of the failures cost, against the declared cadence; a case that comes back at no step loses all that was done."""
    if reason := cannot_compare(control):
        return Finding(accepted=None, explanation=reason)
    found = judged(control, cases)
    details = {"table": table(found), "cadence": every}
    if unsure := next((one for one in found if one.case.unproven or one.back.outcome == "not_seen"), None):
        return Finding(None, explanation=unsure.words, details=details)
    if not found:
        return Finding(None, explanation="no failure was tried")
    lost = [one.lost if one.lost is not None else one.case.done or 0 for one in found]
    worst = max(range(len(found)), key=lambda index: lost[index])
    one = found[worst]
    text = f"{one.case.words}, {one.case.done} steps were done and {lost[worst]} of them were lost ({one.back.words}); a checkpoint is due every {every}"
    if lost[worst] <= every:
        text = f"the most that {len(found)} failures cost is {lost[worst]} steps; a checkpoint is due every {every} ({one.case.words})"
    return Finding(lost[worst] <= every, lost[worst], "steps lost", every, "at_most", text, samples=len(found), details=details)

"""Judge: a store that fills up, turns read-only or is gone is told, costs no checkpoint that was there, and is come back from."""

from __future__ import annotations

import re

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.cases import Case, all_come_back, cannot_compare, finished_steps
from suite.recovery.ends import how_it_ended, hung
from suite.recovery.returns import come_back

WORDS = {
    # torch.save's own words for a write that did not go through: "[enforce fail at inline_container.cc:672] . unexpected pos 10240 vs 10128"
    "store_full": r"no space|ENOSPC|disk (is )?full|errno 28|write failed|not enough (disk )?space|inline_container.*unexpected pos",
    "store_read_only": r"read-only|EROFS|errno 30|write failed|permission denied|cannot be (opened|created)",
    "checkpoint_store_missing": (
        r"(\bno\b|not found|missing|cannot|does not exist|without|can't find).{0,60}(checkpoint|snapshot|resum)"
        r"|(checkpoint|snapshot|resum).{0,80}(not found|missing|no such|does not exist|cannot|nothing|none|empty|invalid)"
        r"|no such file or directory|from scratch|from step 0|from the beginning|starting (anew|over|fresh)|training a new"
    ),
}
"""What an operator must find in the output, by fault; an error of the system's own counts."""


def survives_failing_store(control: Trace, failing: Trace, resumed: Trace, *, kind: str, every: int) -> Finding:
    """The run whose store failed before its second save said so and ended or went on; the run after it, on a store that is well, is the control's."""
    if reason := cannot_compare(control):
        return Finding(None, explanation=reason)
    what = {"store_full": "was full", "store_read_only": "was read-only"}[kind]
    story = f"the store {what} from step {2 * every} on: the run {_ending(failing, control)}"
    details = {"how": [record.get("detail") for record in failing.faults() if record["fault"]["kind"] == kind]}
    if not failing.fired(kind):
        return Finding(None, explanation=f"the store never failed: {how_it_ended(failing)}")
    if hung(failing):
        return Finding(
            False,
            1,
            "failures that are not told",
            0,
            explanation=f"{story}; a rank that waits for one that cannot save never ends",
            details=details,
        )
    back = come_back(control, resumed, newest=finished_steps(control))
    done = not failing.crashed and finished_steps(failing) == finished_steps(control)
    if done and back.outcome == "exit_0_without_resuming":
        text = f"{story}, and the run after it found nothing left to do: its saves went through all the same, as those do that overwrite a file and so free the room they take"
        return Finding(None, explanation=text, details=details)
    saved_all_the_same = back.step is not None and back.step >= 2 * every
    if not saved_all_the_same and not _said(failing, kind):
        text = f"{story} without a word of it, and what was due from step {2 * every} on is not there"
        return Finding(False, 1, "failures that are not told", 0, explanation=text, details=details)
    if not failing.crashed and finished_steps(failing) < finished_steps(control):
        return Finding(False, 1, "failures that are not told", 0, explanation=f"{story}, though its work was not done", details=details)
    found = all_come_back(control, [Case(f"{story}; started again with a store that is well", resumed, newest=2 * every)])
    return Finding(
        found.accepted, found.value, "restarts that end badly", 0, explanation=found.explanation, details={**found.details, **details}
    )


def tells_missing_store(control: Trace, resumed: Trace, *, unproven: str = "") -> Finding:
    """Started again without the store, the job stops, or begins anew and says so; it never does so in silence."""
    if unproven or (unproven := cannot_compare(control)):
        return Finding(None, explanation=unproven)
    report = resumed.spec.get("damage_report") or {}
    if not report.get("planted"):
        return Finding(None, explanation=f"the store was not taken away: {report.get('nothing_to_damage', 'no reason was recorded')}")
    back = come_back(control, resumed, newest=0)
    came = "it began again from step 0" if back.outcome == "fresh_start" else back.words
    story = f"the checkpoint store was missing when the job was started again: {came}"
    told = _said(resumed, "checkpoint_store_missing")
    good = back.outcome in ("loud_failure", "fresh_start") and bool(told)
    if back.outcome == "not_seen":
        return Finding(None, explanation=story)
    said = f"; it said {told!r}" if told else "; its output says nothing of it" if back.outcome in ("loud_failure", "fresh_start") else ""
    return Finding(good, 0 if good else 1, "restarts in silence", 0, explanation=f"{story}{said}")


def _ending(failing: Trace, control: Trace) -> str:
    done, last = finished_steps(failing), finished_steps(control)
    return f"{how_it_ended(failing).removeprefix('it ')} after {done} of {last} steps"


def _said(trace: Trace, kind: str) -> str:
    """The line that tells it, "" where none does."""
    for rank in trace.ranks:
        for line in trace.log(rank).splitlines():
            if re.search(WORDS[kind], line, re.IGNORECASE):
                return line.strip()[:160]
    return ""

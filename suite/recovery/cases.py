"""Judge: several ways to fail and to come back, each held against the one uninterrupted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.alignment import States, states_of
from suite.recovery.ends import how_it_ended
from suite.recovery.returns import GOOD, Outcome, Return, come_back


@dataclass(frozen=True, slots=True)
class Case:
    """One way to fail: `words` says what happened, `resumed` is the run that was started after it.

    newest: the step of the newest checkpoint that may exist. least: the step that it must not come back before. done: how many steps
    were finished when it happened, None where lost work is not the question. allowed: the outcomes that are right. unproven: why the case
    shows nothing (its fault did not happen), "" where it does. expected: what it is held against where that is not the control.
    """

    words: str
    resumed: Trace
    newest: int
    least: int = 1
    done: int | None = None
    allowed: tuple[Outcome, ...] = GOOD
    unproven: str = ""
    expected: States | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with how it came back; right is None where that cannot be told."""

    case: Case
    back: Return
    right: bool | None

    @property
    def lost(self) -> int | None:
        return None if self.case.done is None or self.back.step is None else max(0, self.case.done - self.back.step)

    @property
    def words(self) -> str:
        late = self.right is False and self.back.outcome in self.case.allowed
        return f"{self.case.words}: {self.case.unproven or self.back.words}" + (
            f", but it had to come back at step {self.case.least} or later" if late and not self.case.unproven else ""
        )


def cannot_compare(control: Trace) -> str:
    """Why nothing can be held against this control, "" where something can."""
    return f"the uninterrupted control did not finish: {how_it_ended(control)}" if control.crashed or control.steps.empty else ""


def judged(control: Trace, cases: Sequence[Case]) -> list[Judged]:
    """Each case with how it came back."""
    expected = states_of(control)
    return [_judged(control, case, expected) for case in cases]


def all_come_back(
    control: Trace, cases: Sequence[Case], *, unit: str = "cases that end badly", nothing: str = "no case was tried"
) -> Finding:
    """Every case comes back as it is allowed to. nothing: what to say where there is no case."""
    if reason := cannot_compare(control):
        return Finding(accepted=None, explanation=reason)
    found = judged(control, cases)
    details = {"table": table(found)}
    bad = [one for one in found if one.right is False]
    if bad:
        text = f"{bad[0].words} ({len(bad)} of {len(found)} cases end badly)"
        return Finding(False, len(bad), unit, 0, explanation=text, samples=len(found), details=details)
    unsure = next((one for one in found if one.right is None), None)
    if unsure or not found:
        return Finding(None, explanation=unsure.words if unsure else nothing, details=details)
    text = "; ".join(one.words for one in found)
    return Finding(True, 0, unit, 0, explanation=text, samples=len(found), details=details)


def table(found: Sequence[Judged]) -> dict[str, Any]:
    """The cases as the page shows them."""
    rows = [[one.case.words, one.back.outcome.replace("_", " "), one.back.step, one.lost] for one in found]
    return {"columns": ["case", "outcome", "came back at step", "steps lost"], "rows": rows}


def _judged(control: Trace, case: Case, expected: States) -> Judged:
    back = come_back(control, case.resumed, newest=case.newest, expected=case.expected or expected)
    if case.unproven or back.outcome == "not_seen":
        return Judged(case, back, None)
    late = back.step is not None and back.step < case.least and back.outcome in GOOD
    return Judged(case, back, back.outcome in case.allowed and not late)


def finished_steps(trace: Trace) -> int:
    """How many steps a run finished."""
    return int(trace.steps["step"].max()) if not trace.steps.empty else 0


def unproven_kill(killed: Trace) -> str:
    """Why a run that was to be killed shows nothing, "" where it was."""
    return "" if killed.fired("kill") else f"the kill never happened ({how_it_ended(killed)})"

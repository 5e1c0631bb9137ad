"""The damaged checkpoints that a restore is tried on, and what may come of each."""

from __future__ import annotations

from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.cases import Case, all_come_back
from suite.recovery.returns import GOOD

DAMAGE = {
    "checkpoint_flip": "one bit flipped",
    "checkpoint_truncate": "cut to half its length",
    "checkpoint_swap": "two files exchanged",
    "checkpoint_stale": "one file of the checkpoint before in it",
}


def never_loaded_silently(control: Trace, intact: Trace, damaged: dict[str, Trace], *, newest: int, unproven: str = "") -> Finding:
    """Damage to the newest checkpoint is refused, or the one before is taken; without damage it is restored. `damaged` is by kind of damage.

    A kind that found nothing to damage in this job's checkpoints is left out, with the reason; all four left out decide nothing.
    """
    done = {kind: trace for kind, trace in damaged.items() if _report(trace).get("planted")}
    cases = [Case("undamaged", intact, newest, unproven=unproven)]
    cases += [
        Case(f"{DAMAGE[kind]} ({', '.join(_report(trace)['altered'])})", trace, newest, allowed=(*GOOD, "loud_failure"), unproven=unproven)
        for kind, trace in done.items()
    ]
    found = all_come_back(control, cases, unit="damages taken in silence")
    if found.accepted and not done:
        return Finding(None, explanation=f"nothing could be damaged: {'; '.join(map(_why_not, damaged.values())) or 'no damage was tried'}")
    left_out = [f"{DAMAGE[kind]} was not possible: {_why_not(trace)}" for kind, trace in damaged.items() if kind not in done]
    said = "; ".join([found.explanation, *left_out])
    return Finding(found.accepted, found.value, found.unit, found.bound, explanation=said, samples=found.samples, details=found.details)


def _report(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = trace.spec.get("damage_report") or {}
    return found


def _why_not(trace: Trace) -> str:
    return str(_report(trace).get("nothing_to_damage") or "it was not carried out")

"""The verdict of one criterion, from what it gave as is and what it gave with its fault planted.

The first line that applies decides. "Waived" stands for a waiver that names the criterion and has not expired; it is looked at last, and
never hides a passed one.

    as is        | declared | twin                               | verdict
    -------------+----------+------------------------------------+---------------------------------------------
    rejected     | any      | any                                | failed
    any          | absent   | any                                | not_applicable
    absent       | present  | any                                | not_applicable   its trace shows that the job lacks the thing
    no record    | present  | any                                | not_run
    crashed      | present  | any                                | inconclusive
    undecided    | present  | any                                | inconclusive
    accepted     | present  | no record                          | inconclusive   the check was not shown able to fail
    accepted     | present  | crashed, undecided                 | inconclusive
    accepted     | present  | accepted                           | inconclusive   the check cannot see its own fault
    accepted     | present  | rejected, fault did not fire       | inconclusive   it rejected something else
    accepted     | present  | rejected, other reason             | inconclusive   it rejected for something else
    accepted     | present  | rejected, fired, its reason        | passed
    failed, inconclusive or not_run, and waived                  | waived

"Declared absent": the job's capabilities name, with a reason, the criterion itself or a part that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reports.evidence import Entry, Evidence, Record

Verdict = Literal["passed", "failed", "inconclusive", "not_applicable", "waived", "not_run"]
VERDICTS: tuple[Verdict, ...] = ("failed", "inconclusive", "not_run", "waived", "not_applicable", "passed")  # worst first, as shown


@dataclass(frozen=True, slots=True)
class Waiver:
    """An owner's written acceptance, until `expires` (a date, inclusive), that a criterion does not pass. backend "" stands for any."""

    id: str
    reason: str
    owner: str
    expires: str
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """One criterion judged. reason: one sentence; beneath: the verdict that a waiver stands before, else the verdict itself."""

    entry: Entry
    verdict: Verdict
    reason: str
    beneath: Verdict
    as_is: Record | None
    twin: Record | None
    waiver: Waiver | None


def verdict(
    entry: Entry, as_is: Record | None, twin: Record | None, waivers: tuple[Waiver, ...] = (), capabilities: Mapping[str, Any] | None = None
) -> Ruling:
    """The verdict as tabled above. capabilities: name -> reason why the job lacks it; other values than text are ignored."""
    beneath, reason = _without_waiver(entry, as_is, twin, capabilities or {})
    waiver = next((one for one in waivers if one.id == entry.id and one.backend in ("", entry.backend)), None)
    if waiver is not None and beneath in ("failed", "inconclusive", "not_run"):
        words = f"Waived by {waiver.owner} until {waiver.expires}: {waiver.reason}"
        return Ruling(entry, "waived", words, beneath, as_is, twin, waiver)
    return Ruling(entry, beneath, reason, beneath, as_is, twin, None)


def rulings(evidence: Evidence, waivers: tuple[Waiver, ...] = ()) -> tuple[Ruling, ...]:
    """The verdict of every catalogue entry, in the order of the catalogue."""
    capabilities = absences(evidence.meta.get("job") or {})
    return tuple(
        verdict(entry, evidence.record(entry, "as_is"), evidence.record(entry, "twin"), waivers, capabilities)
        for entry in evidence.catalogue
    )


def absences(job: Mapping[str, Any]) -> dict[str, str]:
    """What the job declares that it lacks, with its reason. A deviation of a part that it does have is no absence."""
    has = set(job.get("has") or ())
    return {name: value for name, value in (job.get("capabilities") or {}).items() if isinstance(value, str) and name not in has}


def _without_waiver(entry: Entry, as_is: Record | None, twin: Record | None, capabilities: Mapping[str, Any]) -> tuple[Verdict, str]:
    if as_is is not None and as_is.outcome == "rejected":
        return "failed", as_is.finding.explanation
    for name in (entry.id, *entry.needs):
        if isinstance(capabilities.get(name), str):
            return "not_applicable", f"The job declares, for {name}: {capabilities[name]}"
    if as_is is None:
        return "not_run", "The catalogue names it, but there is no record of it."
    if as_is.outcome == "absent":
        return "not_applicable", as_is.finding.explanation
    if as_is.outcome != "accepted":
        return "inconclusive", as_is.finding.explanation
    return _of_twin(entry, as_is, twin)


def _of_twin(entry: Entry, as_is: Record, twin: Record | None) -> tuple[Verdict, str]:
    """An accepted claim counts only if the same check rejected the planted fault, which happened, for the reason foretold."""
    words = entry.twin.get("words") or "the planted fault"
    if twin is None:
        return "inconclusive", f"Its twin ({words}) has no record, so the check was not shown able to fail."
    if twin.outcome in ("crashed", "undecided", "absent"):
        return "inconclusive", f"Its twin ({words}) could not be judged: {twin.finding.explanation}"
    if twin.outcome == "accepted":
        return "inconclusive", f"The check did not notice its twin ({words}), so its acceptance proves nothing."
    if not twin.fired:
        return "inconclusive", f"The fault of its twin ({words}) never happened, so its rejection proves nothing."
    if not re.search(entry.because, twin.finding.explanation):
        return "inconclusive", f"Its twin ({words}) was rejected for another reason than foretold: {twin.finding.explanation}"
    return "passed", as_is.finding.explanation

"""The verdict of one criterion, from what it gave as is and what it gave with its fault planted.

The first line that applies decides. "Waived" stands for a waiver that names the criterion and has not expired; it is looked at last, and
never hides a passed one.

    as is          | declared | twin                             | verdict
    ---------------+----------+----------------------------------+---------------------------------------------
    rejected       | any      | any                              | failed
    any            | absent   | any                              | not_applicable
    not_applicable | present  | any                              | not_applicable
    no record      | present  | any                              | not_run
    crashed        | present  | any                              | inconclusive
    undecided      | present  | any                              | inconclusive
    accepted     | present  | no record                          | inconclusive   the check was not shown able to fail
    accepted     | present  | crashed, undecided                 | inconclusive
    accepted     | present  | accepted                           | inconclusive   the check cannot see its own fault
    accepted     | present  | rejected, fault did not fire       | inconclusive   it rejected something else
    accepted     | present  | rejected, other reason             | inconclusive   it rejected for something else
    accepted     | present  | rejected, fired, its reason        | passed
    accepted     | present  | not_applicable                     | as if it were not there; inconclusive if none is left
    failed, inconclusive or not_run, and waived                  | waived

Of several twins the first that does not give "passed" decides. "Declared absent": the job's capabilities name, with a reason, the criterion itself or a part that it needs.
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
    """One criterion judged. reason: one sentence; twins: a record for each of the entry's, in their order; beneath: the verdict that a waiver stands before, else the verdict itself."""

    entry: Entry
    verdict: Verdict
    reason: str
    beneath: Verdict
    as_is: Record | None
    twins: tuple[Record | None, ...]
    waiver: Waiver | None


def verdict(
    entry: Entry,
    as_is: Record | None,
    twins: tuple[Record | None, ...],
    waivers: tuple[Waiver, ...] = (),
    capabilities: Mapping[str, Any] | None = None,
) -> Ruling:
    """The verdict as tabled above. capabilities: name -> reason why the job lacks it; other values than text are ignored."""
    beneath, reason = _without_waiver(entry, as_is, twins, capabilities or {})
    waiver = next((one for one in waivers if one.id == entry.id and one.backend in ("", entry.backend)), None)
    if waiver is not None and beneath in ("failed", "inconclusive", "not_run"):
        words = f"Waived by {waiver.owner} until {waiver.expires}: {waiver.reason}"
        return Ruling(entry, "waived", words, beneath, as_is, twins, waiver)
    return Ruling(entry, beneath, reason, beneath, as_is, twins, None)


def rulings(evidence: Evidence, waivers: tuple[Waiver, ...] = ()) -> tuple[Ruling, ...]:
    """The verdict of every catalogue entry, in the order of the catalogue."""
    capabilities = absences(evidence.meta.get("job") or {})
    return tuple(
        verdict(
            entry,
            evidence.record(entry, "as_is"),
            tuple(evidence.record(entry, twin["part"]) for twin in entry.twins),
            waivers,
            capabilities,
        )
        for entry in evidence.catalogue
    )


def absences(job: Mapping[str, Any]) -> dict[str, str]:
    """What the job declares that it lacks, with its reason. A deviation of a part that it does have is no absence."""
    has = set(job.get("has") or ())
    return {name: value for name, value in (job.get("capabilities") or {}).items() if isinstance(value, str) and name not in has}


def _without_waiver(
    entry: Entry, as_is: Record | None, twins: tuple[Record | None, ...], capabilities: Mapping[str, Any]
) -> tuple[Verdict, str]:
    if as_is is not None and as_is.outcome == "rejected":
        return "failed", as_is.finding.explanation
    for name in (entry.id, *entry.needs):
        if isinstance(capabilities.get(name), str):
            return "not_applicable", f"The job declares, for {name}: {capabilities[name]}"
    if as_is is None:
        return "not_run", "The catalogue names it, but there is no record of it."
    if as_is.outcome == "not_applicable":
        return "not_applicable", as_is.finding.explanation
    if as_is.outcome != "accepted":
        return "inconclusive", as_is.finding.explanation
    if wrong := next(filter(None, map(against, entry.twins, twins)), ""):
        return "inconclusive", wrong
    if all(twin and twin.outcome == "not_applicable" for twin in twins):
        said = twins[0].finding.explanation if twins and twins[0] else "none is declared"
        return "inconclusive", f"None of its twins concerns this job, so the check was not shown able to fail: {said}"
    return "passed", as_is.finding.explanation


def against(planted: Mapping[str, Any], twin: Record | None) -> str:
    """Why a twin does not support the claim, "" where it does (or does not concern the job).

    An accepted claim counts only if the same check rejected the planted fault, which happened, for the reason foretold.
    """
    words = planted.get("words") or "the planted fault"
    if twin is None:
        return f"Its twin ({words}) has no record, so the check was not shown able to fail."
    if twin.outcome == "not_applicable":
        return ""
    if twin.outcome in ("crashed", "undecided"):
        return f"Its twin ({words}) could not be judged: {twin.finding.explanation}"
    if twin.outcome == "accepted":
        return f"The check did not notice its twin ({words}), so its acceptance proves nothing."
    if not twin.fired:
        return f"The fault of its twin ({words}) never happened, so its rejection proves nothing."
    if not re.search(planted.get("because") or "", twin.finding.explanation):
        return f"Its twin ({words}) was rejected for another reason than foretold: {twin.finding.explanation}"
    return ""

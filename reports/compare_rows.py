"""The criteria of two audits, joined by id and backend: what became of each.

    base              head              change
    ----------------  ----------------  ------------------------------------------------------------------
    in the catalogue  not in it         missing
    not in it         in the catalogue  new; regressed where it failed
    any but not_run   not_run           missing
    had a verdict     not_applicable    missing        the job now declares that it lacks the part
    any but failed    failed            regressed; unstable where a timed number does not confirm it
    any but same      inconclusive      unstable       nothing is known of it any more; regressed where its numbers are
    any but passed    passed            improved; regressed or undecided where its numbers are
    any               waived            unchanged      an owner accepted it in writing
    the same          the same          by its numbers: regressed, undecided, improved, unchanged

A timed criterion near its bound changes its verdict by noise alone. Such a change counts only if the numbers of both sides, each with its
interval, show it too. Where the criterion's version differs its numbers mean something else: only verdicts are compared, and equal ones
are incomparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.compare_model import Change, Number, Row
from reports.compare_numbers import numbers
from reports.compare_policy import CompareBounds
from reports.evidence import Entry, Evidence
from reports.policy import Policy
from reports.verdicts import Ruling, rulings
from reports.wording import sentence

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """One criterion's rulings on both sides."""

    before: Ruling
    after: Ruling

    @property
    def same_version(self) -> bool:
        return self.before.entry.version == self.after.entry.version


def criterion_rows(base: Evidence, head: Evidence, policy: Policy, bounds: CompareBounds) -> tuple[Row, ...]:
    """One row per criterion and backend of either catalogue. The policy's waivers count for the head alone."""
    before, after = _by_key(rulings(base)), _by_key(rulings(head, policy.waivers))
    return tuple(_row(key, before.get(key), after.get(key), policy, bounds) for key in dict.fromkeys([*before, *after]))


def _row(key: Key, before: Ruling | None, after: Ruling | None, policy: Policy, bounds: CompareBounds) -> Row:
    critical = policy.is_critical(key[0])
    if after is None:
        words = f"The head's catalogue does not have it; in the base it was {_word(before)}."
        return Row(*key, critical, "missing", before.verdict if before else "", "", words)
    if before is None:
        change: Change = "regressed" if after.verdict == "failed" else "new"
        return Row(*key, critical, change, "", after.verdict, sentence(f"New in the head, {_word(after)}: {after.reason}"))
    pair = Pair(before, after)
    compared = _numbers(pair, bounds)
    change, words = changed(pair, compared)
    return Row(*key, critical, change, before.verdict, after.verdict, sentence(words), compared)


def changed(pair: Pair, compared: Sequence[Number]) -> tuple[Change, str]:
    """The change as tabled at the top of this file, and why."""
    was, now = pair.before.verdict, pair.after.verdict
    if was == now:
        return _by_numbers(pair, compared)
    reason = f"{_word(pair.before)} before, now {_word(pair.after)}: {pair.after.reason}"
    if now == "not_run" or (now == "not_applicable" and was != "not_run"):
        return "missing", reason
    if now == "failed":
        return _newly_failed(pair, compared, reason)
    if now in ("waived", "not_applicable"):
        return "unchanged", reason
    by_verdict: Change = "improved" if now == "passed" else "unstable"
    by_numbers = worst(compared)
    if by_numbers == "regressed" or (by_numbers == "undecided" and by_verdict == "improved"):
        return by_numbers, f"{reason}; yet {_telling(compared, by_numbers)}"
    return by_verdict, reason


def _newly_failed(pair: Pair, compared: Sequence[Number], reason: str) -> tuple[Change, str]:
    """A failure is a regression, unless it is one of a measured time that noise may have carried over the bound."""
    finding = pair.after.as_is.finding if pair.after.as_is else None
    timed = pair.after.entry.timed and finding is not None and finding.value is not None
    if not timed or pair.before.verdict in ("not_run", "not_applicable") or _any(compared, "regressed"):
        return "regressed", reason
    return "unstable", f"{reason}; the numbers of both sides do not show a change beyond noise, so audit both again"


def _by_numbers(pair: Pair, compared: Sequence[Number]) -> tuple[Change, str]:
    verdict = _word(pair.after)
    if not pair.same_version:
        return "incomparable", f"{verdict} under both versions of the criterion, which mean different things"
    change = worst(compared)
    words = _telling(compared, change) or _telling(compared, "incomparable")
    return change, f"{verdict} on both sides" + (f"; {words}" if words else "")


def _telling(compared: Sequence[Number], outcome: str) -> str:
    return "; ".join(f"{number.name}: {number.words}" for number in compared if number.outcome == outcome)


def worst(compared: Sequence[Number]) -> Change:
    """What the numbers come to. One that cannot be compared counts only where there is no other."""
    for change in ("regressed", "undecided", "improved"):
        if _any(compared, change):
            return change
    if compared and all(number.outcome == "incomparable" for number in compared):
        return "incomparable"
    return "unchanged"


def _any(compared: Sequence[Number], outcome: str) -> bool:
    return any(number.outcome == outcome for number in compared)


def _numbers(pair: Pair, bounds: CompareBounds) -> tuple[Number, ...]:
    """Only numbers that a judge stood by are compared: not those of crashed, undecided or missing records."""
    one, other = pair.before.as_is, pair.after.as_is
    if one is None or other is None or not pair.same_version or {one.outcome, other.outcome} - {"accepted", "rejected"}:
        return ()
    entry: Entry = pair.after.entry
    return numbers(entry.id, entry.timed, one.finding, other.finding, bounds)


def _by_key(judged: Sequence[Ruling]) -> dict[Key, Ruling]:
    return {(ruling.entry.id, ruling.entry.backend): ruling for ruling in judged}


def _word(ruling: Ruling | None) -> str:
    return ruling.verdict.replace("_", " ") if ruling else "absent"

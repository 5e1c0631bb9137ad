"""The nouns of a comparison: two sides, how their circumstances differ, one row per criterion or benchmark, and what follows from all rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

Change = Literal["regressed", "missing", "unstable", "undecided", "incomparable", "new", "improved", "unchanged"]
CHANGES: tuple[Change, ...] = get_args(Change)  # what blocks first, as shown
Outcome = Literal["regressed", "undecided", "improved", "unchanged", "incomparable", "shown"]

ACCEPT, REGRESSION, USAGE, INCOMPARABLE, UNDECIDED, NOTHING_MEASURED = 0, 1, 2, 3, 4, 5
VERDICTS = {
    ACCEPT: "accept", REGRESSION: "regression", INCOMPARABLE: "incomparable", UNDECIDED: "undecided", NOTHING_MEASURED: "nothing measured"
}  # fmt: skip
ALWAYS_FAIL: tuple[str, ...] = ("regressed", "missing")
MAY_FAIL = ("unstable", "undecided", "failed", "incomparable", "new")  # what --fail-on may add


@dataclass(frozen=True, slots=True)
class Number:
    """One number on both sides.

    worse, low, high: by how much the head is worse than the base, with its interval: a share of the base (0.03 is 3 % slower), or points
    where the number is itself a share of a step; None where it was not judged. bound: the worsening that is still accepted.
    detectable: the smallest worsening that would be found in four of five comparisons like this one. more_runs: how many more repeats
    may decide; None where that is not known.
    """

    name: str
    unit: str
    base: float | None
    head: float | None
    outcome: Outcome
    words: str
    worse: float | None = None
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    detectable: float | None = None
    more_runs: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One criterion on one backend, or one benchmark (backend "benchmark"). before, after: verdicts, "" where there is none."""

    id: str
    backend: str
    critical: bool
    change: Change
    before: str
    after: str
    words: str
    numbers: tuple[Number, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.id} [{self.backend}]"

    @property
    def verdict_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A circumstance in which the sides differ. field: what --allow-mismatch calls it; part: which part of it."""

    field: str
    part: str
    base: str
    head: str
    allowed: bool

    @property
    def words(self) -> str:
        return (
            f"{self.field if self.part == self.field else f'{self.field} ({self.part})'}: {self.base} in the base, {self.head} in the head"
        )


@dataclass(frozen=True, slots=True)
class Title:
    """How one side is called: its folder, its commit ("" if unknown), its job and when it was gathered."""

    folder: str
    commit: str
    dirty: bool
    job: str
    started_utc: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a comparison found. fail_on: the changes that fail it. allow_missing: patterns of what may have gone.

    empty: which side measured nothing, as a sentence; "" where both did.
    """

    base: Title
    head: Title
    mismatches: tuple[Mismatch, ...]
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    fail_on: tuple[str, ...] = ALWAYS_FAIL
    allow_missing: tuple[str, ...] = ()
    empty: str = ""

    @property
    def refused(self) -> tuple[Mismatch, ...]:
        return tuple(item for item in self.mismatches if not item.allowed)

    @property
    def exit_code(self) -> int:
        if self.empty:
            return NOTHING_MEASURED
        if self.refused:
            return INCOMPARABLE
        if any(self.fails(row) for row in self.rows):
            return REGRESSION
        return UNDECIDED if any(is_open(row) for row in self.rows) else ACCEPT

    @property
    def verdict(self) -> str:
        return VERDICTS[self.exit_code]

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(row.change for row in self.rows)
        return {name: found[name] for name in CHANGES}

    def fails(self, row: Row) -> bool:
        """Whether this row alone makes the comparison fail."""
        if row.change == "missing" and self.may_be_missing(row):
            return False
        return row.change in self.fail_on or (row.after == "failed" and "failed" in self.fail_on)

    def may_be_missing(self, row: Row) -> bool:
        return any(row.id == pattern or fnmatchcase(row.id, pattern) for pattern in self.allow_missing)

    @property
    def blocking(self) -> tuple[Row, ...]:
        """The rows that stand between this comparison and acceptance: what fails first, then what is open."""
        failing = tuple(row for row in self.rows if self.fails(row))
        return failing + tuple(row for row in self.rows if is_open(row) and not self.fails(row))


def is_open(row: Row) -> bool:
    """Whether the row allows neither acceptance nor rejection."""
    return row.change in ("unstable", "undecided")


def order(row: Row) -> tuple[bool, int, bool, str, str]:
    """Changes of verdict first, then numbers; inside, what blocks first, critical criteria first."""
    return (not (row.verdict_changed and row.change != "unchanged"), CHANGES.index(row.change), not row.critical, row.id, row.backend)

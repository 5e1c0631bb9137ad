"""`python -m reports history`: how the verdicts of a job went from audit to audit, and between which two commits each one changed.

asv and memote plot a number over commits and leave the reader to see the step. Here each audit is compared, by the rules of `compare`, with the
latest earlier one of the same machine, worlds and job: a change of verdict is always a change point, a number only where the intervals of both sides show it,
and where no earlier audit is comparable the line is broken instead of joined.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from reports.compare import compare
from reports.compare_context import mismatches
from reports.compare_find import Side, audits_below
from reports.compare_model import Comparison, Row
from reports.compare_policy import CompareBounds, load_bounds
from reports.compare_text import verdicts
from reports.decide import decide
from reports.evidence import EvidenceError
from reports.policy import Policy, load_policy
from reports.verdicts import rulings
from reports.wording import counted

MARKS = {"passed": "✓", "failed": "✗", "inconclusive": "?", "not_applicable": "-", "waived": "w", "not_run": "·"}
ABSENT = " "
LEGEND = ", ".join(f"{mark} {name.replace('_', ' ')}" for name, mark in MARKS.items()) + ", blank: not in the catalogue"
TELLING = ("regressed", "missing", "unstable", "improved", "new")
ALLOWED = ("criteria",)  # a criterion's new version is part of its history
UNDATED = "1970-01-01T00:00:00+00:00"
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """The audit at index `head` beside the latest earlier one that it can be compared with, else beside the one just before it."""

    base: int
    head: int
    found: Comparison


@dataclass(frozen=True, slots=True)
class History:
    """The audits of one job, oldest first. decisions: one per audit; strips: (id, backend) -> one mark per audit; steps: what came between them."""

    job: str
    sides: tuple[Side, ...]
    decisions: tuple[str, ...]
    strips: dict[Key, str]
    steps: tuple[Step, ...]


def histories(sides: Sequence[Side], policy: Policy, bounds: CompareBounds) -> list[History]:
    """One history per job, by name; a pure function. Audits without a catalogue, such as a folder of benchmarks, are left out."""
    gathered = sorted((side for side in sides if side.evidence.catalogue), key=lambda side: (side.title.started_utc, side.title.folder))
    return [
        _history(job, [side for side in gathered if side.title.job == job], policy, bounds)
        for job in sorted({side.title.job for side in gathered})
    ]


def _history(job: str, sides: Sequence[Side], policy: Policy, bounds: CompareBounds) -> History:
    ruled = [{(one.entry.id, one.entry.backend): one.verdict for one in rulings(side.evidence)} for side in sides]
    known = dict.fromkeys(key for verdicts_of in ruled for key in verdicts_of)
    strips = {key: "".join(MARKS.get(verdicts_of.get(key, ""), ABSENT) for verdicts_of in ruled) for key in sorted(known)}
    decisions = tuple(decide(side.evidence, policy, _ended(side)).verdict for side in sides)
    return History(job, tuple(sides), decisions, strips, tuple(_step(sides, head, policy, bounds) for head in range(1, len(sides))))


def _ended(side: Side) -> datetime:
    """When the audit ended: its decision is the one of that day, before its evidence grew old."""
    session = side.evidence.meta.get("session") or {}
    return datetime.fromisoformat(session.get("finished_utc") or session.get("started_utc") or UNDATED)


def _step(sides: Sequence[Side], head: int, policy: Policy, bounds: CompareBounds) -> Step:
    comparable = (
        base
        for base in reversed(range(head))
        if all(item.allowed for item in mismatches(sides[base].evidence, sides[head].evidence, ALLOWED))
    )
    base = next(comparable, head - 1)
    return Step(base, head, compare(sides[base], sides[head], policy, bounds, allow_mismatch=ALLOWED))


def as_text(found: History) -> str:
    """The whole history of one job for the terminal."""
    return "\n".join([*_heading(found), "", *_strips(found), "", *_changes(found)])


def _heading(found: History) -> Iterator[str]:
    yield f"{found.job or 'an unnamed job'}: {counted(len(found.sides), 'audit', 'audits')}, oldest first"
    for number, side in enumerate(found.sides, 1):
        title, world = side.title, side.evidence.meta.get("world") or {}
        strip = [marks[number - 1] for marks in found.strips.values() if marks[number - 1] != ABSENT]
        commit = (title.commit[:12] or "unknown") + ("+" if title.dirty else "")
        when = title.started_utc[:16].replace("T", " ")
        yield f"  {number:>3}  {when}  {commit:<13}  {found.decisions[number - 1]:<8} {strip.count(MARKS['passed'])} of {len(strip)} passed, {world.get('world_size', '?')} ranks  {title.folder}"


def _strips(found: History) -> Iterator[str]:
    width = max((len(f"{id} [{backend}]") for id, backend in found.strips), default=0)
    for (id, backend), marks in found.strips.items():
        yield f"  {f'{id} [{backend}]':<{width}}  {marks}"
    yield f"  ({LEGEND})"


def _changes(found: History) -> Iterator[str]:
    """Every change point with the two commits that it lies between; a break where an audit is like no earlier one."""
    said = False
    for step in found.steps:
        base, head = (title.commit[:12] or "unknown" for title in (step.found.base, step.found.head))
        between = f"{step.base + 1} to {step.head + 1} ({base}..{head})"
        for line in _of_step(step.found):
            said = True
            yield f"  {between}  {line}"
    if not said:
        yield "  no verdict changed, and no number by more than noise" if found.steps else "  one audit has no history yet"


def _of_step(step: Comparison) -> Iterator[str]:
    if step.empty or step.refused:
        yield f"not compared: {step.empty or '; '.join(dict.fromkeys(item.words for item in step.refused))}"
        return
    for row in step.rows:
        if row.change in TELLING:
            yield f"{row.change:<10} {row.name}  {_told(row)}"


def _told(row: Row) -> str:
    if row.verdict_changed:
        return verdicts(row)
    return "; ".join(f"{number.name}: {number.words}" for number in row.numbers if number.outcome == row.change) or row.words


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb of `python -m reports`."""
    parser = commands.add_parser(
        "history", help="every audit's verdicts side by side, and the commits between which each one changed", description=__doc__
    )
    parser.add_argument(
        "audits", type=Path, nargs="?", default=Path("audits"), metavar="DIR", help="the folder that holds the audits (default: audits)"
    )
    parser.add_argument("--job", default="", metavar="NAME", help="only this job")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="bounds from here instead of reports/policy.toml")
    parser.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    """Print the history of every job below the folder. Raises EvidenceError where there is none."""
    if not asked.audits.is_dir():
        raise EvidenceError(f"{asked.audits} is no directory; give the folder that holds the directories of audits.")
    found = histories(audits_below(asked.audits), load_policy(asked.policy), load_bounds(asked.policy))
    wanted = [one for one in found if asked.job in ("", one.job)]
    if not wanted:
        known = ", ".join(one.job for one in found)
        raise EvidenceError(
            f"no audit{f' of job {asked.job!r}' if asked.job else ''} below {asked.audits}"
            + (f"; there are audits of {known}." if known else ".")
        )
    print("\n\n".join(map(as_text, wanted)))
    return 0

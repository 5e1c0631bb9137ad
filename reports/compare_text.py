"""A comparison for the terminal: the verdict's circumstances, what blocks, every change aligned in columns, and the verdict last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from reports.compare_model import Comparison, Number, Row, Title
from reports.wording import counted, quantity

WIDTH = 118
QUIET = ("unchanged",)  # counted, not listed, unless there are numbers to show


def as_text(found: Comparison) -> str:
    """The whole text, ending with a line "compare: VERDICT"."""
    return "\n".join(map(_printable, [*_heading(found), *_body(found), "", *_last(found)])) + "\n"


def _printable(text: str) -> str:
    """Without control characters: what a job said may not move the cursor or colour the verdict."""
    return "".join(mark if mark.isprintable() or mark == "\n" else " " for mark in text)


def summary(found: Comparison) -> str:
    """The changes counted, such as "1 regressed, 18 unchanged"."""
    return ", ".join(f"{count} {name}" for name, count in found.counts.items() if count) or "nothing compared"


def verdicts(row: Row) -> str:
    """What became of the verdict, such as "passed -> failed"."""
    before, after = (name.replace("_", " ") or "absent" for name in (row.before, row.after))
    return before if before == after else f"{before} -> {after}"


def values(number: Number) -> str:
    """Both values, such as "41.2 ms -> 43.1 ms"."""
    return f"{quantity(number.base, number.unit if number.head is None else '')} -> {quantity(number.head, number.unit)}"


def titled(title: Title) -> str:
    """One side on one line."""
    commit = f"commit {title.commit[:12]}{' with changes' if title.dirty else ''}" if title.commit else "commit unknown"
    return ", ".join(part for part in (title.folder, commit, title.job, title.started_utc[:16].replace("T", " ")) if part)


def why(found: Comparison) -> str:
    """The verdict in one sentence."""
    if found.empty:
        return found.empty
    if found.refused:
        names = sorted({item.field for item in found.refused})
        options = " ".join(f"--allow-mismatch {name}" for name in names)
        return f"The two differ in {', '.join(names)}. To compare them nevertheless: {options}"
    failing = [row for row in found.blocking if found.fails(row)]
    if failing:
        return f"{counted(len(failing), 'row fails', 'rows fail')}: {', '.join(row.name for row in failing[:5])}{' and others' if failing[5:] else ''}."
    if found.blocking:
        return f"{counted(len(found.blocking), 'row is', 'rows are')} open: {', '.join(row.name for row in found.blocking[:5])}{' and others' if found.blocking[5:] else ''}."
    return "No verdict became worse, nothing is missing, and no number is worse by more than its bound."


def _heading(found: Comparison) -> Iterator[str]:
    yield f"base  {titled(found.base)}"
    yield f"head  {titled(found.head)}"
    for item in found.mismatches:
        yield f"{'allowed mismatch' if item.allowed else 'mismatch'}: {item.words}"
    if found.allow_missing:
        yield f"allowed to be missing: {', '.join(found.allow_missing)}"
    yield from (f"note: {text}" for text in found.notes)


def _body(found: Comparison) -> Iterator[str]:
    """Changes of verdict, then numbers, then what is merely unchanged in one line."""
    changed = [row for row in found.rows if row.verdict_changed]
    if changed:
        yield from ("", "Verdicts")
        yield from _rows(found, changed)
    others = [row for row in found.rows if not row.verdict_changed and (row.numbers or row.change not in QUIET)]
    if others:
        yield from ("", "Numbers, where the verdict is the same")
        yield from _rows(found, others)
    quiet = [row.name for row in found.rows if not row.verdict_changed and row not in others]
    if quiet:
        yield ""
        yield textwrap.fill(f"Unchanged: {', '.join(quiet)}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _rows(found: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    change, name = (max(map(len, column)) for column in ([row.change for row in rows], [row.name for row in rows]))
    for row in rows:
        mark = "x" if found.fails(row) else ("?" if row in found.blocking else " ")
        critical = "  (critical)" if row.critical and mark != " " else ""
        yield f" {mark} {row.change:<{change}}  {row.name:<{name}}  {verdicts(row)}{critical}"
        if row.verdict_changed:
            yield textwrap.fill(row.words, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
        yield from _numbers(row.numbers)


def _numbers(numbers: Sequence[Number]) -> Iterator[str]:
    if not numbers:
        return
    name, value = (max(map(len, column)) for column in ([number.name for number in numbers], [values(number) for number in numbers]))
    for number in numbers:
        start = f"      {number.name:<{name}}  {values(number):<{value}}  "
        yield textwrap.fill(number.words, WIDTH, initial_indent=start, subsequent_indent=" " * 10)


def _last(found: Comparison) -> Iterator[str]:
    yield textwrap.fill(why(found), WIDTH, break_on_hyphens=False, break_long_words=False)
    yield summary(found)
    yield f"compare: {found.verdict} (exit {found.exit_code})"

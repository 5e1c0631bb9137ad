"""A comparison as files: JSON for programs, Markdown for a review comment, JUnit for a continuous integration server.

All three say the same as the exit code. JUnit: a failure is what makes it 1, an error what makes it 3, 4 or 5; without either it is 0.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict

from reports.compare_model import Comparison, Row, is_open
from reports.compare_text import summary, titled, values, verdicts, why
from reports.finding import storable

SCHEMA = "rankproof/compare/1"
MARKDOWN_CAP = 60_000  # characters; a comment on GitHub holds 65,536
LONGEST_CELL = 400
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_json(found: Comparison) -> str:
    """Everything, keys sorted: the same comparison gives the same text."""
    whole = {
        "schema": SCHEMA, "verdict": found.verdict, "exit_code": found.exit_code, "why": why(found), "counts": found.counts,
        "base": asdict(found.base), "head": asdict(found.head), "mismatches": [asdict(item) for item in found.mismatches],
        "notes": list(found.notes), "fail_on": list(found.fail_on), "allow_missing": list(found.allow_missing),
        "blocking": [row.name for row in found.blocking], "rows": [{**asdict(row), "fails": found.fails(row)} for row in found.rows],
    }  # fmt: skip
    return json.dumps(storable(whole), sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def as_markdown(found: Comparison, cap: int = MARKDOWN_CAP) -> str:
    """The blocking list first; rows are left out at the end, and counted, where the text would exceed `cap` characters."""
    head = "\n".join(_markdown_head(found)) + "\n"
    lines = [*_markdown_section("Blocking", found.blocking), *_markdown_section("Other changes", _others(found))]
    text, left_out = head, 0
    for line in lines:
        if left_out or len(text) + len(line) + 100 > cap:  # 100: room for the sentence about what was left out
            left_out += line.startswith("| ")
        else:
            text += f"{line}\n"
    return text + (f"\n… and {left_out} more; see the terminal or --json for all.\n" if left_out else "")


def as_junit(found: Comparison) -> str:
    """One test case per criterion and benchmark; where nothing was compared, one per reason."""
    suite = ElementTree.Element("testsuite", name="rankproof compare")
    if found.empty:
        _case(suite, "compare", "measured", "error", "nothing measured", found.empty)
    elif found.refused:
        for item in found.refused:
            _case(suite, "compare.mismatch", f"{item.field} ({item.part})", "error", "incomparable", item.words)
    else:
        for row in found.rows:
            _case(suite, row.backend, row.id, _kind(found, row), row.change, _told(row))
    tags = [child.tag for case in suite for child in case]
    counted = {"tests": len(suite), "failures": tags.count("failure"), "errors": tags.count("error"), "skipped": tags.count("skipped")}
    for name, count in counted.items():
        suite.set(name, str(count))
    whole = ElementTree.Element("testsuites", {name: str(count) for name, count in counted.items()})
    whole.append(suite)
    ElementTree.indent(whole)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(whole, encoding="unicode")}\n'


def _kind(found: Comparison, row: Row) -> str:
    if found.fails(row):
        return "failure"
    if is_open(row):
        return "error"
    return "skipped" if row.change in ("incomparable", "missing") else ""


def _case(suite: ElementTree.Element, group: str, name: str, kind: str, message: str, text: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_legal(group), name=_legal(name))
    if kind:
        ElementTree.SubElement(case, kind, message=_legal(f"{message}: {text}"[:LONGEST_CELL])).text = _legal(text)


def _told(row: Row) -> str:
    numbers = [f"{number.name}: {values(number)}, {number.words}" for number in row.numbers]
    return "\n".join([f"{verdicts(row)}. {row.words}", *numbers])


def _markdown_head(found: Comparison) -> Iterator[str]:
    yield f"## Compare: {found.verdict}"
    yield ""
    yield f"{_cell(why(found))} {summary(found).capitalize()}."
    yield ""
    yield f"- base: {_cell(titled(found.base))}"
    yield f"- head: {_cell(titled(found.head))}"
    yield from (f"- **{'allowed mismatch' if item.allowed else 'mismatch'}**: {_cell(item.words)}" for item in found.mismatches)
    if found.allow_missing:
        yield f"- allowed to be missing: {_cell(', '.join(found.allow_missing))}"
    yield from (f"- note: {_cell(text)}" for text in found.notes)


def _markdown_section(title: str, rows: tuple[Row, ...]) -> Iterator[str]:
    if rows:
        yield from ("", f"### {title}", "", "| change | criterion | verdict | why |", "|---|---|---|---|")
        for row in rows:
            critical = " (critical)" if row.critical else ""
            yield f"| {row.change} | {_cell(row.name)}{critical} | {_cell(verdicts(row))} | {_cell(_told_shortly(row))} |"


def _others(found: Comparison) -> tuple[Row, ...]:
    blocking = set(found.blocking)
    return tuple(row for row in found.rows if row not in blocking and (row.change != "unchanged" or row.verdict_changed or row.numbers))


def _told_shortly(row: Row) -> str:
    telling = [number for number in row.numbers if number.outcome == row.change] or list(row.numbers)
    shown = "; ".join(f"{number.name} {values(number)}" for number in telling)
    return f"{shown}. {row.words}" if shown else row.words


def _cell(text: str) -> str:
    """`text` as one table cell: what a job said may neither end the cell nor become markup, a link or a mention."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST_CELL else line[: LONGEST_CELL - 1] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_{}\[\]()#|!~])", r"\\\1", line)


def _legal(text: str) -> str:
    return NOT_IN_XML.sub("\ufffd", text)

"""The job as it was beside the job as it is: two audits of different jobs, criterion by criterion, on the page of the later one.

`compare` refuses two jobs, rightly: their numbers mean different things, and it guards one job against getting worse. Here it is the claims that are
compared, since they are the same for every job: what each audit said of each, on the same machine at the same world sizes. What was told is kept in
the evidence of the later audit, so that its page stays a rendering of it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.compare_context import mismatches, notes
from reports.compare_find import Side, open_side
from reports.evidence import EvidenceError, set_meta
from reports.verdicts import Ruling, rulings
from reports.wording import quantity

KEY = "before"
MAY_DIFFER = ("job", "criteria")  # another version of a criterion is told in its row
SILENT = ("not_run", "not_applicable")


def before_after(before: Side, after: Side) -> dict[str, Any]:
    """{"before", "after": {job, folder, commit, started_utc}, "rows": [...], "counts": {"failed, now passed": n}, "notes": [...]}, JSON values.

    Raises EvidenceError where machine, world sizes, backend, launcher or numerics differ, or a side measured nothing.
    """
    ids = {entry.id for entry in after.evidence.catalogue}  # which extra runs a criterion asks for depends on what it finds in the job
    for name, side in (("before", before), ("after", after)):
        if not side.measured:
            raise EvidenceError(f"{side.title.folder} measured nothing, so it cannot be the {name}: run its audit first.")
    found = [item for item in mismatches(before.evidence, after.evidence, MAY_DIFFER) if not item.allowed and item.part not in ids]
    if found:
        raise EvidenceError(
            f"the two audits cannot be set side by side, they differ in {'; '.join(item.words for item in found)}: audit both jobs alike."
        )
    was, now = (_by_key(rulings(side.evidence)) for side in (before, after))
    rows = [_row(key, was.get(key), now.get(key)) for key in dict.fromkeys([*now, *was])]
    told = [row for row in rows if {row["was"], row["now"]} - {*SILENT, ""}]
    counts = Counter(f"{_word(row['was'])}, now {_word(row['now'])}" for row in told if row["was"] != row["now"])
    return {
        "before": _title(before), "after": _title(after), "rows": sorted(told, key=_order), "counts": dict(sorted(counts.items())),
        "notes": list(notes(before.evidence, after.evidence)),
    }  # fmt: skip


def keep_before(folder: Path, earlier: Path) -> None:
    """Set the audit in `earlier` beside the one in `folder`, and keep what that told with the latter's evidence. Raises EvidenceError."""
    for one in (earlier, folder):
        if not one.is_dir():
            raise EvidenceError(f"{one} is no directory; give the directory of an audit.")
    before = open_side(earlier)
    set_meta(folder, KEY, before_after(before, open_side(folder)))


def _title(side: Side) -> dict[str, Any]:
    title = side.title
    return {"job": title.job, "folder": os.path.basename(title.folder), "commit": title.commit, "started_utc": title.started_utc}


def _by_key(judged: Sequence[Ruling]) -> dict[tuple[str, str], Ruling]:
    return {(ruling.entry.id, ruling.entry.backend): ruling for ruling in judged}


def _row(key: tuple[str, str], was: Ruling | None, now: Ruling | None) -> dict[str, Any]:
    claim = next(ruling.entry.claim for ruling in (now, was) if ruling is not None)
    versions = [ruling.entry.version for ruling in (was, now) if ruling is not None]
    return {
        "id": key[0], "backend": key[1], "claim": claim, "was": was.verdict if was else "", "now": now.verdict if now else "",
        "said_was": _said(was), "said_now": _said(now), "value_was": _value(was), "value_now": _value(now), "same_version": len(set(versions)) == 1,
    }  # fmt: skip


def _said(ruling: Ruling | None) -> str:
    if ruling is None:
        return "It was not in the catalogue."
    return ruling.as_is.finding.explanation if ruling.as_is else ruling.reason


def _value(ruling: Ruling | None) -> str:
    found = ruling.as_is.finding if ruling and ruling.as_is else None
    return "" if found is None or found.value is None else quantity(found.value, found.unit)


def _order(row: Mapping[str, Any]) -> tuple[int, bool, str, str]:
    """What was mended first, then what became worse, then what stayed; the areas keep together by name."""
    changed = row["was"] != row["now"]
    mended = changed and row["now"] == "passed"
    return (0 if mended else 1 if changed else 2, row["was"] != "failed", row["id"], row["backend"])


def _word(verdict: str) -> str:
    return verdict.replace("_", " ") or "absent"

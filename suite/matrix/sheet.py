"""The detection matrix as a page: fault by criterion, what each criterion said, and what the clean twins set off."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from suite.matrix.entries import Entry
from suite.matrix.trial import Row, cell

MARKS = {"found": "**found**", "wrong cause": "wrong cause", "missed": "MISSED", "undecided": "?", "also found": "x", "quiet": "·"}
NOT_RUN = "not run"


def outcome_of(entry: Entry, row: Row) -> str:
    """found, wrong cause, missed or undecided: what the criterion that has to find this fault said; not run where it said nothing."""
    words = [cell(entry, said) for said in row.broken if said.criterion == entry.criterion]
    return words[0] if words else NOT_RUN


def alarms(row: Row) -> list[tuple[int, str, str]]:
    """Every rejection of the clean twin: seed, criterion, explanation."""
    return [
        (seed, said.criterion, said.explanation) for seed, every in enumerate(row.clean) for said in every if said.outcome == "rejected"
    ]


def undecided_on_clean(entry: Entry, row: Row) -> list[tuple[int, str, str]]:
    """Where the criterion that finds the fault could not tell that the clean twin is free of it: seed, outcome, explanation."""
    return [
        (seed, said.outcome, said.explanation)
        for seed, every in enumerate(row.clean)
        for said in every
        if said.criterion == entry.criterion and said.outcome in {"inconclusive", "crashed"}
    ]


def problems(entry: Entry, row: Row) -> list[str]:
    """What is not as it has to be with an entry, one line each; empty where the fault is found and its clean twin passes."""
    found = outcome_of(entry, row)
    said = [one.explanation for one in row.broken if one.criterion == entry.criterion]
    lines = [] if found == "found" else [f"{found} by {entry.criterion}: {said[0] if said else 'no such criterion, or a timed one'}"]
    lines += [f"false alarm of {name} on the clean twin, seed {seed}: {why}" for seed, name, why in alarms(row)]
    return lines + [
        f"clean twin {outcome} for {entry.criterion}, seed {seed}: {why}" for seed, outcome, why in undecided_on_clean(entry, row)
    ]


def page(entries: Sequence[Entry], rows: Mapping[str, Row]) -> str:
    """The whole page in Markdown; a pure function of the catalogue and the stored rows."""
    parts = [_HEAD, _summary(entries, rows), _LEGEND]
    for family in dict.fromkeys(entry.family for entry in entries):
        parts += [f"## {family}\n", _table([entry for entry in entries if entry.family == family], rows)]
    parts.append(_open_ends(entries, rows))
    return "\n".join(parts)


_HEAD = """# Detection matrix

Every fault of the catalogue (`workloads/broken/catalogue.toml`) through the criteria that concern its kind, as they are, and the same with its clean
twin: the same program with the mistake put right. Written by `python -m suite matrix`; do not edit.
"""

_LEGEND = """**found**: rejected by the criterion that has to find it, with the expected cause. wrong cause: rejected by that criterion, for another reason. MISSED:
accepted by it. x: rejected by another criterion, too. ·: accepted by another criterion. ?: could not tell. Clean twin: rejections / judgements.
"""


def _summary(entries: Sequence[Entry], rows: Mapping[str, Row]) -> str:
    counted = Counter(outcome_of(entry, rows[entry.name]) if entry.name in rows else NOT_RUN for entry in entries)
    clean = [said for row in rows.values() for every in row.clean for said in every]
    trials = sum(len(row.clean) for row in rows.values())
    rejected, decided = (sum(said.outcome in words for said in clean) for words in ({"rejected"}, {"accepted", "rejected"}))
    stale = [entry.name for entry in entries if entry.name in rows and rows[entry.name].sha256 != _digest(entry)]
    words = ", ".join(f"{counted[word]} {word}" for word in ("found", "wrong cause", "missed", "undecided", NOT_RUN) if counted[word])
    lines = [
        f"{len(entries)} faults: {words}.",
        f"Clean twins: {trials} trials, {decided} judgements, {rejected} false alarms, {len(clean) - decided} undecided.",
    ]
    return "\n".join([*lines, *([f"Changed since they were tried: {', '.join(stale)}."] if stale else [])]) + "\n"


def _digest(entry: Entry) -> str:
    return hashlib.sha256(entry.file.read_bytes()).hexdigest() if entry.file.exists() else ""


def _table(entries: Sequence[Entry], rows: Mapping[str, Row]) -> str:
    applied = {said.criterion for entry in entries if entry.name in rows for said in rows[entry.name].broken}
    names = sorted(applied | {entry.criterion for entry in entries})
    head = ["fault", "what the user did", *(name.split(".", 1)[1].replace("_", " ") for name in names), "clean twin"]
    return (
        "\n".join([_line(head), _line(["---"] * len(head)), *(_line(_cells(entry, rows.get(entry.name), names)) for entry in entries)])
        + "\n"
    )


def _cells(entry: Entry, row: Row | None, names: Iterable[str]) -> list[str]:
    said = {one.criterion: cell(entry, one) for one in row.broken} if row else {}
    marks = [MARKS[said[name]] if name in said else (NOT_RUN if name == entry.criterion else "") for name in names]
    report = f" ({entry.report})" if entry.report else ""
    return [f"`{entry.name}` {entry.bug}", entry.did.replace("|", "\\|") + report, *marks, _clean_cell(row)]


def _clean_cell(row: Row | None) -> str:
    if row is None or not row.clean:
        return NOT_RUN
    judged = [said for every in row.clean for said in every if said.outcome in {"accepted", "rejected"}]
    return f"{len(alarms(row))} / {len(judged)}"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _open_ends(entries: Sequence[Entry], rows: Mapping[str, Row]) -> str:
    """All that is not as it has to be, in full sentences."""
    lines = [f"- `{entry.name}`: {line}" for entry in entries if entry.name in rows for line in problems(entry, rows[entry.name])]
    return "## What is not as it has to be\n\n" + ("\n".join(lines) if lines else "Nothing.") + "\n"

"""The results of the mutation as a page: per module what was killed, and every survivor with the reason why it may live."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUIRED_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test noticed. tests: how many run its lines; function: such as "Class.method()"; what: before -> after."""

    line: int
    function: str
    what: str
    tests: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """What became of a module's mutants. sha256: of the source that was mutated; every: each n-th mutant was tried."""

    sha256: str
    mutants: int
    survivors: tuple[Survivor, ...]
    every: int = 1

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Sheet:
        return cls(value["sha256"], value["mutants"], tuple(Survivor(*one) for one in value["survivors"]), value["every"])

    def to_json(self) -> dict[str, Any]:
        survivors = [[one.line, one.function, one.what, one.tests] for one in self.survivors]
        return {"sha256": self.sha256, "mutants": self.mutants, "every": self.every, "survivors": survivors}


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why mutants of a function survive. equivalent: they decide what the original decides, so no test can tell; otherwise one could."""

    module: str
    reason: str
    equivalent: bool
    function: str = ""
    changes: tuple[str, ...] = field(default=())

    def covers(self, module: str, survivor: Survivor) -> bool:
        return module == self.module and self.function in {"", survivor.function} and (not self.changes or survivor.what in self.changes)


def read_excuses(file: Path) -> list[Excuse]:
    """From the tables [[equivalent]] and [[open]]. Raises ValueError for one without a reason."""
    tables = tomllib.loads(file.read_text()) if file.exists() else {}
    found = []
    for kind in ("equivalent", "open"):
        for entry in tables.get(kind, []):
            if not entry.get("reason"):
                raise ValueError(f"{file.name}: an entry of {entry.get('module')} has no reason; say why the mutant survives")
            found.append(
                Excuse(entry["module"], entry["reason"], kind == "equivalent", entry.get("function", ""), tuple(entry.get("changes", ())))
            )
    return found


@dataclass(frozen=True, slots=True)
class Count:
    """mutants = killed + equivalent + survived."""

    mutants: int
    killed: int
    equivalent: int
    survived: int

    @property
    def share(self) -> float:
        """Of the mutants that a test can tell from the original, those that one does tell."""
        return self.killed / max(self.mutants - self.equivalent, 1)


def counted(sheets: Mapping[str, Sheet], excuses: Sequence[Excuse]) -> Count:
    """All mutants of these modules, counted."""
    mutants = sum(sheet.mutants for sheet in sheets.values())
    lives = [(module, one) for module, sheet in sheets.items() for one in sheet.survivors]
    equivalent = sum(any(excuse.equivalent and excuse.covers(*one) for excuse in excuses) for one in lives)
    return Count(mutants, mutants - len(lives), equivalent, len(lives) - equivalent)


def page(sheets: Mapping[str, Sheet], excuses: Sequence[Excuse], changed: Iterable[str], missing: Iterable[str] = ()) -> str:
    """The whole page in Markdown: a pure function of the results, of the reasons, and of which modules changed since they were mutated, or never were."""
    total = counted(sheets, excuses)
    lines = [_HEAD, _said(total), ""]
    for every in sorted({sheet.every for sheet in sheets.values() if sheet.every > 1}):
        names = [name for name, sheet in sheets.items() if sheet.every == every]
        lines += [f"Of {len(names)} modules only each {every}. mutant was tried, spread over the whole module: {', '.join(names)}.", ""]
    if never := sorted(missing):
        lines += [f"Not mutated yet: {', '.join(never)}.", ""]
    if stale := sorted(changed):
        lines += [f"Changed since they were mutated: {', '.join(stale)}.", ""]
    lines += ["| room | mutants | killed | equivalent | survived | killed of those that can be told |", "|---|---:|---:|---:|---:|---:|"]
    lines += [_row(room, counted(_of(sheets, room), excuses)) for room in dict.fromkeys(name.split("/")[0] for name in sheets)]
    lines += [
        "",
        "| module | mutants | killed | equivalent | survived | killed of those that can be told |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(f"`{name}`", counted({name: sheet}, excuses)) for name, sheet in sheets.items()]
    lines += ["", "## Survivors that decide what the original decides", "", *_listed(sheets, excuses, equivalent=True)]
    lines += ["", "## Survivors that a test could tell", "", *_listed(sheets, excuses, equivalent=False)]
    return "\n".join(lines) + "\n"


_HEAD = """# Mutation of the judges

Every judge, and what may be concluded from them, is broken in small ways, one at a time: comparisons flipped, and/or swapped, negations dropped, guards
taken away or made certain, arithmetic turned, numbers and thresholds moved, min/max and any/all swapped, sequences reversed, two arguments exchanged,
slices and ranges one shorter, the accepted flag denied. A mutant is killed when one of the module's own tests fails. What only shapes words is not
mutated, by rule (`suite/selftest/mutants/operators.py`). The tests that are asked start no rank and take at most a second each.

`python -m suite.selftest.mutants [ROOM|MODULE ...]` mutates (some of) it again and writes this page; do not edit it. Exit code 1 below 95 %. The
reasons below stand in `suite/selftest/mutants/survivors.toml`.
"""


def _said(total: Count) -> str:
    told = total.mutants - total.equivalent
    return (
        f"{total.mutants} mutants: {total.killed} killed, {total.equivalent} equivalent, {total.survived} survived. Of the {told} that can be told "
        f"from the original {total.share:.1%} are killed, of all {total.killed / max(total.mutants, 1):.1%}."
    )


def _of(sheets: Mapping[str, Sheet], room: str) -> dict[str, Sheet]:
    return {name: sheet for name, sheet in sheets.items() if name.split("/")[0] == room}


def _row(name: str, count: Count) -> str:
    return f"| {name} | {count.mutants} | {count.killed} | {count.equivalent} | {count.survived} | {count.share:.1%} |"


def _listed(sheets: Mapping[str, Sheet], excuses: Sequence[Excuse], *, equivalent: bool) -> list[str]:
    """Per module and reason, its survivors; those that no reason covers come with what is known of them."""
    lines: list[str] = []
    for module, sheet in sheets.items():
        by_reason: dict[str, list[Survivor]] = {}
        for one in sheet.survivors:
            excuse = next((excuse for excuse in excuses if excuse.covers(module, one)), None)
            if (excuse is not None and excuse.equivalent) is equivalent:
                reason = excuse.reason if excuse else ("No test asks for it yet." if one.tests else "No quick test runs this line.")
                by_reason.setdefault(reason, []).append(one)
        if by_reason:
            lines += [f"### `{module}`", ""]
        for reason, every in by_reason.items():
            lines += [reason, "", *(f"- line {one.line}, `{one.function or 'module'}`: `{one.what}`" for one in every), ""]
    return lines or ["None."]

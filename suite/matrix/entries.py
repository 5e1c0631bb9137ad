"""The fault catalogue as data: `workloads/broken/catalogue.toml` read and checked, and the two programs that each of its files holds.

A file of the catalogue is the broken program. Where the mistake is, the right lines stand below the wrong ones as a comment:

    loss = mse(net.module(x), y)  # the mistake
    # right: loss = mse(net(x), y)

The clean twin is the same file with the lines marked `# the mistake` left out and those behind `# right: ` put in. So both programs are what a
user would write, with no switch in them, and differ in nothing but the mistake. Mutation testers (mutmut) derive the wrong program from the right
one by rule; here a person wrote both down, as they are found in bug reports.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAVERS = "recovery"
MISTAKE = "  # the mistake"
_RIGHT = re.compile(r"^(\s*)# right: ?(.*)$")
SHARED = "toy.py"
BROKEN = Path(__file__).resolve().parents[2] / "workloads" / "broken"


class CatalogueError(Exception):
    """The catalogue cannot be used; the message is one sentence naming the entry and the fix."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One planted defect: what the user did, and which criterion has to find it with which words.

    `bug` is its number in the list of public reports, `report` the report itself; both are empty for a mistake of the same kind that has none.
    `cause` is a regular expression on the finding's explanation. `criteria` are all that are applied to it (patterns), `job` what its job.toml says beyond
    the defaults.
    """

    name: str
    family: str
    file: Path
    bug: str
    report: str
    did: str
    criterion: str
    cause: str
    criteria: tuple[str, ...]
    world_size: int = 2
    job: Mapping[str, Any] = field(default_factory=dict)


_NEEDED = ("criterion", "cause")
_OF_ENTRY = {*_NEEDED, "bug", "report", "criteria", "world_size", "job"}


def read_catalogue(path: Path, only: Sequence[str] = ()) -> tuple[Entry, ...]:
    """The entries of a catalogue file in its order, or those whose name, family or criterion matches one of the patterns in `only`."""
    tables = tomllib.loads(path.read_text())
    entries = [
        _entry(path, family, name, table, tables.get("families", {}).get(family, {}))
        for family, faults in tables["faults"].items()
        for name, table in faults.items()
    ]
    chosen = [entry for entry in entries if not only or any(_named(entry, pattern) for pattern in only)]
    if only and not chosen:
        raise CatalogueError(f"no entry of {path.name} matches {' or '.join(only)}: give a name, a family or a criterion of it")
    return tuple(chosen)


def _entry(path: Path, family: str, name: str, table: Mapping[str, Any], shared: Mapping[str, Any]) -> Entry:
    if unknown := sorted(set(table) - _OF_ENTRY):
        raise CatalogueError(f"[faults.{family}.{name}] has the unknown key {unknown[0]!r}: use {', '.join(sorted(_OF_ENTRY))}")
    if lacking := [key for key in _NEEDED if key not in table]:
        raise CatalogueError(f"[faults.{family}.{name}] lacks {lacking[0]!r}: add it")
    try:
        re.compile(table["cause"])
    except re.error as error:
        raise CatalogueError(f"[faults.{family}.{name}] cause is no regular expression ({error}): correct {table['cause']!r}") from None
    merged = {
        key: _merged(shared.get("job", {}).get(key), value) for key, value in {**shared.get("job", {}), **table.get("job", {})}.items()
    }
    file = path.parent / family / f"{name}.py"
    criteria = tuple(dict.fromkeys([table["criterion"], *table.get("criteria", shared.get("criteria", []))]))
    return Entry(
        name, family, file, table.get("bug", ""), table.get("report", ""), _said_of(file), table["criterion"], table["cause"], criteria,
        table.get("world_size", 2), merged,
    )  # fmt: skip


def _said_of(file: Path) -> str:
    """What the user did: the first line of the program's docstring; empty where there is no such file (`orphans` names it)."""
    first = re.match(r'"""(.*?)"""', file.read_text()) if file.is_file() else None
    return first.group(1) if first else ""


def _merged(shared: Any, own: Any) -> Any:
    return {**shared, **own} if isinstance(shared, dict) and isinstance(own, dict) else own


def _named(entry: Entry, pattern: str) -> bool:
    names = (entry.name, entry.family, entry.criterion, entry.bug)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def orphans(path: Path, entries: Iterable[Entry]) -> tuple[list[str], list[str]]:
    """Files that no entry names, and entries whose file is not there; both relative to the catalogue's folder, sorted.

    The savers are jobs of their own, with a list of their own (`suite.recovery.savers`).
    """
    there = {str(file.relative_to(path.parent)) for file in path.parent.glob("*/*.py") if file.parent.name != SAVERS}
    named = {str(entry.file.relative_to(path.parent)) for entry in entries}
    return sorted(there - named), sorted(named - there)


def broken_source(text: str) -> str:
    """The broken program: the file without its marks."""
    return "".join(line.replace(MISTAKE, "") for line in text.splitlines(keepends=True) if not _RIGHT.match(line))


def clean_source(text: str) -> str:
    """The clean twin: the marked lines left out, the right ones put in at the indentation of their comment."""
    lines = []
    for line in text.splitlines():
        if MISTAKE in line:
            continue
        right = _RIGHT.match(line)
        lines.append(right.group(1) + right.group(2) if right else line)
    return "\n".join(lines) + "\n"


def write_job(entry: Entry, source: str, folder: Path) -> Path:
    """A job of its own in `folder`: train.py, what it shares with the others, and its job.toml; returns the path of that."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(source)
    for name in (SHARED, *entry.job.get("files", ())):
        (folder / name).write_bytes((BROKEN / name).read_bytes())
    (folder / "job.toml").write_text(job_toml(entry))
    return folder / "job.toml"


def job_toml(entry: Entry) -> str:
    """The job.toml of an entry: the tables of its `job`, with what every entry has."""
    command = "train.py --batch {per_rank_batch} --global-batch {global_batch} --steps {steps} --seed {seed} --out {out}"
    main = {"name": entry.name, "command": command, "global_batch": 16, "steps": 8, "time_limit_s": 30}
    main |= {key: value for key, value in entry.job.items() if not isinstance(value, dict) and key != "files"}
    tables = {"job": main} | {key: value for key, value in entry.job.items() if isinstance(value, dict)}
    return "\n".join(
        f"[{name}]\n" + "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in table.items()) for name, table in tables.items()
    )


def _key(name: str) -> str:
    """A bare key where TOML allows one; a criterion's id has a dot in it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)

"""The stacks to audit and what is known of them: `workloads/stacks/*/*.toml` are the jobs, `workloads/stacks/stacks.toml` says what each finding is.

A page of results that only lists failures leaves the reader to find out whose they are. So every finding that is expected is written down with its cause (a
regular expression on the finding's explanation) and with whom it lies: the library as released, its documented default, or the script. A rejection that
no entry explains is a surprise, an entry that nothing was rejected for is stale; both are printed and make the command fail.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WHOSE = {
    "library": "a defect of the library as released",
    "default": "what the library does by default, as documented",
    "script": "how the script is written",
}


class StacksError(RuntimeError):
    """The list of stacks cannot be used; the message is one sentence naming the entry and the fix."""


@dataclass(frozen=True, slots=True)
class Known:
    """A finding that is expected of one job. `whose` is a key of WHOSE; `proof` says how it was shown without this suite, `report` where it is reported."""

    criterion: str
    cause: str
    whose: str
    words: str
    proof: str
    report: str
    jobs: tuple[str, ...]

    def explains(self, criterion: str, explanation: str) -> bool:
        return fnmatch.fnmatchcase(criterion, self.criterion) and re.search(self.cause, explanation) is not None


@dataclass(frozen=True, slots=True)
class Stack:
    """A job on one stack. `name` is folder/file without .toml; `distributions` are the packages whose versions the results are about."""

    name: str
    job: Path
    title: str
    distributions: tuple[str, ...]
    known: tuple[Known, ...]


_OF_STACK = {"title", "distributions", "finding"}
_OF_FINDING = {"criterion", "cause", "whose", "words"}
_MAY = _OF_FINDING | {"proof", "report", "jobs"}


def read_stacks(folder: Path, only: Sequence[str] = ()) -> tuple[Stack, ...]:
    """The jobs below `folder` in order of their names, or those that match a pattern in `only` (folder, or folder/file). Raises StacksError."""
    tables = tomllib.loads((folder / "stacks.toml").read_text()) if (folder / "stacks.toml").exists() else {}
    jobs = sorted(folder.glob("*/*.toml"), key=lambda path: (path.parent.name, path.name != "job.toml", path.name))
    if homeless := sorted(set(tables) - {path.parent.name for path in jobs}):
        raise StacksError(f"stacks.toml has [{homeless[0]}] but {folder.name}/{homeless[0]} holds no job: correct the name")
    found = [_stack(path, tables.get(path.parent.name, {})) for path in jobs]
    chosen = tuple(one for one in found if not only or any(_named(one, pattern) for pattern in only))
    if not chosen:
        raise StacksError(f"no stack matches {' or '.join(only)}: give one of {', '.join(one.name for one in found)}")
    return chosen


def _stack(path: Path, table: Mapping[str, Any]) -> Stack:
    folder = path.parent.name
    if unknown := sorted(set(table) - _OF_STACK):
        raise StacksError(f"[{folder}] of stacks.toml has the unknown key {unknown[0]!r}: use {', '.join(sorted(_OF_STACK))}")
    known = tuple(_known(folder, row) for row in table.get("finding", ()))
    own = tuple(one for one in known if not one.jobs or path.stem in one.jobs)
    return Stack(f"{folder}/{path.stem}", path, table.get("title", folder), tuple(table.get("distributions", ("torch",))), own)


def _known(folder: str, row: Mapping[str, Any]) -> Known:
    where = f"a finding of [{folder}] in stacks.toml"
    if unknown := sorted(set(row) - _MAY):
        raise StacksError(f"{where} has the unknown key {unknown[0]!r}: use {', '.join(sorted(_MAY))}")
    if lacking := sorted(_OF_FINDING - set(row)):
        raise StacksError(f"{where} lacks {lacking[0]!r}: add it")
    if row["whose"] not in WHOSE:
        raise StacksError(f"{where} has whose = {row['whose']!r}: use one of {', '.join(WHOSE)}")
    try:
        re.compile(row["cause"])
    except re.error as error:
        raise StacksError(f"{where}: cause is no regular expression ({error}): correct {row['cause']!r}") from None
    return Known(
        row["criterion"], row["cause"], row["whose"], row["words"], row.get("proof", ""), row.get("report", ""), tuple(row.get("jobs", ()))
    )


def _named(stack: Stack, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (stack.name, stack.name.partition("/")[0]))

"""Judge: whenever a publish is killed, a reader of the registry finds all of an artifact or nothing of it, and a retry ends as one undisturbed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from fixtures.audit import Program
from reports.evidence import Finding


@dataclass(frozen=True, slots=True)
class Operation:
    """A file operation of the publish, as the undisturbed one did it (n is 1-based)."""

    n: int
    op: str
    path: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A publish that was killed before `operation`, and the publish that was started again on what it left (None: not tried)."""

    operation: Operation
    killed: Program
    retried: Program | None


def operations_of(control: Program) -> tuple[Operation, ...]:
    """Every file operation in the registry, in order."""
    if control.trace is None:
        return ()
    rows = control.trace.files.sort_values("n").to_dict("records")
    return tuple(Operation(int(row["n"]), str(row["op"]), PurePosixPath(str(row["path"])).name) for row in rows)


def advertised(left: Mapping[str, str], published: Sequence[str]) -> dict[str, dict[str, str]]:
    """What a reader may use: entry of the registry -> its files, for entries whose name matches one of the patterns."""
    entries: dict[str, dict[str, str]] = {}
    for name, digest in left.items():
        entry, _, rest = name.partition("/")
        if any(fnmatchcase(entry, pattern) for pattern in published):
            entries.setdefault(entry, {})[rest] = digest
    return entries


def partial(left: Mapping[str, str], whole: Mapping[str, str], published: Sequence[str]) -> str:
    """What of the advertised is not whole, in words; "" where all of it is, or nothing is advertised."""
    now, wanted = advertised(left, published), advertised(whole, published)
    for entry, files in now.items():
        if files != wanted.get(entry):
            return f"{entry} is advertised with {len(files)} of {len(wanted.get(entry, {}))} files whole or with other content"
    ranks = [min((place for place, pattern in enumerate(published) if fnmatchcase(entry, pattern)), default=0) for entry in now]
    expected = set(range(max(ranks, default=-1) + 1))
    if missing := expected - set(ranks):
        return f"{sorted(now)[-1]} is advertised before {published[min(missing)]}, which it speaks of"
    return ""


def publishes_whole(control: Program, again: Program, attempts: Sequence[Attempt], *, published: Sequence[str]) -> Finding:
    """No kill leaves anything partial in view; a second publish changes nothing; a retry after a kill ends like the undisturbed one."""
    operations = operations_of(control)
    if not operations or not advertised(control.left, published):
        return Finding(
            accepted=None, explanation="the undisturbed publish wrote nothing that was seen in the registry; check registry and published"
        )
    if again.exit_code != 0 or again.left != control.left:
        text = f"publishing the same build a second time changed the registry (exit code {again.exit_code}): {again.said()}"
        return Finding(accepted=False, explanation=text)
    rows = [_row(control, attempt, published) for attempt in attempts]
    details: dict[str, Any] = {
        "table": {"columns": ["killed before", "file", "in view", "after a retry"], "rows": [row[:4] for row in rows]},
        "operations": len(operations), "outcomes": dict(sorted(Counter(row[4] for row in rows).items())),
    }  # fmt: skip
    bad = [row for row in rows if row[4] == "bad"]
    if bad:
        text = f"killed before operation {bad[0][0]} ({bad[0][1]}): {bad[0][2] if bad[0][2] not in _SOUND else bad[0][3]} ({len(bad)} of {len(rows)} kills tried end badly)"
        return Finding(accepted=False, value=len(bad), unit="kills", bound=0, explanation=text, samples=len(rows), details=details)
    if unsure := [row for row in rows if row[4] == "unsure"]:
        return Finding(
            accepted=None,
            explanation=f"operation {unsure[0][0]}: the kill never happened, the publish does not repeat itself",
            details=details,
        )
    if len(rows) < len(operations):
        return Finding(accepted=None, explanation=f"only {len(rows)} of {len(operations)} file operations were tried", details=details)
    text = (
        f"killed (SIGKILL) before each of its {len(rows)} file operations, the publish never showed a part: a reader found nothing new {sum(row[2] == 'nothing' for row in rows)} times "
        f"and the whole artifact {sum(row[2] != 'nothing' for row in rows)} times; every retry ended as the undisturbed publish, and a further one changed nothing"
    )
    return Finding(accepted=True, value=0, unit="kills", bound=0, explanation=text, samples=len(rows), details=details)


_SOUND = ("nothing", "whole")


def _row(control: Program, attempt: Attempt, published: Sequence[str]) -> list[Any]:
    """[operation, file, what was in view, what a retry came to, outcome]."""
    operation, killed, retried = attempt.operation, attempt.killed, attempt.retried
    died = killed.trace is not None and killed.trace.fired("kill")
    torn = partial(killed.left, control.left, published)
    seen = torn or ("whole" if advertised(killed.left, published) else "nothing")
    after = "not tried"
    if retried is not None:
        after = (
            "as undisturbed" if retried.exit_code == 0 and retried.left == control.left else f"a retry ended otherwise: {retried.said()}"
        )
    outcome = "unsure" if not died else "bad" if torn or after.startswith("a retry") else seen
    return [f"{operation.n} {operation.op}", operation.path, seen, after, outcome]

"""`python -m suite requirements`: every line that was asked for, what answers it, the command that shows it, and what that command printed.

A table of promises rots: an answer is renamed, a test is deleted, and the row still reads well. Here a row is data (`requirements.toml`): the words that were asked,
the criteria or the command that answer them, and the pattern that the command's output must hold. The table is made by running every command; a row whose
pattern is missing from its output, or whose criterion did not pass in the audit, is printed as NOT SHOWN and the command exits 1. (memote and array-api-tests,
the nearest relatives, list what they cover; neither runs the line that proves it.)
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES = Path(__file__).with_name("requirements.toml")
KEYS = {"source", "asked", "answer", "criteria", "command", "shows", "exit"}
TIME_LIMIT_S = 900


class RequirementsError(RuntimeError):
    """A row that cannot be read: says which, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was asked for. `command` may hold {audit}, {naive} and other names of audits; `shows` are patterns, each must match in its output."""

    source: str
    asked: str
    answer: str
    criteria: tuple[str, ...]
    command: str
    shows: tuple[str, ...]
    exit: int


@dataclass(frozen=True, slots=True)
class Shown:
    """What a command of a line printed: the lines that match its patterns, and whether everything that was promised is there."""

    command: str
    printed: tuple[str, ...]
    held: bool


def lines(path: Path = LINES) -> tuple[Line, ...]:
    """The rows of `path`. Raises RequirementsError, naming the row, for an unknown key or a row that nothing answers."""
    rows = tomllib.loads(path.read_text())["line"]
    return tuple(_line(row, f"{path.name}, row {number}") for number, row in enumerate(rows, 1))


def _line(row: Mapping[str, object], where: str) -> Line:
    if unknown := set(row) - KEYS:
        raise RequirementsError(f"{where}: unknown key {sorted(unknown)[0]!r}; known are {', '.join(sorted(KEYS))}.")
    if not row.get("asked") or not (row.get("criteria") or (row.get("command") and row.get("shows"))):
        raise RequirementsError(f"{where}: a row needs `asked`, and `criteria` or a `command` with the patterns that it `shows`.")
    criteria, shows = (tuple(str(item) for item in _list(row.get(name))) for name in ("criteria", "shows"))
    words = {name: str(row.get(name, "")) for name in ("source", "asked", "answer", "command")}
    return Line(**words, criteria=criteria, shows=shows, exit=int(str(row.get("exit", 0))))


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def commands(line: Line) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """(command, patterns, exit code) of everything that shows `line`: one `explain` for each criterion, then its own command."""
    for id in line.criteria:
        yield f"python -m reports explain {id} {{audit}}", (rf"^{re.escape(id)} \[\w+\] passed", r"^  (value|found) .*"), 0
    if line.command:
        yield line.command, line.shows, line.exit


def show(command: str, patterns: Sequence[str], exit: int, audits: Mapping[str, Path]) -> Shown:
    """Run `command` in the root of the project and keep the first line that each pattern matches. A time limit or another exit code is not shown."""
    argv = [sys.executable if word == "python" else word for word in shlex.split(command.format(**audits))]
    if argv[0] == "pytest":
        argv[:1] = [sys.executable, "-m", "pytest"]
    try:
        ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        return Shown(command, (str(error),), held=False)
    output = ended.stdout + ended.stderr
    found = [re.search(pattern, output, re.MULTILINE) for pattern in patterns]
    printed = [_whole_line(output, match) for match in found if match]
    if ended.returncode != exit:
        printed.append(f"exit {ended.returncode}, expected {exit}: {output.strip().splitlines()[-1] if output.strip() else 'no output'}")
    return Shown(command, tuple(dict.fromkeys(printed)), held=all(found) and ended.returncode == exit)


def _whole_line(output: str, match: re.Match[str]) -> str:
    start = output.rfind("\n", 0, match.start()) + 1
    end = output.find("\n", match.start())
    return " ".join(output[start : end if end >= 0 else len(output)].split())


def shown(asked: Sequence[Line], audits: Mapping[str, Path], workers: int = 2) -> list[list[Shown]]:
    """What every command of every line printed; a command that answers several lines runs once. Progress goes to stderr."""
    wanted = dict.fromkeys(item for line in asked for item in commands(line))
    with ThreadPoolExecutor(workers) as pool:
        results: dict[tuple[str, tuple[str, ...], int], Shown] = {}
        for number, (item, result) in enumerate(
            zip(wanted, pool.map(lambda item: show(item[0], item[1], item[2], audits), wanted), strict=True), 1
        ):
            results[item] = result
            print(f"[{number}/{len(wanted)}] {'shown' if result.held else 'NOT SHOWN'}: {item[0]}", file=sys.stderr)
    return [[results[item] for item in commands(line)] for line in asked]


def table(asked: Sequence[Line], results: Sequence[Sequence[Shown]], heading: str) -> str:
    """The page, in Markdown: one table for each source, one row for each line that was asked."""
    held = sum(all(result.held for result in row) for row in results)
    said = ["# Every line that was asked for", "", heading, "", f"{held} of {len(asked)} lines are shown.", ""]
    for source in dict.fromkeys(line.source for line in asked):
        said += [f"## {source}", "", "| asked | answered by | command | printed |", "| --- | --- | --- | --- |"]
        said += [_row(line, row) for line, row in zip(asked, results, strict=True) if line.source == source] + [""]
    return "\n".join(said)


def _row(line: Line, row: Sequence[Shown]) -> str:
    answer = line.answer or ", ".join(f"`{id}`" for id in line.criteria)
    ran = "<br>".join(f"`{_cell(result.command)}`" for result in row)
    printed = "<br>".join(("" if result.held else "**NOT SHOWN** ") + "<br>".join(map(_cell, result.printed)) for result in row)
    return f"| {_cell(line.asked)} | {_cell(answer)} | {ran} | {printed} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "").replace("}", "").replace("<", "&lt;").strip()


def heading(meta: Mapping[str, object]) -> str:
    """One sentence on what the table was made from. meta: the audit-wide facts of the flights audit (see `reports.evidence`)."""
    identity, world, session = (dict(_mapping(meta.get(name))) for name in ("identity", "world", "session"))
    dirty = " with uncommitted changes" if identity.get("dirty") else ""
    return (
        f"Made by `python -m suite requirements --audit AUDIT --naive NAIVE` from an audit of the flights job at {world.get('world_size')} ranks, "
        f"code {str(identity.get('code_commit', 'unknown'))[:12]}{dirty}, finished {session.get('finished_utc', 'never')}. "
        "`explain` reads a stored record; `pytest` commands run the named tests."
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}

"""`python -m suite history`: unmodified releases that public bug reports name, through the criteria -> docs/history.md.

Every release is installed into a folder of its own, without what it depends on in torch, and stands first on the path of a process of its own:
launcher, ranks and workers all import it, and the torch that the suite runs with. Reproducing a report by its own script shows that a bug is there; here the
criterion is told nothing of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from suite.history.releases import Tried, releases, trials
from suite.matrix.entries import CatalogueError
from suite.matrix.trial import Said

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Told:
    """What the criterion said of a job under a release, and whether that is what it has to say."""

    name: str
    report: str
    release: str
    did: str
    right: bool
    criterion: str
    outcome: str
    explanation: str
    expected: str
    as_expected: bool


def run_history(only: Sequence[str], out: Path, folder: Path) -> int:
    """Try the chosen jobs (by a word of their name or release), renew their rows, write the page; how many are not as expected."""
    chosen = [tried for tried in trials() if not only or any(word in tried.name for word in only)]
    if not chosen:
        raise CatalogueError(f"no job under a release matches {' or '.join(only)}: give a part of a job's or a release's name")
    store = out.with_suffix(".json")
    rows = {row["name"]: row for row in json.loads(store.read_text())} if store.exists() else {}
    wrong = 0
    for tried in chosen:
        told = _told(tried, _said(tried, installed(tried.release, folder)))
        rows[tried.name] = asdict(told)
        wrong += not told.as_expected
        print(
            f"{tried.name}: {told.outcome} by {told.criterion}{'' if told.as_expected else f' (expected: {told.expected}): {told.explanation}'}",
            flush=True,
        )
        known = [rows[one.name] for one in trials() if one.name in rows]
        store.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        out.write_text(page([Told(**row) for row in known]))
    return wrong


def installed(release: str, folder: Path) -> Path:
    """The folder that holds the release, installed there by pip where it is not yet. Raises CatalogueError where pip fails."""
    place = folder / release.replace("==", "-")
    done = place / ".installed"
    if not done.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(place)]
        ended = subprocess.run([*command, *releases()[release]], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if ended.returncode:
            said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise CatalogueError(f"pip could not install {release} ({said}): look at its index, or leave it out with --only")
        done.touch()
    return place


def _said(tried: Tried, place: Path) -> Said:
    """What the criterion says, in a process whose path begins with the release."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)])}
    command = [sys.executable, "-m", "suite.history.trial", tried.entry.name, "right" if tried.right else "as it stands"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if ended.returncode:
        return Said(tried.entry.criterion, "crashed", (ended.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return Said(**json.loads(ended.stdout.splitlines()[-1]))


def _told(tried: Tried, said: Said) -> Told:
    found = said.outcome == "rejected" and bool(re.search(tried.entry.cause, said.explanation))
    return Told(
        tried.name, f"{tried.entry.bug} {tried.entry.report}", tried.release, tried.entry.did, tried.right, said.criterion, said.outcome, said.explanation,
        f"rejected for {tried.entry.cause!r}" if tried.rejected else "accepted", found if tried.rejected else said.outcome == "accepted",
    )  # fmt: skip


def page(rows: Sequence[Told]) -> str:
    """The page in Markdown; a pure function of the rows."""
    lines = [
        "# Releases with a history", "",
        "Unmodified packages that public bug reports name (`workloads/history/catalogue.toml`), each with a small job as its users write it, through the criterion",
        "that has to see the report's symptom. Written by `python -m suite history`; do not edit.", "",
        f"{len(rows)} trials, {sum(row.as_expected for row in rows)} as expected.", "",
        "| job | report | release | program | criterion | verdict | as expected |", "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    lines += [
        f"| `{row.name.split(' under ')[0]}`: {row.did} | {row.report} | {row.release} | {'put right' if row.right else 'as it stands'} | {row.criterion} | "
        f"{row.outcome} | {'yes' if row.as_expected else f'**no**, {row.expected}'} |"
        for row in rows
    ]
    lines += ["", "What was said:", ""]
    lines += [f"- `{row.name}`: {row.explanation}" for row in rows]
    return "\n".join(lines) + "\n"

"""`python -m suite matrix`: every entry of the fault catalogue through the criteria, and the detection matrix that comes of it.

Results are kept as JSON beside the page (`detection_matrix.json`), row by row with the digest of the file they are about, so that `--only` renews
some rows and leaves the others, and the page is a pure rendering of that file.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from fixtures.audit import policy_bounds
from fixtures.criterion import discover
from fixtures.world import open_launcher
from suite.matrix.entries import Entry, read_catalogue
from suite.matrix.sheet import outcome_of, page, problems
from suite.matrix.trial import Row, Surroundings, try_entry

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "workloads" / "broken" / "catalogue.toml"


def run_matrix(
    only: Sequence[str], *, seeds: int, jobs: int, timed: bool, quick: bool, out: Path, scratch: Path | None, more: bool = False
) -> int:
    """Try the chosen entries, `jobs` at a time, renew their rows, write the page; the number of entries with a problem.

    quick: by no other criterion than the one that has to find the fault. more: what the stored rows hold of an unchanged file stays, so that the
    seeds of its clean twin add up over several runs of the command.
    """
    entries = read_catalogue(CATALOGUE, only)
    if quick:
        entries = tuple(replace(entry, criteria=(entry.criterion,)) for entry in entries)
    store = out.with_suffix(".json")
    rows = stored_rows(store)
    known = rows.copy() if more else {}
    for number, (entry, row, seconds) in enumerate(_tried(entries, seeds, jobs, timed, scratch, known), 1):
        rows[entry.name] = row
        write_rows(store, rows)
        print(f"[{number}/{len(entries)}] {entry.family}/{entry.name} {seconds:.1f} s  {outcome_of(entry, row)}", flush=True)
        for line in problems(entry, row):
            print(f"    {line}", flush=True)
    everything = read_catalogue(CATALOGUE)
    kept = {entry.name: rows[entry.name] for entry in everything if entry.name in rows}
    write_rows(store, kept)
    out.write_text(page(everything, kept))
    return sum(bool(problems(entry, rows[entry.name])) for entry in entries)


def stored_rows(store: Path) -> dict[str, Row]:
    """The rows of an earlier run, by entry; empty where there was none."""
    return {name: Row.from_json(row) for name, row in json.loads(store.read_text()).items()} if store.exists() else {}


def write_rows(store: Path, rows: dict[str, Row]) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps({name: row.to_json() for name, row in sorted(rows.items())}, indent=1, sort_keys=True) + "\n")


@contextmanager
def surroundings(folder: Path, *, timed: bool = False) -> Iterator[Surroundings]:
    """A launcher of one's own, the criteria and the policy's bounds; its processes end with the block."""
    criteria = {one.id: one for one in discover(ROOT / "suite")}
    bounds = policy_bounds(ROOT / "reports" / "policy.toml")
    with open_launcher() as launcher:
        yield Surroundings(criteria, folder, launcher, {"cores": os.cpu_count() or 1}, bounds, timed)


def _tried(
    entries: Sequence[Entry], seeds: int, jobs: int, timed: bool, scratch: Path | None, known: Mapping[str, Row]
) -> Iterator[tuple[Entry, Row, float]]:
    folder = Path(tempfile.mkdtemp(prefix="rankproof-matrix-", dir=scratch))
    try:
        if jobs == 1:
            with surroundings(folder, timed=timed) as around:
                yield from (_clocked(entry, around, seeds, known) for entry in entries)
            return
        shares = [entries[first :: 4 * jobs] for first in range(4 * jobs)]  # small shares, so that no worker ends long before the others
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_share, share, folder, seeds, timed, known) for share in shares if share]
            for done in as_completed(waiting):
                yield from done.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _share(entries: Sequence[Entry], folder: Path, seeds: int, timed: bool, known: Mapping[str, Row]) -> list[tuple[Entry, Row, float]]:
    with surroundings(folder, timed=timed) as around:
        return [_clocked(entry, around, seeds, known) for entry in entries]


def _clocked(entry: Entry, around: Surroundings, seeds: int, known: Mapping[str, Row]) -> tuple[Entry, Row, float]:
    began = time.monotonic()
    row = try_entry(entry, around, seeds, known.get(entry.name))
    return entry, row, time.monotonic() - began

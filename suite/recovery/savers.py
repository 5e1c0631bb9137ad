"""`python -m suite.recovery.savers [NAME]... [--out FILE]`: judges every broken saver of workloads/broken/recovery and its sound twin.

Writes the table of docs/crash_states.md. Exits 1 where a broken one passes or a sound one does not.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.audit import Audit
from fixtures.criterion import PartResult, criterion_of, run_part
from fixtures.job import Job, load_job
from fixtures.runs import RunRoom, obtain
from fixtures.world import Launcher, open_launcher
from suite.recovery.test_crash_states import test_crash_states
from suite.recovery.test_two_runs import test_two_runs

SAVERS = Path(__file__).resolve().parents[2] / "workloads" / "broken" / "recovery"
JUDGED_BY = {"late_writer": test_two_runs}
"""What is wrong with a saver only where another run is in its folder; the others are judged by test_crash_states."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one saver. `sound` is what it should be."""

    name: str
    sound: bool
    result: PartResult
    wall_s: float

    @property
    def right(self) -> bool:
        return self.result.outcome == ("accepted" if self.sound else "rejected")


def savers(names: Iterable[str] = ()) -> list[str]:
    """The broken savers, all of them or those named. Raises ValueError for one that there is not."""
    known = sorted(path.parent.name for path in SAVERS.glob("*/job.toml"))
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"no saver is called {unknown[0]!r}: use {', '.join(known)}")
    return sorted(names) or known


def judged(launcher: Launcher, folder: Path, name: str, *, sound: bool, world_size: int = 2) -> Judged:
    """The criterion, as is, on one saver, in real worlds."""
    test = JUDGED_BY.get(name, test_crash_states)
    job = load_job(SAVERS / name / ("clean.toml" if sound else "job.toml"))
    began = time.monotonic()
    declared = criterion_of(test)
    assert declared is not None
    result = run_part(declared, audit_of(launcher, folder, job, world_size, test))
    return Judged(name, sound, result, time.monotonic() - began)


def audit_of(launcher: Launcher, folder: Path, job: Job, world_size: int, test: Callable[[Audit], None] = test_crash_states) -> Audit:
    """An audit of its own for one job, that keeps no evidence."""
    declared = criterion_of(test)
    assert declared is not None
    room = RunRoom(job, folder / job.name, lambda: launcher, lambda run_id, step, steps: None, lambda *kept: None)
    return Audit(job, declared, "as_is", "gloo", "warm", world_size, {"cores": os.cpu_count() or 1}, {}, lambda spec: obtain(room, spec))


def row(one: Judged) -> str:
    """A line of the table."""
    found = one.result.finding
    details: dict[str, Any] = dict(found.details)
    bad = (details.get("bad") or [{}])[0]
    numbers = [sum(cells[column] for cells in details.get("table", {}).get("rows", [])) for column in (3, 4, 6)]
    deaths, losses = (details.get("bad_by_crash", {}).get(kind, 0) for kind in ("process death", "power loss"))
    verdict = {"accepted": "passes", "rejected": "rejected"}.get(one.result.outcome, one.result.outcome)
    blame = f"`{bad['operation']}` (rank {bad['rank']}, {bad['crash']}): {bad['outcome'].replace('_', ' ')}" if bad else ""
    name = f"{one.name}, sound" if one.sound else f"**{one.name}**"
    cells = [name, verdict, blame, str(deaths), str(losses), *map(str, numbers), f"{one.wall_s:.1f}"]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| saver | verdict | operation to blame, and what comes of it | bad states: kill | bad states: power | ways to crash | different folders "
    "| resumes | seconds |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> int:
    """Judge, print the table, write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table to this file, too")
    asked = parser.parse_args()
    done: list[Judged] = []
    with tempfile.TemporaryDirectory() as folder, open_launcher() as launcher:
        print(HEAD)
        for name in savers(asked.names):
            for sound in (False, True):
                done.append(judged(launcher, Path(folder), name, sound=sound, world_size=asked.world_size))
                print(row(done[-1]) + ("" if done[-1].right else f"  <- wrong: {done[-1].result.finding.explanation}"), flush=True)
    if asked.out:
        asked.out.write_text("\n".join([HEAD, *map(row, done)]) + "\n")
    return 0 if all(one.right for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Benchmarks run serially or not at all, and leave a file that says what, where and of which commit."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from fixtures.benchmarks import FILE, write_benchmarks
from fixtures.environment import environment, git_identity
from reports.evidence import load
from suite.bench.clock import CLOCK, measure, replay
from suite.selftest.fabricated import fabricate

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "suite" / "bench"
PAGE = "suite/bench/test_judging.py::test_page"


class Stopwatch:
    """Stands for pytest-benchmark's fixture: times calls by the clock that it is given."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def pedantic(self, function: Callable[[], None], rounds: int, warmup_rounds: int = 0) -> None:
        for _ in range(warmup_rounds + rounds):
            began = CLOCK()
            function()
            self.seconds.append(CLOCK() - began)
        self.seconds = self.seconds[warmup_rounds:]


def pytest_on(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "bench", *words]
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }  # not the worker of the session around it
    return subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=300, check=False)


def test_the_clock_moves_by_what_the_ranks_measured() -> None:
    taken = iter([9.0, 0.25, 0.5])
    measured, replayed = Stopwatch(), Stopwatch()
    measure(measured, lambda: next(taken), rounds=2)
    assert measured.seconds == [0.25, 0.5], "the warm-up is left out"
    replay(replayed, [0.125, 2.0])
    assert replayed.seconds == [0.125, 2.0]


def test_every_benchmark_is_left_out_unless_asked_for() -> None:
    files = sorted(BENCH.glob("test_*.py"))
    assert len(files) >= 5
    for file in files:
        assert "\npytestmark = pytest.mark.bench\n" in file.read_text(), f"{file} lacks the mark bench"


def test_under_xdist_a_benchmark_is_a_usage_error() -> None:
    done = pytest_on("-n", "1", PAGE)
    assert done.returncode == 4, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert f"ERROR: benchmarks need the machine to themselves, and {PAGE} was collected by an xdist worker: leave out -n" in said


def test_what_was_measured_is_kept_with_its_machine_and_commit(tmp_path: Path) -> None:
    folder = fabricate(tmp_path / "audit")
    done = pytest_on("--audit-dir", str(folder), PAGE)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = json.loads((folder / FILE).read_text())
    (measured,) = stored["benchmarks"]
    assert measured["fullname"] == PAGE
    assert len(measured["stats"]["data"]) == measured["stats"]["rounds"] == 8
    code = git_identity(ROOT)
    assert stored["identity"]["suite_commit"] == code["commit"]
    assert stored["commit_info"]["id"] == (code["commit"] or "unversioned")
    assert stored["environment"]["cores"] == environment()["cores"] == stored["machine_info"]["cpu"]["count"]
    assert load(folder).records, "the audit that was there is kept"


def test_the_evidence_vouches_for_the_file(tmp_path: Path) -> None:
    folder = fabricate(tmp_path / "audit")
    document: dict[str, Any] = {"benchmarks": [], "identity": {"suite_commit": "abc"}, "environment": {"cores": 2}}
    write_benchmarks(folder / FILE, document)
    write_benchmarks(folder / FILE, document)
    with closing(sqlite3.connect(folder / "evidence.sqlite")) as store:
        ((name, size, data),) = store.execute("SELECT name, bytes, data FROM artifacts").fetchall()
    assert (name, size) == (FILE, (folder / FILE).stat().st_size)
    assert json.loads(data)["identity"] == {"suite_commit": "abc"}
    write_benchmarks(tmp_path / "none" / FILE, document)
    assert [path.name for path in (tmp_path / "none").iterdir()] == [FILE]

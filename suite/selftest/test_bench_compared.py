"""Benchmarks kept by real sessions of pytest-benchmark and compared: the same code, code that is a fifth slower, and a benchmark that was renamed.

Both sides are timed in one process, taking turns (A B B A), in CPU time of the thread, so that what else the machine does falls on both alike. What is
expected of `compare` follows from those measurements, never from a time that somebody hoped for.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.benchmarks import FILE
from fixtures.plugin import ROOT
from reports.__main__ import main
from reports.statistics import Interval, ratio_interval

PAIRS = 60
BLOCKS = 10
PLANTED = 1.2
BENCHMARK = """
import json
from pathlib import Path

import pytest

from suite.bench.clock import by_the_ranks, replay

pytestmark = pytest.mark.bench


@by_the_ranks
def test_{name}(benchmark):
    replay(benchmark, json.loads(Path(r"{times}").read_text()))
"""


def work(blocks: int) -> float:
    """Seconds of this thread's CPU time for digesting so many blocks of 64 KiB."""
    block = b"x" * 65_536
    began = time.thread_time()
    for _ in range(blocks):
        hashlib.sha256(block).digest()
    return time.thread_time() - began


def in_turns(first: int, second: int) -> tuple[list[float], list[float]]:
    """The two amounts of work, timed A B B A A B ... after a warm-up."""
    work(first + second)
    base, head = [], []
    for pair in range(PAIRS):
        if pair % 2 == 0:
            base.append(work(first))
            head.append(work(second))
        else:
            head.append(work(second))
            base.append(work(first))
    return base, head


def kept(folder: Path, seconds: list[float], name: str = "digest") -> Path:
    """The audit directory in which a session of `pytest -m bench` kept these rounds; all sides are measured by one file of the same name."""
    times, file = folder.with_name(f"{folder.name}.json"), folder.parent / "test_bench_planted.py"
    times.write_text(json.dumps(seconds))
    file.write_text(BENCHMARK.format(name=name, times=times))
    command = [sys.executable, "-m", "pytest", "-q", "-m", "bench", "-c", "pyproject.toml", "--rootdir", str(ROOT)]
    plugins = ["-p", "no:cacheprovider", "-p", "fixtures.plugin", "-p", "fixtures.benchmarks"]
    done = subprocess.run(
        [*command, *plugins, "--audit-dir", str(folder), str(file)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((folder / FILE).read_text())["benchmarks"][0]["stats"]["data"]) == len(seconds)
    return folder


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Interval]:
    """Base, the same work again, a fifth more work, and by how much that was really slower, from pairs."""
    folder = tmp_path_factory.mktemp("benches")
    base, same = in_turns(BLOCKS, BLOCKS)
    control, slow = in_turns(BLOCKS, round(BLOCKS * PLANTED))
    return kept(folder / "base", base), kept(folder / "same", same), kept(folder / "slow", slow), ratio_interval(control, slow, level=0.99)


def test_the_same_code_is_accepted_or_undecided_and_never_a_regression(sides: tuple[Path, Path, Path, Interval]) -> None:
    base, same, _, _ = sides

    assert main(["compare", str(base), str(same)]) in (0, 4)
    assert main(["compare", str(base), str(base)]) in (0, 4)


def test_a_fifth_more_work_is_a_regression(sides: tuple[Path, Path, Path, Interval], capsys: pytest.CaptureFixture[str]) -> None:
    base, _, slow, slower = sides
    code = main(["compare", str(base), str(slow)])
    told = capsys.readouterr().out

    assert slower.estimate > 1.1, "the planted slowdown was not there, so nothing was tried"
    assert code in (1, 4), told
    if code == 4:
        assert "undecided" in told, "on a machine this restless the repeats do not decide, and compare says so"
    else:
        assert "x regressed" in told


def test_a_renamed_benchmark_fails_however_fast_it_is(sides: tuple[Path, Path, Path, Interval], capsys: pytest.CaptureFixture[str]) -> None:
    base = sides[0]
    renamed = kept(base.parent / "renamed", [1e-9] * 20, name="digest_of_all")
    name = json.loads((base / FILE).read_text())["benchmarks"][0]["fullname"]

    assert main(["compare", str(base), str(renamed)]) == 1
    assert "x missing" in capsys.readouterr().out
    assert main(["compare", str(base), str(renamed), "--allow-missing", name]) == 0


def test_every_benchmark_that_the_gate_promises_is_there() -> None:
    """Launch, step, all-reduce at several sizes, save, restore, what the probe costs, judging."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "bench", "--collect-only", "-p", "no:cacheprovider", "suite/bench"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True).stdout
    for name in (
        "test_launch[1]", "test_launch[2]", "test_flights_step[1]", "test_flights_step[2]", "test_all_reduce[4]", "test_all_reduce[64]", "test_all_reduce[1024]",
        "test_all_reduce[25600]", "test_checkpoint[200MB-save]", "test_checkpoint[200MB-restore]", "test_probe[off]", "test_probe[timing]", "test_probe[default]", "test_probe[full]",
        "test_judge", "test_page",
    ):  # fmt: skip
        assert f"::{name}\n" in listed, f"{name} is gone from suite/bench; compare would call it missing"

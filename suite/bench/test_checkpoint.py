"""What saving and restoring cost, beside the same bytes written and synced with nothing around them: the disk's own share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.statistics import ratio_interval
from suite.bench.clock import by_the_ranks, replay
from suite.bench.conftest import RunRanks

pytestmark = pytest.mark.bench
MEBIBYTES, REPEATS = 48, 7


@pytest.fixture(scope="module")
def times(run_ranks: RunRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Seconds of the rank that writes, by what it did; the first of each, a warm-up, is left out."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    found: dict[str, Any] = run_ranks("save.py", folder, MEBIBYTES, REPEATS, ranks=2)[0]
    return {name: value[1:] if isinstance(value, list) else value for name, value in found.items()}


@by_the_ranks
@pytest.mark.parametrize("what", ["save", "restore", "raw"])
def test_checkpoint(benchmark: Any, times: dict[str, Any], what: str) -> None:
    """workloads/checkpoint.py on two ranks, files in the page cache; raw is one rank's plain writes and syncs."""
    ratio = ratio_interval(times["raw"], times[what])
    benchmark.extra_info.update(bytes=times["bytes"], over_raw={"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high})
    if what != "raw":
        words = f"{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times the raw write and sync"
        benchmark.extra_info["said"] = f"{what} of {times['bytes'] / 2**20:.0f} MiB takes {words}"
    assert len(times[what]) == REPEATS - 1
    replay(benchmark, times[what])

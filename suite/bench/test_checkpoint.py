"""What saving and restoring cost, beside torch.distributed.checkpoint and beside the same bytes written, synced and read with nothing around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.statistics import ratio_interval
from suite.bench.clock import by_the_ranks, replay
from suite.bench.conftest import RunRanks

pytestmark = pytest.mark.bench
REPEATS = {200: 10, 1000: 7}  # by megabytes; the first is a warm-up, the others give each a turn in every position
BESIDE = {
    "save": ("raw_write", "dcp_save"), "stall": ("raw_write", "dcp_save"), "restore": ("raw_read", "dcp_restore"),
    "dcp_save": ("raw_write",), "dcp_restore": ("raw_read",), "raw_write": (), "raw_read": (),
}  # fmt: skip
"""By what is timed: what it is set beside."""


@pytest.fixture(scope="module", params=sorted(REPEATS), ids=lambda megabytes: f"{megabytes}MB")
def times(request: pytest.FixtureRequest, run_ranks: RunRanks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Seconds of the rank that publishes, by what it did; the first of each, a warm-up, is left out."""
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    found: dict[str, Any] = run_ranks("save.py", folder, request.param, REPEATS[request.param], ranks=2)[0]
    return {name: value[1:] if isinstance(value, list) else value for name, value in found.items()}


@by_the_ranks
@pytest.mark.parametrize("what", list(BESIDE))
def test_checkpoint(benchmark: Any, times: dict[str, Any], what: str) -> None:
    """workloads/checkpoint.py on two ranks: save until it is durable, the stall of training, and restore from a cold page cache."""
    benchmark.extra_info.update(bytes=times["bytes"])
    said = []
    for other in BESIDE[what]:
        ratio = ratio_interval(times[other], times[what])
        benchmark.extra_info[f"over_{other}"] = {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high}
        said.append(f"{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times {other.replace('_', ' ')}")
    if said:
        benchmark.extra_info["said"] = f"{what} of {times['bytes'] / 1e6:.0f} MB takes {', '.join(said)}"
    assert times[what]
    replay(benchmark, times[what])

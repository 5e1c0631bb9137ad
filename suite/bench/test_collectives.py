"""What an all-reduce of two ranks takes on gloo, from what only costs a message to what fills a bucket."""

from __future__ import annotations

from typing import Any

import pytest

from suite.bench.clock import by_the_ranks, measure
from suite.bench.conftest import RunRanks

pytestmark = pytest.mark.bench


@by_the_ranks
@pytest.mark.parametrize("kibibytes", [4, 64, 1024, 25 * 1024])  # DDP's buckets are 1 MiB first and 25 MiB then
def test_all_reduce(benchmark: Any, run_ranks: RunRanks, kibibytes: int) -> None:
    """One all-reduce: one world a round, the median over its repeats of the slower rank."""
    repeats = 200 if kibibytes <= 64 else 20
    benchmark.extra_info["bytes"] = kibibytes << 10
    measure(benchmark, lambda: max(run_ranks("reduce.py", kibibytes << 10, repeats)), rounds=6)
    if benchmark.enabled:
        benchmark.extra_info["mebibytes_per_s"] = (kibibytes / 1024) / benchmark.stats["median"]

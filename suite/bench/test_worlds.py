"""What it costs to have a world, and a step of the flights job in one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fixtures.audit import RunSpec
from fixtures.runs import RunRoom, obtain
from fixtures.trace import load_trace
from suite.bench.clock import by_the_ranks, measure
from suite.bench.conftest import RunRanks
from suite.efficiency.timing import step_ms, too_short

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("ranks", [1, 2])
def test_launch(benchmark: Any, run_ranks: RunRanks, ranks: int) -> None:
    """A warm world from the request to the last rank's exit; the ranks make a group, one all-reduce, and end."""
    said = benchmark.pedantic(run_ranks, args=("begin.py",), kwargs={"ranks": ranks}, rounds=12, warmup_rounds=1)
    assert len(said) == ranks


@by_the_ranks
@pytest.mark.parametrize("ranks", [1, 2])
def test_flights_step(benchmark: Any, room: RunRoom, ranks: int) -> None:
    """An optimizer step of the flights job: one run a round, the median over its steps of the slowest rank."""
    repeats = itertools.count()

    def step_s() -> float:
        spec = RunSpec(
            world_size=ranks, backend="gloo", launcher="warm", steps=room.job.steps, seed=room.job.seed, level="timing", timed=True, repeat=next(repeats)
        )  # fmt: skip
        trace = load_trace(obtain(room, spec))
        assert not trace.crashed, f"the run ended badly; see {room.traces / spec.run_id}"
        assert too_short(trace) == ""
        return step_ms(trace) / 1000.0

    measure(benchmark, step_s, rounds=6)

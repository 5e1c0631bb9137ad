"""What the probe costs a step, beside what the same comparison says where there is nothing to find."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from reports.statistics import Interval, ratio_interval
from suite.bench.clock import by_the_ranks, replay
from suite.bench.conftest import RunRanks

pytestmark = pytest.mark.bench
STEPS, PAIRS = 16, 6
LEVELS = {"off": None, "off_again": None, "timing": "timing", "default": "default", "full": "full"}
"""off_again is off once more: how far it is from off is what this machine's noise looks like."""


@pytest.fixture(scope="module")
def step_s(run_ranks: RunRanks) -> dict[str, list[float]]:
    """Seconds of a step by level, the levels taking turns forwards and backwards so that a drift falls on all alike."""
    run_ranks("steps.py", STEPS)
    found: dict[str, list[float]] = {name: [] for name in LEVELS}
    for pair in range(PAIRS):
        for name in list(LEVELS)[:: 1 if pair % 2 == 0 else -1]:
            found[name].append(max(usual_s(rank["step_s"]) for rank in run_ranks("steps.py", STEPS, level=LEVELS[name])))
    return found


def usual_s(step_s: list[float]) -> float:
    """The median behind the first quarter."""
    return median(step_s[len(step_s) // 4 :])


@by_the_ranks
@pytest.mark.parametrize("level", LEVELS)
def test_probe(benchmark: Any, step_s: dict[str, list[float]], level: str) -> None:
    """A step of a transformer of one million parameters on two ranks, timed by the job itself."""
    over_off, control = ratio_interval(step_s["off"], step_s[level]), ratio_interval(step_s["off"], step_s["off_again"])
    benchmark.extra_info.update(over_off=_told(over_off), control=_told(control))
    if level not in {"off", "off_again"}:
        benchmark.extra_info["said"] = f"probe at level {level}: {_words(over_off)}; control, off against off: {_words(control)}"
    assert len(step_s[level]) == PAIRS
    replay(benchmark, step_s[level])


def _told(ratio: Interval) -> dict[str, float]:
    return {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high}


def _words(ratio: Interval) -> str:
    return f"{ratio.estimate - 1:+.1%} [{ratio.low - 1:+.1%}, {ratio.high - 1:+.1%}]"

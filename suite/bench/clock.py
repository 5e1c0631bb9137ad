"""A clock that stands still but for what the ranks themselves measured.

pytest-benchmark times a function call here; but a step, an all-reduce or a save happens in other processes, inside a run that also starts and ends.
Those time themselves, and the call moves this clock by what they found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(slots=True)
class RankClock:
    """Seconds that ranks have reported so far."""

    now_s: float = 0.0
    __name__: str = "rank_clock"

    def __call__(self) -> float:
        return self.now_s


CLOCK = RankClock()
by_the_ranks = pytest.mark.benchmark(timer=CLOCK)
"""The mark of a benchmark whose seconds come from `measure` or `replay`."""


def measure(benchmark: Any, take: Callable[[], float], rounds: int) -> None:
    """One round is one call of `take`, and lasts the seconds that it returns. The first call, a warm-up, is left out."""

    def one() -> None:
        CLOCK.now_s += take()

    benchmark.pedantic(one, rounds=rounds, warmup_rounds=1)


def replay(benchmark: Any, seconds: Sequence[float]) -> None:
    """The rounds were measured already, one of `seconds` each."""
    left = list(seconds)

    def one() -> None:
        CLOCK.now_s += left.pop(0)

    benchmark.pedantic(one, rounds=len(left))

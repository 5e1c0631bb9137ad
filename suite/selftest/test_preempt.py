"""Ending on request: whichever rank gets the signal, and when, all stop after the same step."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from torch._C._distributed_c10d import HashStore

from workloads.preempt import StopRequest


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def stops(asked: int | None, *, lag: int, ranks: int = 3) -> list[int]:
    """The step after which each rank stops, where rank 1 is asked in step `asked` and every other one is `lag` steps (0 or 1) ahead when it looks."""
    store = HashStore()
    requests = [StopRequest(store) for _ in range(ranks)]
    stopped: dict[int, int] = {}
    for step in range(1, 12):
        order = [rank for rank in range(ranks) if rank != 1]
        for rank in [*order, 1] if lag else [1, *order]:  # those ahead look before the rank that was asked can tell
            if rank == 1 and step == asked:
                requests[1].asked = True
            if rank not in stopped and requests[rank].after(step):
                stopped[rank] = step
        if len(stopped) == ranks:
            break
    return [stopped[rank] for rank in sorted(stopped)]


@pytest.mark.parametrize("lag", [0, 1])
def test_all_ranks_stop_after_the_same_step(lag: int) -> None:
    assert stops(5, lag=lag) == [6, 6, 6]


def test_nobody_stops_unasked() -> None:
    assert stops(None, lag=0) == []


def test_the_signal_asks_instead_of_ending() -> None:
    """In a world of one there is no store to ask."""
    request = StopRequest(None)
    request.listen()
    assert not request.after(1)

    os.kill(os.getpid(), signal.SIGTERM)

    assert request.after(2)

"""Judges of random draws on a grid of small changes: which two ranks, workers or epochs drew alike must be named, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.equivalence.draws import forward_draws, ranks_draw_apart
from suite.equivalence.workers import by_iterator, repeated_draws, repeated_samples, workers_are_distinct
from suite.selftest.findings import accepted, undecided
from suite.selftest.synthetic import make_trace
from suite.selftest.test_judges_equivalence_grid import RANKS, names


@pytest.mark.parametrize("pair", [(0, 1), (0, 3), (1, 2), (2, 3)])
@pytest.mark.parametrize("step", [1, 3, 6])
def test_two_ranks_that_draw_alike(pair: tuple[int, int], step: int) -> None:
    def drawn(rank: int, at: int) -> list[str]:
        return [f"s{pair[0] if rank in pair and at == step else rank}-{at}", f"t{rank}-{at}"]

    trace = make_trace(ranks=RANKS, forward_rng=drawn)
    finding = ranks_draw_apart(make_trace(), [make_trace(ranks=2), trace])

    names(finding, f"4 ranks: ranks {pair[0]} and {pair[1]} draw the same random numbers in the forward of step {step}")
    assert (finding.value, finding.bound, finding.samples) == (1, 0, 36)
    assert forward_draws(trace)[step][pair[1]] == f"s{pair[0]}-{step}"
    still = make_trace(ranks=2, forward_rng=lambda rank, at: ["same", "same"] if at != step else ["one", f"o{rank}"])
    names(ranks_draw_apart(make_trace(), [still]), f"in the forward of step {step}")


def fetch(
    rank: int, worker: int | None, state: str, *, n: int = 1, iterator: int = 1, name: str = "dataset.rng", samples: Any = None, **more: Any
) -> Record:
    return {
        "kind": "fetch", "rank": rank, "iterator": iterator, "worker": worker, "n": n, "before": {"torch": "t", name: state},
        "after": {"torch": "t", name: state + "'"}, "samples": samples, "training": True, "iterable": False, **more,
    }  # fmt: skip


def loading(*fetches: Record, ranks: int = RANKS, workers: int = 3) -> Trace:
    loader = [{"kind": "loader", "rank": rank, "iterator": 1, "workers": workers, "training": True, "step": 1} for rank in range(ranks)]
    return make_trace(ranks=ranks, extra=[*loader, *fetches])


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 3)])
@pytest.mark.parametrize("worker", [None, 0, 2])
def test_two_ranks_that_augment_alike(pair: tuple[int, int], worker: int | None) -> None:
    fetches = [fetch(rank, worker, f"a{pair[0] if rank in pair and n == 2 else rank}-{n}", n=n) for rank in range(RANKS) for n in (1, 2)]
    finding = ranks_draw_apart(make_trace(), [loading(*fetches)])
    whose = "ranks" if worker is None else f"workers {worker} of ranks"
    names(finding, f"{whose} {pair[0]} and {pair[1]} draw the same random numbers from dataset.rng while they load")
    apart = ranks_draw_apart(make_trace(), [loading(*(fetch(rank, worker, f"a{rank}") for rank in range(RANKS)))])
    assert (apart.accepted, apart.value, apart.bound, apart.samples) == (True, 0, 0, 24)
    assert "in data loading (24 forwards)" in apart.explanation
    accepted(
        ranks_draw_apart(make_trace(), [loading(*(fetch(rank, worker, "a", training=False) for rank in range(RANKS)), fetch(0, 1, "q"))])
    )


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_two_workers_that_repeat(pair: tuple[int, int]) -> None:
    one, two = pair
    fetches = [fetch(1, worker, f"a{one if worker in pair else worker}") for worker in range(3)]
    finding = workers_are_distinct([loading(*fetches)])
    names(finding, f"4 ranks, rank 1, iterator 1: workers {one} and {two} draw the same random numbers from dataset.rng")
    assert (finding.value, finding.bound, finding.samples) == (1, 0, 3)
    rows = {worker: ["a", "b", "c", "d"] if worker in pair else [f"{worker}{n}" for n in range(4)] for worker in range(3)}
    for shared in (2, 3, 4):
        own = {**rows, two: rows[one][:shared] + ["u", "v"][: 4 - shared]}
        finding = workers_are_distinct([loading(*(fetch(2, worker, f"s{worker}", samples=own[worker]) for worker in range(3)))])
        assert finding.accepted is (shared == 2)
        if shared > 2:
            names(finding, f"rank 2, iterator 1: worker {two} returns {shared} of its first 4 samples just as worker {one} does")
    few = {**rows, one: ["a", "a", "b", "b"], two: ["a", "b", "a", "b"]}
    accepted(workers_are_distinct([loading(*(fetch(2, worker, f"s{worker}", samples=few[worker]) for worker in range(3)))]))


@pytest.mark.parametrize(("first", "later"), [(1, 2), (1, 3), (2, 3)])
def test_a_worker_that_repeats_an_epoch(first: int, later: int) -> None:
    def state(worker: int, iterator: int) -> str:
        return f"{worker}-{first if worker == 1 and iterator == later else iterator}"

    fetches = [
        fetch(rank, worker, f"{rank}{state(worker, one) if rank else (worker, one)}", iterator=one)
        for rank in (0, 2)
        for worker in (0, 1)
        for one in (1, 2, 3)
    ]
    finding = workers_are_distinct([loading(*fetches)])
    names(finding, f"rank 2: worker 1 draws in iterator {later} what it drew in iterator {first}, from dataset.rng")
    assert finding.samples == 6


def test_fetches_of_workers_in_order() -> None:
    found = by_iterator(loading(fetch(1, 0, "b", n=2), fetch(1, 0, "a", n=1), fetch(0, None, "x"), fetch(1, 1, "c", training=False)))
    assert {place: {worker: [one["n"] for one in every] for worker, every in workers.items()} for place, workers in found.items()} == {
        (1, 1): {0: [1, 2]}
    }
    assert repeated_draws({0: [fetch(0, 0, "a"), fetch(0, 0, "z")], 1: [fetch(0, 1, "b"), fetch(0, 1, "z")]}) == ""
    assert "from b" in repeated_draws({0: [fetch(0, 0, "a", name="b")], 1: [fetch(0, 1, "a", name="b")]})
    assert repeated_samples({0: [fetch(0, 0, "a")], 1: [fetch(0, 1, "b")]}) == ""
    alone = workers_are_distinct([loading(fetch(0, 0, "a"), workers=1)])
    assert alone.absent
    undecided(workers_are_distinct([loading()]), "3 DataLoader workers were started")

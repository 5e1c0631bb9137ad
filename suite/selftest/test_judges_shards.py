"""Judges of sharded parameters, on traces made by hand: torn and overlapping parts, a part that is off, and what ranks hold alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fixtures.trace import Record, Trace
from suite.equivalence.agreement import digests, parameters_agree, shared
from suite.equivalence.draws import ranks_draw_apart
from suite.equivalence.shards import Parts, norm_deviation, parts_agree, sharded, torn
from suite.selftest.findings import accepted, undecided
from suite.selftest.synthetic import make_trace

NAMES = ("layer.weight", "layer.bias")
NORMS = (4.0, 3.0)
Held = Callable[[int, int, int], float]


def even(rank: int, step: int, at: int) -> float:
    """Each of two ranks holds half of the square of tensor `at`'s norm."""
    return float(NORMS[at] / step / 2**0.5)


def uneven(rank: int, step: int, at: int) -> float:
    """Rank 0 holds a third of the square of the first tensor's norm, and three quarters of the second's."""
    first = (1 / 3, 3 / 4)[at]
    return float(NORMS[at] / step * ((1 - first) if rank % 2 else first) ** 0.5)


def placed(rank: int, at: int, parts: int, first: int | None = None, count: int = 2) -> dict[str, Any]:
    """Rows of a tensor of 4 rows that this rank of one mesh of `parts` (or, for 4 ranks in 2 parts, of two replicas) holds."""
    rows = [[2 * (rank % 2) if first is None else first, count]]
    mesh = [[0, 1], [2, 3]] if parts == 4 else list(range(parts))
    kinds = [{"kind": "replicate"}, {"kind": "shard"}] if parts == 4 else [{"kind": "shard"}]
    return {"mesh": mesh, "placements": kinds, "runs": [rows, [[0, 2]]] if at == 0 else [rows]}


def spread_over(
    ranks: int = 2,
    held: Held = even,
    places: Callable[[int, int], dict[str, Any]] | None = None,
    digest: Callable[[int, int], str] | None = None,
    **more: Any,
) -> Trace:
    """A run of a model of which each rank holds two rows of each tensor; 4 ranks hold each part twice."""
    where = places or (lambda rank, at: placed(rank, at, ranks))
    of_part = digest or (lambda rank, step: f"part{rank % 2}-{step}")

    def change(record: Record) -> Record:
        rank = record["rank"]
        if record["kind"] == "model":
            shapes = ([4, 2], [4])
            named = [
                {"name": NAMES[at], "shape": shapes[at], "dtype": "float32", "numel": 8 // (at + 1), "placed": where(rank, at)}
                for at in (0, 1)
            ]
            return {**record, "parameters": named, "groups": [{"layout": "R S(0)" if ranks == 4 else "S(0)", "holds": f"part{rank % 2}"}]}
        if record["kind"] == "start":
            return {**record, "param_digests": [of_part(rank, 0)]}
        if record["kind"] == "step":
            return {
                **record,
                "param_digests": [of_part(rank, record["step"])],
                "grad_norms": [held(rank, record["step"], at) for at in (0, 1)],
            }
        return record

    return make_trace(ranks=ranks, change=change, **more)


def permuted(count: int = 5, noise: float = 1e-7) -> list[Trace]:
    """One-device runs on the same samples in other orders, whose norms differ by a little more each."""
    usual = make_trace()
    orders = {step: [str(one) for one in rows["sample"]][::-1] for step, rows in usual.samples.groupby("step")}
    norms: Any = lambda number: lambda rank, step: [norm / step * (1 + noise * (number + 1)) for norm in NORMS]  # noqa: E731
    return [make_trace(samples=lambda rank, step: orders[step], grad_norms=norms(number)) for number in range(count)]


def judged(trace: Trace, noise: float = 1e-7, count: int = 5) -> Parts:
    return parts_agree(trace, make_trace(), permuted(count, noise))


@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_that_make_up_one_device(ranks: int) -> None:
    trace = spread_over(ranks)
    assert sharded(trace)
    assert not sharded(make_trace(ranks=2))
    assert torn(trace) == ""
    np.testing.assert_allclose(norm_deviation(make_trace(), trace), 0.0, atol=1e-12)
    found = judged(trace)
    assert (found.accepted, found.first, found.steps) == (True, 0, 0)
    assert "one device's norms in every step" in found.text


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [1, 3, 6])
@pytest.mark.parametrize("factor", [2.0, 0.5, 1.001])
def test_the_rank_whose_part_is_off(rank: int, step: int, factor: float) -> None:
    found = judged(spread_over(held=lambda own, made, at: uneven(own, made, at) * (factor if own == rank and made >= step else 1.0)))
    assert (found.accepted, found.first, found.steps) == (False, step, 7 - step)
    assert f"rank {rank}'s part of the parameters differs from one device's from step {step} on, in {7 - step} steps" in found.text
    assert f"{factor:.4g} times what it should be" in found.text


def test_parts_that_no_factor_explains_and_the_edge_of_the_noise() -> None:
    either = judged(spread_over(held=lambda rank, step, at: even(rank, step, at) * (0.5 if rank else 1.0)))
    assert "no single rank's part explains it" in either.text  # half of the one is three quarters of the other
    odd = judged(spread_over(held=lambda rank, step, at: even(rank, step, at) * (1.0 + 0.5 * (rank == at))))
    assert odd.accepted is False
    assert "no single rank's part explains it" in odd.text
    for excess, verdict in ((5e-7, True), (2e-5, False)):
        more: Any = lambda rank, step, at, excess=excess: even(rank, step, at) * (1 + excess)  # noqa: E731
        assert judged(spread_over(held=more)).accepted is verdict
    assert judged(spread_over(), count=2).accepted is None
    assert judged(spread_over(), count=3).accepted is True
    same = parts_agree(spread_over(), make_trace(), [make_trace()] * 5)
    assert same.accepted is None
    assert "cannot be measured" in same.text
    broken = parts_agree(spread_over(), make_trace(grad_norms=[float("nan"), 3.0]), permuted())
    assert broken.accepted is None


@pytest.mark.parametrize(
    ("first", "count", "words"),
    [
        (0, 2, "overlapping parts of layer.weight"),
        (1, 2, "overlapping parts"),
        (3, 1, "together hold 6 of the 8 numbers of layer.weight"),
        (2, 1, "hold 6 of the 8"),
    ],
)
def test_parts_that_tear_or_overlap(first: int, count: int, words: str) -> None:
    trace = spread_over(places=lambda rank, at: placed(rank, at, 2, first if rank else 0, count if rank else 2))
    assert torn(trace).startswith("ranks [0, 1] ")
    assert words in torn(trace)
    assert judged(trace).accepted is False
    assert torn(spread_over(places=lambda rank, at: placed(rank, at, 2, None if at == 0 or rank == 0 else 1))).endswith(
        "parts of layer.bias"
    )


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [2, 5])
def test_settings_that_differ_between_parts(rank: int, step: int) -> None:
    rates = judged(spread_over(lr=lambda own, made: [0.2 if (own, made) == (rank, step) else 0.1]))
    assert rates.accepted is False
    assert f"rank 1's learning rate is {[0.2] if rank else [0.1]} where rank 0's is {[0.1] if rank else [0.2]} in step {step}" in rates.text
    norms = judged(spread_over(clip_norm=lambda own, made: 2.0 if (own, made) == (rank, step) else 1.0))
    assert f"in step {step}, so their parts are not of one model" in norms.text
    assert "rank 1's clip norm is" in norms.text


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [0, 2, 6])
def test_replicas_of_a_part(rank: int, step: int) -> None:
    sound = spread_over(4)
    holdings = shared(sound)
    assert [(dict(one.ranks), one.layout) for one in holdings] == [({0: 0, 2: 0}, "R S(0)"), ({1: 0, 3: 0}, "R S(0)")]
    assert digests(sound, holdings[1])[3] == {1: "part1-3", 3: "part1-3"}
    assert sorted(digests(sound, holdings[0])) == list(range(7))
    fine = parameters_agree([sound])
    accepted(fine)
    assert fine.samples == 14
    assert shared(spread_over(2)) == []
    apart = spread_over(4, digest=lambda own, made: "x" if (own, made) == (rank, step) else f"part{own % 2}-{made}")
    finding = parameters_agree([apart])
    assert finding.accepted is False
    low, high = rank % 2, rank % 2 + 2
    assert f"rank {high}'s parameters differ from rank {low}'s" in finding.explanation
    if step:
        assert f"from step {step} on, in 1 steps (those that both hold alike: R S(0))" in finding.explanation


def _said(parts: Parts, trace: Trace) -> Parts:
    return parts


def test_own_parts_are_judged_apart() -> None:
    undecided(parameters_agree([spread_over()]), "no run of one device was given")
    for verdict, steps in ((True, 0), (False, 3), (False, 0), (None, 0)):
        parts = Parts(verdict, "so it was said", 1, steps)
        finding = parameters_agree([spread_over()], partial(_said, parts))
        assert finding.accepted is verdict
        assert "so it was said" in finding.explanation
        assert finding.value == {True: 0, False: steps or 1, None: None}[verdict]
        assert finding.samples == (None if verdict is None else 1)
    finding = parameters_agree([spread_over(), make_trace(ranks=2)], lambda trace: Parts(True, "fine"))
    assert finding.samples == 7
    assert "2 ranks and 2 ranks: what several ranks hold is equal" in finding.explanation
    flat = make_trace(ranks=2, extra=[{"kind": "not_seen", "rank": 0, "signal": "whole_parameters", "reason": "FSDP1 keeps them flat"}])
    undecided(parameters_agree([flat]), "FSDP1 keeps them flat")
    assert ranks_draw_apart(make_trace(), [spread_over()]).absent


@pytest.mark.parametrize("idle", [(1,), (2,), (1, 3), (0,)])
def test_ranks_that_never_step(idle: tuple[int, ...]) -> None:
    def change(record: Record) -> Record | None:
        return None if record["kind"] == "step" and record["rank"] in idle else record

    why = [{"kind": "not_seen", "rank": idle[0], "signal": "steps", "reason": "3 backward passes and no step"}]
    finding = parameters_agree([make_trace(ranks=4, change=change, extra=why)])
    assert (finding.accepted, finding.value, finding.samples) == (False, None, 0)
    stepping = min(set(range(4)) - set(idle))
    assert f"4 ranks: rank {idle[0]} made no optimizer step while rank {stepping} made 6" in finding.explanation
    assert parameters_agree([make_trace(ranks=4, change=change)]).accepted is None

"""Judges of equivalence on a grid of small changes: one value of one rank in one step is changed, and just that rank and step must be named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from reports.evidence import Finding
from suite.equivalence.agreement import parameters_agree
from suite.equivalence.buffers import buffers_agree
from suite.equivalence.overfit import tiny_set_is_learnt
from suite.equivalence.rates import rates_follow_samples
from suite.equivalence.repeats import run_repeats_itself
from suite.equivalence.scaler import scalers_agree
from suite.equivalence.unused import every_parameter_is_trained, never, trained
from suite.equivalence.usable import named, rounding, size, unusable
from suite.selftest.findings import accepted, rejected, undecided, with_model
from suite.selftest.synthetic import ended_well, make_trace

RANKS, STEPS = 4, 6
PLACES = ((0, 1), (1, 1), (3, 1), (2, 2), (1, 4), (3, 6), (0, 6))
Value = Callable[[int, int], Any]


def at(place: tuple[int, int], value: Any, usual: Any) -> Value:
    """`value` on this rank in this step, `usual` (a value, or of rank and step) elsewhere."""
    return lambda rank, step: value if (rank, step) == place else (usual(rank, step) if callable(usual) else usual)


def without(rank: int, step: int) -> Callable[[Record], Record | None]:
    """A change of make_trace that drops one step record."""
    return lambda record: None if (record["kind"], record["rank"], record.get("step")) == ("step", rank, step) else record


def names(finding: Finding, *words: str) -> None:
    """Rejected, and each of these is named."""
    assert finding.accepted is False, finding.explanation
    assert all(word in finding.explanation for word in words), finding.explanation


def beside(rank: int) -> int:
    """The lowest other rank."""
    return 1 if rank == 0 else 0


@pytest.mark.parametrize("place", PLACES)
def test_one_digest_of_one_rank(place: tuple[int, int]) -> None:
    rank, step = place
    apart = make_trace(ranks=RANKS, param_digest=at(place, "other", lambda rank, step: f"p{step}"))

    finding = parameters_agree([make_trace(ranks=2), apart])

    names(
        finding,
        f"4 ranks: rank {rank}'s parameters differ from rank {beside(rank)}'s from step {step} on, in 1 steps",
        "gradients were equal",
    )
    assert (finding.value, finding.bound, finding.samples, finding.details["first_step"]) == (1, 0, 7, step)


@pytest.mark.parametrize("rank", range(RANKS))
def test_one_rank_from_a_step_on(rank: int) -> None:
    def digest(own: int, step: int) -> str:
        return f"p{step}{own == rank and step >= 3}"

    trace = make_trace(ranks=RANKS, param_digest=digest, grad_norms=lambda own, step: [4.0, 3.0 + (own == rank and step == 3)])
    names(
        parameters_agree([trace]),
        f"rank {rank}'s parameters",
        f"rank {beside(rank)}'s from step 3 on, in 4 steps",
        "another gradient (layer.bias)",
    )
    rates = make_trace(ranks=RANKS, param_digest=digest, lr=lambda own, step: [0.1, 0.3 if own == rank and step >= 3 else 0.2])
    names(parameters_agree([rates]), "its learning rate is 0.3 where", "is 0.2 in parameter group 1, on equal gradients")
    one = make_trace(ranks=RANKS, param_digest=digest, lr=lambda own, step: [0.3 if own == rank and step >= 3 else 0.2])
    assert "group" not in parameters_agree([one]).explanation
    fewer = make_trace(ranks=RANKS, param_digest=digest, lr=lambda own, step: [0.2] * (2 if own == rank else 1))
    names(parameters_agree([fewer]), "its optimizer has 2 parameter groups where rank", "has 1")
    absent = parameters_agree([make_trace(ranks=RANKS, change=without(rank, 4))])
    names(absent, f"rank {rank} made no step 4, while rank {beside(rank)} did")
    other = make_trace(
        ranks=RANKS,
        change=lambda record: {**record, "param_digest": "x"} if record["kind"] == "start" and record["rank"] == rank else record,
    )
    names(parameters_agree([other]), f"rank {rank}'s parameters differ from rank {beside(rank)}'s before the first step")


def test_a_rank_that_makes_fewer_steps_and_two_camps() -> None:
    last = make_trace(ranks=2, param_digest=lambda rank, step: f"{rank if step > 2 else 0}{step}", change=without(1, 6))
    names(
        parameters_agree([last]),
        "rank 1's parameters differ from rank 0's from step 3 on, in 4 steps",
        "it made 5 optimizer steps where rank 0 made 6",
    )
    camps = make_trace(ranks=4, param_digest=lambda rank, step: f"{rank // 2}{step}")
    names(parameters_agree([camps]), "rank 2's parameters differ from rank 0's from step 1 on, in 6 steps")
    every = make_trace(ranks=2, param_digest=lambda rank, step: f"{rank}{step}", grad_norms=lambda rank, step: [4.0 + rank, None])
    assert "another gradient (layer.weight)" in parameters_agree([every]).explanation


def test_equal_parameters_are_counted() -> None:
    finding = parameters_agree([make_trace(ranks=2), make_trace(ranks=4), make_trace()])
    accepted(finding)
    assert (finding.value, finding.bound, finding.samples) == (0, 0, 14)
    assert "2 ranks and 4 ranks" in finding.explanation
    undecided(parameters_agree([make_trace()]), "only one rank")


@pytest.mark.parametrize("place", PLACES)
def test_one_scale_or_skip_of_one_rank(place: tuple[int, int]) -> None:
    rank, step = place
    for trace in (
        make_trace(ranks=RANKS, skipped=at(place, True, False)),
        make_trace(ranks=RANKS, loss_scale=2.0, skipped=at(place, True, False)),
    ):
        finding = scalers_agree([make_trace(ranks=2), trace])
        names(finding, f"4 ranks: rank {rank} skips step {step} and rank {beside(rank)} takes it")
        assert (finding.value, finding.bound, finding.samples, finding.details) == (1, 0, 12, {"step": step})
    named_rank = rank or 1  # scales are compared with rank 0's
    for value, usual, words in ((64.0, 128.0, "by 64"), (None, 128.0, "nan"), (64.0, None, "64")):
        finding = scalers_agree([make_trace(ranks=RANKS, loss_scale=at(place, value, usual))])
        names(finding, f"rank {named_rank} scales its loss by", f"in step {step}, rank 0 by", words)
        assert finding.details == {"step": step}


def test_scales_that_agree_are_counted() -> None:
    some: list[dict[str, Any]] = [
        {"loss_scale": lambda rank, step: None if step == 2 else 8.0},
        {"skipped": lambda rank, step: step in (2, 3)},
    ]
    for scales in some:
        finding = scalers_agree([make_trace(ranks=2), make_trace(ranks=2, **scales)])
        accepted(finding)
        assert (finding.value, finding.bound, finding.samples) == (0, 0, 12)
    once: dict[str, Any] = {"ranks": 2, "ended": ended_well(2, rank1=1), "loss_scale": 8.0}
    undecided(scalers_agree([make_trace(**once)]), "did not end well")
    assert scalers_agree([make_trace(ranks=2)]).absent


def buffered(ranks: int = RANKS, **overrides: Any) -> Trace:
    rows: Any = lambda rank, step: {"all": f"b{step}", "each": ["m", "v", "c", "d"]}  # noqa: E731
    change = with_model(buffers=["norm.running_mean", "norm.running_var", "mask", "more"])
    return make_trace(ranks=ranks, change=change, **{"buffers": rows, **overrides})


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("own", [["x", "v", "c", "d"], ["m", "v", "x", "d"], ["x", "y", "z", "u"], []])
def test_one_buffer_of_one_rank(place: tuple[int, int], own: list[str]) -> None:
    rank, step = place
    usual: Any = lambda rank, step: {"all": f"b{step}", "each": ["m", "v", "c", "d"]}  # noqa: E731
    finding = buffers_agree([buffered(2), buffered(buffers=at(place, {"all": "x", "each": own}, usual))])

    names(finding, f"4 ranks: rank {rank or 1}'s buffers differ from rank 0's when step {step} begins")
    assert (finding.value, finding.bound, finding.samples, finding.details) == (1, 0, 6 + 18, {"step": step})
    assert ("running statistics" in finding.explanation) is (bool(own) and own[0] == "x")


def test_equal_buffers_are_counted_and_evaluations_compared() -> None:
    finding = buffers_agree([buffered(2), buffered(buffer_digest=lambda rank, step: f"{rank if step > 3 else 0}")])
    accepted(finding)
    assert (finding.value, finding.bound, finding.samples) == (0, 0, 24)
    assert "the 4 buffers" in finding.explanation
    assert "behind 3 forwards" in finding.explanation
    unseen = buffered(buffers=lambda rank, step: None if step < 3 else {"all": f"b{step}", "each": []})
    assert buffers_agree([unseen]).samples == 12
    late = [{"kind": "evaluated", "rank": rank, "step": 4, "samples": ["a"], "buffers": f"e{rank == 2}"} for rank in range(4)]
    early = [{**one, "step": 2, "buffers": "e"} for one in late]
    finding = buffers_agree([buffered(extra=late + early)])
    names(finding, "rank 2 evaluates after step 4 with other buffers than rank 0")
    assert finding.details == {"step": 4}
    accepted(buffers_agree([buffered(extra=[{**one, "buffers": None if one["rank"] == 3 else one["buffers"]} for one in late])]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lacking", [0, 1])
def test_one_gradient_that_one_rank_lacks(place: tuple[int, int], lacking: int) -> None:
    rank, step = place
    norms: list[float | None] = [4.0, 3.0]
    norms[lacking] = None
    trace = make_trace(ranks=RANKS, grad_norms=at(place, norms, [4.0, 3.0]))
    name = ("layer.weight", "layer.bias")[lacking]

    finding = every_parameter_is_trained([make_trace(), trace])

    names(finding, f"4 ranks: rank {rank} has no gradient for {name} in step {step} while rank {beside(rank)} has one")
    assert (finding.value, finding.bound, finding.samples) == (1, 0, 6)
    assert never(trace) == []
    only = make_trace(ranks=RANKS, grad_norms=at(place, [4.0, 3.0], norms))
    names(every_parameter_is_trained([only]), f"rank {beside(rank)} has no gradient for {name} in step {step} while rank {rank} has one")


def test_parameters_that_count_as_trained() -> None:
    assert trained(make_trace()) == ["layer.weight", "layer.bias"]
    empty = [
        {"name": name, "shape": [1], "dtype": "float32", "numel": n, "trained": t}
        for name, n, t in (("a", 1, True), ("b", 0, True), ("c", 1, False))
    ]
    trace = make_trace(change=with_model(parameters=empty), grad_norms=[None, None, None])
    assert trained(trace) == ["a"]
    assert never(trace) == ["a"]
    finding = every_parameter_is_trained(
        [trace, make_trace(steps=3, ranks=2, change=with_model(parameters=empty), grad_norms=[None, None, None])]
    )
    names(finding, "a never gets a gradient in 3 steps")
    assert finding.samples == 3
    both = make_trace(ranks=2, grad_norms=[None, None])
    names(
        every_parameter_is_trained([make_trace(), both]),
        "2 ranks: layer.weight, layer.bias never get a gradient, at another world size they do",
    )
    fine = every_parameter_is_trained([make_trace(), make_trace(ranks=2, steps=4)])
    assert (fine.accepted, fine.value, fine.bound, fine.samples) == (True, 0, 0, 4)
    assert "all 2 trained parameters" in fine.explanation


@pytest.mark.parametrize("place", PLACES)
def test_one_rate_of_one_rank(place: tuple[int, int]) -> None:
    rank, step = place
    usual: Any = lambda rank, step: [0.1 / step, 0.2 / step]  # noqa: E731
    for changed in ([0.1 / step, 0.3], [0.3, 0.2 / step], [0.1 / step], [0.1 / step * (1 + 2e-9), 0.2 / step]):
        finding = rates_follow_samples(make_trace(lr=usual), [make_trace(ranks=RANKS, lr=at(place, changed, usual))])
        names(finding, f"4 ranks: rank {rank or 1}'s learning rate is", f"in step {step}, rank 0's")
        assert (finding.value, finding.bound, finding.samples) == (1, 0, 6)
    near = make_trace(ranks=RANKS, lr=at(place, [0.1 / step * (1 + 0.5e-9), 0.2 / step], usual))
    accepted(rates_follow_samples(make_trace(lr=usual, schedule=1), [near]))
    alone = rates_follow_samples(make_trace(lr=at((0, step), [0.7, 0.2 / step], usual)), [make_trace(ranks=2, lr=usual)])
    names(
        alone, f"2 ranks: the learning rate is {0.1 / step:.6g} and {0.2 / step:.6g} in step {step}, one device's 0.7 and {0.2 / step:.6g}"
    )


@pytest.mark.parametrize(
    ("factor", "words"), [(4.0, "scaled with the number"), (2.0, "scaled with the number"), (0.25, ""), (4.0 + 1e-7, ""), (0.5, "")]
)
def test_rates_by_one_factor(factor: float, words: str) -> None:
    alone, ranks = (
        make_trace(lr=lambda rank, step: [0.1 / step, 0.0]),
        make_trace(ranks=4, lr=lambda rank, step: [factor * 0.1 / step, 0.0]),
    )
    finding = rates_follow_samples(alone, [ranks])
    names(finding, f"{factor:.4g} times one device's in every step", words)
    assert ("scaled with" in finding.explanation) is bool(words)


@pytest.mark.parametrize("pace", [1, 2, 3])
def test_rates_by_another_pace(pace: int) -> None:
    def at_pace(pace: int, **more: Any) -> dict[str, Any]:
        return {"lr": lambda rank, step: [0.1 * 0.9 ** (pace * (step - 1))], **more}

    finding = rates_follow_samples(make_trace(steps=12, **at_pace(1)), [make_trace(steps=12, ranks=2, **at_pace(pace))])
    if pace == 1:
        accepted(finding) if not finding.absent else None
        assert (finding.value, finding.bound, finding.samples) == (0, 0, 12)
        assert "(0.0314 to 0.1)" in finding.explanation
        return
    names(finding, "in step 2, one device's 0.09")
    assert ("2 times as fast" in finding.explanation) is (pace == 2)
    seen: dict[str, Any] = {"schedule": lambda rank, step: 3 + pace * step}
    finding = rates_follow_samples(
        make_trace(steps=6, schedule=lambda rank, step: 3 + step, **at_pace(1)), [make_trace(ranks=2, **at_pace(pace), **seen)]
    )
    assert ("stepped once for each rank" in finding.explanation) is (pace == 2)
    micro = make_trace(micro_batches=pace, **at_pace(pace, schedule=lambda rank, step: pace * step))
    names(
        rates_follow_samples(micro, [make_trace(ranks=2, micro_batches=pace, **at_pace(pace, **seen))]),
        f"one device: the schedule advances {pace} steps",
    )


BOUND = rounding("float32")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("factor", [0.99, 1.0, 1.01, math.inf])
def test_one_loss_of_a_repeat(place: tuple[int, int], factor: float) -> None:
    step = place[1]
    off = 2.0 * (1 + BOUND * factor)
    first, second = make_trace(ranks=RANKS, losses=[2.0]), make_trace(ranks=RANKS, losses=at(place, [off], [2.0]))

    finding = run_repeats_itself(first, second)

    assert finding.accepted is ((off - 2.0) / 2.0 <= BOUND)
    assert finding.value == pytest.approx((off - 2.0) / 2.0)
    assert (finding.bound, finding.samples, finding.details) == (BOUND, 6, {"bitwise": False, "step": step})
    assert f"step {step}" in finding.explanation


@pytest.mark.parametrize("place", PLACES)
def test_one_digest_sample_or_start_of_a_repeat(place: tuple[int, int]) -> None:
    rank, step = place
    first = make_trace(ranks=RANKS)
    bits = run_repeats_itself(first, make_trace(ranks=RANKS, param_digest=at(place, "x", lambda rank, step: f"{step:016x}")))
    accepted(bits)
    assert (bits.value, bits.bound, bits.samples, bits.details) == (0.0, BOUND, 6, {"bitwise": False, "step": step})
    other = run_repeats_itself(first, make_trace(ranks=RANKS, samples=at(place, ["s", "t"], lambda rank, step: _own(first, rank, step))))
    names(other, f"4 ranks: the repeat takes other samples from step {step} on")
    assert (other.value, other.bound, other.samples) == (1, 0, 6)
    turned = run_repeats_itself(
        first, make_trace(ranks=RANKS, samples=at(place, _own(first, rank, step)[::-1], lambda rank, step: _own(first, rank, step)))
    )
    names(turned, f"from step {step} on")
    begun = make_trace(
        ranks=RANKS,
        change=lambda record: {**record, "param_digest": "x"} if record["kind"] == "start" and record["rank"] == rank else record,
    )
    names(run_repeats_itself(first, begun), f"the repeat begins from other weights (rank {rank})")
    short = make_trace(ranks=RANKS, change=lambda record: None if record["kind"] == "step" and record["step"] > 4 else record)
    finding = run_repeats_itself(first, short)
    assert finding.accepted is False
    broken = make_trace(losses=at((0, step), [math.nan], [1.0]))
    for one, two in ((broken, make_trace(losses=[1.0])), (make_trace(losses=[1.0]), broken)):
        finding = run_repeats_itself(one, two)
        assert (finding.accepted, finding.value, finding.details["step"]) == (False, math.inf, step)
    accepted(run_repeats_itself(broken, broken))


def _own(trace: Trace, rank: int, step: int) -> list[str]:
    mine = trace.samples.loc[(trace.samples["rank"] == rank) & (trace.samples["step"] == step)]
    return [str(sample) for sample in mine["sample"]]


def test_a_repeat_bit_for_bit() -> None:
    finding = run_repeats_itself(make_trace(ranks=2), make_trace(ranks=2))
    accepted(finding)
    assert (finding.value, finding.bound, finding.samples, finding.details) == (0, 0, 6, {"bitwise": True})


TINY = {"kind": "fault", "rank": 0, "fault": {"kind": "tiny_set"}, "step": 1, "detail": ""}


def losses(first: float, last: float, steps: int = 16) -> Iterator[float]:
    yield first
    yield from (last for _ in range(steps - 1))


def learnt(series: Sequence[float], share: float = 0.25) -> Finding:
    return tiny_set_is_learnt(make_trace(steps=len(series), losses=lambda rank, step: [series[step - 1]], extra=[TINY]), share, 3)


@pytest.mark.parametrize(("last", "verdict"), [(0.5, True), (0.499, True), (0.501, False), (1.9, False), (math.nan, False)])
def test_how_much_of_a_loss_is_left(last: float, verdict: bool) -> None:
    finding = learnt([*losses(2.0, last)])
    assert (finding.accepted, finding.bound, finding.samples) == (verdict, 0.25, 16)
    assert finding.value == (pytest.approx(last / 2.0) if math.isfinite(last) else math.inf)
    assert ("nothing is learnt" in finding.explanation) is not (last / 2.0 <= 0.9)


def test_a_loss_that_still_falls_or_is_too_short() -> None:
    undecided(learnt([2.0 - 0.1 * step for step in range(16)], 0.1), "still falling")
    undecided(learnt([2.0] * 7), "only 7 steps")
    rejected(learnt([2.0] * 8), "nothing is learnt")
    undecided(learnt([0.0] * 8), "the first loss is 0")
    undecided(learnt([-1.0] * 8), "the first loss is -1")
    rejected(learnt([1.0, *[0.5] * 11, *[0.5] * 4]), "it stays there")
    undecided(learnt([1.0, *[0.5] * 11, *[0.49] * 3, 9.0]), "still falling")
    rejected(learnt([1.0, *[3.0] * 11, *[2.0] * 4]), "nothing is learnt")
    rejected(learnt([1.0, *[0.5] * 10, 0.4, *[0.45] * 4]), "it stays there")
    assert learnt([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.9, 0.8, 0.7, 0.6]).value == pytest.approx(0.7 / 8)


def test_what_makes_a_run_unusable() -> None:
    fine = make_trace(ranks=2)
    assert unusable([fine, make_trace()], "loss", "samples", "param_digest") == ""
    assert (size(fine), named(fine), named(make_trace())) == (2, "2 ranks", "one device")
    assert "world size 2 did not end well" in unusable([make_trace(), make_trace(ranks=2, ended=ended_well(2, rank1=3))])
    ended = {**ended_well(2), "ended_by": "deadline", "message": "too long"}
    assert unusable(make_trace(ranks=2, ended=ended)) == "the run at world size 2 was ended by its deadline: too long"
    assert "rank 1 of 2 recorded no optimizer step" in unusable(
        make_trace(ranks=2, change=lambda record: None if (record["kind"], record["rank"]) == ("step", 1) else record)
    )
    assert "no optimizer step was seen at world size 1" in unusable(
        make_trace(change=lambda record: None if record["kind"] == "step" else record)
    )
    error = {"kind": "probe_error", "rank": 0, "where": "step", "error": "boom"}
    assert "the probe itself failed in the run at world size 1" in unusable(make_trace(extra=[error]))
    assert rounding("float64") == pytest.approx(2.0**-26.5)
    assert rounding("unheard") == rounding("float32") == pytest.approx(2.0**-12)

"""The judges of gradients, losses and parameters, on numbers made by hand: what is wrong is named, what is noise is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fixtures.trace import Record, Trace
from suite.equivalence.agreement import parameters_agree
from suite.equivalence.cause import contributions, share_weights, why_gradients_differ
from suite.equivalence.gradient import gradients_agree, noise_of
from suite.equivalence.power import smallest_scale, sweep_steps
from suite.equivalence.trajectory import losses_agree, losses_far_apart, own_randomness
from suite.selftest.synthetic import ended_well, make_trace, sample_of

Gradient = dict[str, NDArray[np.float64]]
STEPS = 12


def rank_share(rank: int) -> Gradient:
    """Half of the global batch's gradient, as rank 0 or 1 of two computes it."""
    rng = np.random.default_rng(rank)
    return {"layer.weight": rng.normal(size=(3, 2)) / 2, "layer.bias": rng.normal(size=3) / 2}


def whole(scales: Sequence[float] = (1.0, 1.0), noise: float = 0.0, seed: int = 0) -> Gradient:
    """The averaged gradient of two ranks, their shares scaled, plus relative noise."""
    rng = np.random.default_rng(seed + 100)
    found = {}
    for name in rank_share(0):
        value = sum(scale * rank_share(rank)[name] for rank, scale in enumerate(scales))
        found[name] = value * (1.0 + noise * rng.normal(size=np.shape(value)))
    return found


def traced(gradients: Mapping[int, Gradient], permute: int = 0, **options: Any) -> Trace:
    """A float64 run that recorded these first gradients by rank; permute > 0 turns the rows of each batch."""

    def exact(record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] == "model":
            return {**record, "parameters": [{**parameter, "dtype": "float64"} for parameter in record["parameters"]]}
        return record

    ranks = len(gradients)
    per_rank = 8 // ranks

    def samples(rank: int, step: int) -> list[str]:
        rows = [sample_of((step - 1) * 8 + rank * per_rank + row) for row in range(per_rank)]
        return rows[permute:] + rows[:permute]

    return make_trace(steps=2, ranks=ranks, gradients=gradients, samples=samples, change=exact, **options)


def permuted() -> list[Trace]:
    return [traced({0: whole(noise=2e-16, seed=seed)}, permute=seed) for seed in range(1, 6)]


def both(gradient: Gradient) -> dict[int, Gradient]:
    return {0: gradient, 1: gradient}


def shares_of(scales: Sequence[float]) -> dict[int, dict[str, NDArray[np.float64]]]:
    """Taking a faulty gradient apart: each rank's part multiplied by 0 in turn."""
    muted = {0: whole((0.0, scales[1])), 1: whole((scales[0], 0.0))}
    return contributions(whole(scales), muted)


@pytest.mark.parametrize("seed", range(20))
def test_rounding_is_accepted(seed: int) -> None:
    finding = gradients_agree(traced({0: whole()}), permuted(), [traced(both(whole(noise=2e-16, seed=50 + seed)))])

    assert finding.accepted is True, finding.explanation
    assert finding.provenance == "measured"
    assert "rounding alone explains" in finding.explanation


@pytest.mark.parametrize("excess", [1e-2, 1e-6, 1e-12, -1e-12])
def test_a_wrongly_weighted_rank_is_rejected_and_named(excess: float) -> None:
    scales = (1.0, 1.0 + excess)
    finding = gradients_agree(traced({0: whole()}), permuted(), [traced(both(whole(scales)))], shares={2: shares_of(scales)})

    assert finding.accepted is False
    if excess == 1e-2:
        assert "2 ranks: rank 1's share of the gradient weighs 1.01 times what it should" in finding.explanation


@pytest.mark.parametrize(
    ("gradient", "words"),
    [
        (lambda: both(whole((2.0, 2.0))), "gradients differ by exactly 2 = world size: summed over the ranks, not averaged"),
        (lambda: both(whole((0.5, 0.5))), "gradients differ by exactly 0.5 = 1 / world size: averaged once too often"),
        (lambda: both(whole((4.0, 4.0))), "gradients differ by exactly 4 = micro-batches per step: accumulated without dividing"),
        (lambda: both(whole((1.5, 1.5))), "all gradients differ from one device's by one factor, 1.5"),
        (lambda: {0: whole((2.0, 0.0)), 1: whole((0.0, 2.0))}, "rank 1's gradient differs from rank 0's in all 2 tensors: they are never averaged"),
        (lambda: {0: whole(), 1: whole((1.5, 1.5))}, "they changed after the reduction"),
        (lambda: {0: whole(), 1: {**whole(), "layer.bias": rank_share(1)["layer.bias"]}}, "in 1 of 2 tensors (layer.bias)"),
        (lambda: both({**whole(), "layer.bias": whole()["layer.bias"] * 2}), "1 of 2 tensors differ from one device's gradient (layer.bias), the others agree"),
        (lambda: both({**whole(), "layer.bias": np.full(3, np.nan)}), "tensor layer.bias deviates most"),
    ],
)  # fmt: skip
def test_the_cause_of_a_wrong_gradient_is_named(gradient: Callable[[], Mapping[int, Gradient]], words: str) -> None:
    together = traced(gradient(), micro_batches=4)
    finding = gradients_agree(traced({0: whole()}), permuted(), [together])

    assert finding.accepted is False
    assert words in finding.explanation


def test_a_missing_rank_is_named() -> None:
    """The average of two ranks to which only rank 0 contributes: muting rank 1 changes nothing."""
    only = whole((1.0, 0.0))
    shares = contributions(only, {0: whole((0.0, 0.0)), 1: only})
    weights, _ = share_weights(whole((1.0, 0.0)), shares)

    assert weights == {0: pytest.approx(1.0), 1: 0.0}
    words = why_gradients_differ(whole((1.0, 0.0)), both({name: value + 0.01 for name, value in only.items()}), 1, 1e-12, shares)
    assert "no single factor explains it" in words or "missing" in words


def test_other_samples_are_blamed_before_the_gradient() -> None:
    other = make_trace(steps=2, ranks=2, gradients=both(whole((1.0, 2.0))), samples=lambda rank, step: [sample_of(700 + step)])
    finding = gradients_agree(traced({0: whole()}), permuted(), [other])

    assert finding.accepted is False
    assert "the first step takes other samples than one device's" in finding.explanation


def test_a_batch_repeated_as_a_whole_is_no_excuse() -> None:
    """Every rank takes the full batch and the reduction takes its buffer in twice: the samples are the same, so the computation is to blame."""
    repeated = make_trace(
        steps=2, ranks=2, gradients=both(whole((2.0, 2.0))), samples=lambda rank, step: [sample_of((step - 1) * 8 + row) for row in range(8)],
        collectives=[["allreduce", 36, 0, 1, "between"], ["allreduce", 36, 2, 3, "between"]],
    )  # fmt: skip
    finding = gradients_agree(traced({0: whole()}), permuted(), [repeated])

    assert (
        "gradients differ by exactly 2 = world size: summed over the ranks, not averaged (the step reduces 2.0 times" in finding.explanation
    )


def test_batch_statistics_are_hinted_at() -> None:
    spoiled = {**whole(), "layer.bias": whole()["layer.bias"] * 1.001}

    def normalised(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "buffers": ["norm.running_mean"]} if record["kind"] == "model" else record

    ours = make_trace(steps=2, ranks=2, gradients=both(spoiled), change=normalised)

    assert "each rank normalises by its own share of the batch" in gradients_agree(traced({0: whole()}), permuted(), [ours]).explanation


def test_the_worst_tensor_is_named_and_tabled() -> None:
    spoiled = {**whole(), "layer.bias": whole()["layer.bias"] * 1.001}
    finding = gradients_agree(traced({0: whole()}), permuted(), [traced(both(spoiled))])

    assert finding.value == pytest.approx(1e-3)
    assert finding.details["worst_tensor"] == "layer.bias"
    assert finding.details["table"]["rows"][0][0] == "layer.bias"


def test_a_tensor_whose_gradient_is_only_rounding_raises_no_alarm() -> None:
    """A bias that a softmax ignores has a gradient of 1e-18: two runs differ by all of it, and that means nothing."""

    def dull(seed: int) -> Gradient:
        return {**whole(), "layer.bias": 1e-18 * np.random.default_rng(seed).normal(size=3)}

    controls = [traced({0: dull(seed)}, permute=seed) for seed in range(1, 6)]
    finding = gradients_agree(traced({0: dull(0)}), controls, [traced(both(dull(9)))])

    assert finding.accepted is True, finding.explanation


def test_own_randomness_cannot_buy_a_wide_bound() -> None:
    controls = [traced({0: whole(noise=1e-3, seed=seed)}, permute=seed) for seed in range(1, 6)]
    finding = gradients_agree(traced({0: whole()}), controls, [traced(both(whole(noise=1e-3, seed=9)))])

    assert finding.accepted is None
    assert "the job draws random numbers of its own" in finding.explanation


def test_without_permuted_runs_only_theory_bounds() -> None:
    unmoved = [traced({0: whole()}) for _ in range(5)]
    noise = noise_of(traced({0: whole()}), unmoved)
    finding = gradients_agree(traced({0: whole()}), unmoved, [traced(both(whole((1.0, 1.0 + 1e-9))))])

    assert (noise.measured, noise.bound) == (False, noise.cap)
    assert (finding.accepted, finding.provenance) == (False, "calculated")


def test_power_is_bracketed_by_runs_on_both_sides() -> None:
    alone, controls = traced({0: whole()}), permuted()

    def run(excess: float) -> Trace:
        return traced(both(whole((1.0, 1.0 + excess))))

    tried = sweep_steps(alone, controls, run)
    text = smallest_scale(alone, controls, {excess: run(excess) for excess in tried})

    assert len(tried) == 3
    assert tried[1] < tried[2] < 1e-13
    assert f"scaled by 1 + {tried[2]:.1g} (2 ranks, float64) would have been caught; {tried[1]:.1g} would not" in text


def losses(seed: int, noise: float) -> Callable[[int, int], list[float]]:
    """A falling loss with noise that grows with the steps."""
    rng = np.random.default_rng(seed)
    drawn = np.abs(rng.normal(1.0, 0.2, STEPS + 1)) * noise * np.exp(np.linspace(0.0, 1.5, STEPS + 1))
    return lambda rank, step: [(2.0 / step) * (1.0 + (drawn[step] if seed else 0.0))]


def lossy(ranks: int = 1, seed: int = 0, noise: float = 1e-7, permute: int = 0, **options: Any) -> Trace:
    def samples(rank: int, step: int) -> list[str]:
        per_rank = 256 // ranks
        rows = [sample_of(((step - 1) * 256 + rank * per_rank + row) % 1024) for row in range(per_rank)]
        return rows[permute:] + rows[:permute]

    return make_trace(steps=STEPS, ranks=ranks, **{"losses": losses(seed, noise), "samples": samples, **options})


def orders(noise: float = 1e-7) -> list[Trace]:
    return [lossy(seed=seed, noise=noise, permute=seed) for seed in range(1, 6)]


@pytest.mark.parametrize("seed", range(6, 26))
def test_a_loss_within_the_noise_is_accepted(seed: int) -> None:
    finding = losses_agree(lossy(), orders(), [lossy(2, seed=seed), lossy(4, seed=seed + 100)])

    assert finding.accepted is True, finding.explanation
    assert len(finding.details["trajectory"]["envelope"]) == STEPS


def test_a_loss_that_leaves_the_noise_is_rejected_at_its_step() -> None:
    base = losses(9, 1e-7)

    def spoiled(rank: int, step: int) -> list[float]:
        return [base(rank, step)[0] * (1.0 + 1e-4 * (step >= 5))]

    finding = losses_agree(lossy(), orders(), [lossy(2, losses=spoiled)])

    assert finding.accepted is False
    assert "leaves the noise of permuted one-device runs at step 5" in finding.explanation
    assert "so the computation differs" in finding.explanation


def test_other_samples_are_blamed_where_they_differ_first() -> None:
    base = losses(9, 1e-7)
    finding = losses_agree(
        lossy(),
        orders(),
        [
            lossy(
                2,
                losses=lambda rank, step: [base(rank, step)[0] * (1.0 + 1e-4 * (step >= 5))],
                samples=lambda rank, step: [sample_of(step)],
            )
        ],
    )

    assert "its samples differ from one device's from step 1 on" in finding.explanation


def test_losses_that_are_summed_by_design_are_accepted() -> None:
    """Each rank divides by the global number of samples and gradients are summed: the ranks' losses add up to the global batch's."""
    finding = losses_agree(lossy(), orders(), [lossy(2, losses=lambda rank, step: [losses(9, 1e-7)(rank, step)[0] / 2])])

    assert (finding.accepted, finding.details["losses"]) == (True, "sum")


def test_dropout_is_told_from_rounding() -> None:
    assert own_randomness(lossy(), orders(), "as_run") == ""
    assert "dropout" in own_randomness(lossy(), orders(noise=1e-2), "as_run")
    assert losses_agree(lossy(), orders(noise=1e-2), [lossy(2, seed=9)]).accepted is None


def test_batches_that_could_not_be_permuted_decide_nothing() -> None:
    finding = losses_agree(lossy(), [lossy() for _ in range(5)], [lossy(2, seed=9)])

    assert finding.accepted is None
    assert "past any DataLoader" in finding.explanation


def test_without_a_measured_noise_a_loss_can_only_be_rejected() -> None:
    near, far = losses_far_apart(lossy(), [lossy(2, seed=9, noise=1e-14)]), losses_far_apart(lossy(), [lossy(2, seed=9, noise=1e-6)])

    assert near.accepted is None
    assert near.explanation.endswith('or declare under [capabilities] "equivalence.loss_trajectory" = "the reason"')
    assert (far.accepted, far.provenance) == (False, "assumed")
    assert "the loss leaves half of float64's digits at step 1" in far.explanation


def test_a_shorter_run_decides_nothing() -> None:
    short = lossy(2, change=lambda record: None if record["kind"] == "step" and record["step"] > 7 else record)

    assert losses_agree(lossy(), orders(), [short]).accepted is None


def test_a_loss_that_is_no_number_is_rejected() -> None:
    finding = losses_agree(
        lossy(), orders(), [lossy(2, losses=lambda rank, step: [float("nan") if step == 3 else losses(9, 1e-7)(rank, step)[0]])]
    )

    assert finding.accepted is False
    assert "at step 3" in finding.explanation


def test_equal_parameters_are_accepted() -> None:
    finding = parameters_agree([make_trace(ranks=2), make_trace(ranks=4)])

    assert finding.accepted is True
    assert finding.samples == 14


@pytest.mark.parametrize(("ranks", "bad"), [(2, 1), (4, 1), (4, 3), (4, 0)])
def test_a_rank_that_drifts_is_named_with_its_first_step(ranks: int, bad: int) -> None:
    drifting = make_trace(ranks=ranks, param_digest=lambda rank, step: f"{step + 7000 * (rank == bad and step >= 4):016x}")

    finding = parameters_agree([drifting])

    assert (finding.accepted, finding.value) == (False, 3)
    assert f"{ranks} ranks: rank {bad}'s parameters differ from rank {0 if bad else 1}'s from step 4 on, in 3 steps" in finding.explanation
    assert "although the gradients were equal" in finding.explanation


def test_a_gradient_that_was_not_reduced_is_named() -> None:
    drifting = make_trace(
        ranks=2, param_digest=lambda rank, step: f"{step + 7000 * rank * (step >= 3):016x}",
        grad_norms=lambda rank, step: [4.0 / step, 3.0 / step + rank * (step >= 3)],
    )  # fmt: skip

    assert "from step 3 on, in 4 steps: it applied another gradient (layer.bias)" in parameters_agree([drifting]).explanation


def test_a_learning_rate_that_differs_per_rank_is_named() -> None:
    def change(record: Record) -> Record:
        late = record["kind"] == "step" and record["rank"] == 1 and record["step"] >= 3
        return {**record, "lr": [0.1, 0.05], "param_digest": "f" * 16} if late else record

    finding = parameters_agree([make_trace(ranks=2, lr=[0.1, 0.1], change=change)])

    assert finding.accepted is False
    assert "from step 3 on, in 4 steps: its learning rate is 0.05 where rank 0's is 0.1 in parameter group 1" in finding.explanation


def test_initial_weights_that_differ_are_named() -> None:
    def change(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "param_digest": f"{record['rank']:016x}"} if record["kind"] == "start" else record

    finding = parameters_agree([make_trace(ranks=2, change=change)])

    assert finding.accepted is False
    assert "before the first step: the initial weights are not broadcast" in finding.explanation


def test_a_rank_that_stops_early_is_named() -> None:
    short = make_trace(
        ranks=2, change=lambda record: None if record["kind"] == "step" and record["rank"] == 1 and record["step"] > 4 else record
    )

    assert "rank 1 made no step 5, while rank 0 did" in parameters_agree([short]).explanation


def test_parts_whose_place_is_not_known_are_not_compared() -> None:
    sharded = make_trace(
        ranks=2, extra=[{"kind": "not_seen", "rank": 0, "signal": "whole_parameters", "reason": "parameters are flattened (FSDP1)"}]
    )

    finding = parameters_agree([sharded])

    assert finding.accepted is None
    assert "flattened (FSDP1)" in finding.explanation


def test_a_deadline_is_given_as_the_reason() -> None:
    late = {**ended_well(2, rank0=1), "ended_by": "deadline", "message": "rank 0 still ran when the deadline of 30 s passed"}

    finding = parameters_agree([make_trace(ranks=2, ended=late)])

    assert finding.accepted is None
    assert "was ended by its deadline: rank 0 still ran" in finding.explanation


@pytest.mark.parametrize("trace", [make_trace(ranks=2, ended=ended_well(2, rank1=9)), make_trace(ranks=2, steps=0), make_trace(ranks=1)])
def test_what_cannot_be_judged_decides_nothing(trace: Trace) -> None:
    for finding in (
        parameters_agree([trace]), gradients_agree(trace, permuted(), [traced(both(whole()))]), losses_agree(trace, orders(), [trace]),
    ):  # fmt: skip
        assert finding.accepted is None
        assert finding.explanation

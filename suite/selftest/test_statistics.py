"""The intervals hold the truth as often as they say, the bounds bound, and everything repeats exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.statistics import (
    UNIT_ROUNDOFF,
    Floats,
    Interval,
    bootstrap_interval,
    gamma,
    median_interval,
    more_runs_needed,
    noise_envelope,
    random_walk_bound,
    ratio_interval,
    reduction_bound,
    wilson_interval,
)


@pytest.mark.parametrize(("count", "least"), [(3, 0.70), (5, 0.90), (9, 0.92), (25, 0.92)])
def test_median_interval_covers_the_true_median_as_often_as_it_says(count: int, least: float) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for trial in range(400):
        interval = median_interval(rng.lognormal(0.0, 0.3, count), seed=trial)
        held += interval.low <= 1.0 <= interval.high

    assert held / 400 >= least, f"{held} of 400 intervals of {count} values held the true median"


def test_median_interval_of_few_values_states_the_coverage_it_really_has() -> None:
    interval = median_interval([3.0, 1.0, 2.0])

    assert interval == Interval(2.0, 1.0, 3.0, 0.75, 3)


def test_one_value_decides_nothing() -> None:
    assert median_interval([5.0]).holds(100.0, "at_most") is None


def test_intervals_repeat_exactly_and_depend_on_their_seed() -> None:
    values = np.random.default_rng(0).normal(size=40)

    assert bootstrap_interval(values, np.mean, seed=1) == bootstrap_interval(values, np.mean, seed=1)
    assert bootstrap_interval(values, np.mean, seed=1) != bootstrap_interval(values, np.mean, seed=2)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_values_that_are_no_numbers_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="expected finite values"):
        median_interval(values)


@pytest.mark.parametrize(
    ("low", "high", "direction", "expected"),
    [(1, 2, "at_most", True), (2.5, 3, "at_most", False), (1, 3, "at_most", None), (2, 3, "at_least", True), (0, 1, "at_least", False),
     (1, 3, "at_least", None)],
)  # fmt: skip
def test_an_interval_decides_only_when_it_is_free_of_the_bound(low: float, high: float, direction: str, expected: bool | None) -> None:
    assert Interval((low + high) / 2, low, high, 0.95, 9).holds(2.0, direction) is expected


def test_a_drift_common_to_both_halves_of_a_pair_cancels_in_the_ratio() -> None:
    drift = np.linspace(1.0, 3.0, 12)
    noise = np.random.default_rng(3).normal(1.0, 0.005, 12)

    paired = ratio_interval(10.0 * drift, 11.0 * drift * noise)

    assert paired.low > 1.05
    assert paired.high < 1.15


def test_ratio_needs_pairs_of_positive_values() -> None:
    with pytest.raises(ValueError, match="give pairs"):
        ratio_interval([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="above 0"):
        ratio_interval([1.0, 0.0], [1.0, 1.0])


def test_wilson_interval_matches_the_published_example_and_stays_open_at_the_ends() -> None:
    interval = wilson_interval(81, 263)  # Newcombe 1998, table I, method 3

    assert (round(interval.low, 4), round(interval.high, 4)) == (0.2553, 0.3662)
    assert wilson_interval(0, 20).low == 0.0
    assert 0.15 < wilson_interval(0, 20).high < 0.17
    assert wilson_interval(20, 20).high == 1.0


def test_more_runs_needed_frees_the_bound_when_they_are_made() -> None:
    rng = np.random.default_rng(11)
    values = rng.normal(1.02, 0.1, 12)
    straddling = bootstrap_interval(values, np.mean)
    needed = more_runs_needed(straddling, 1.0)

    assert straddling.holds(1.0, "at_least") is None
    assert needed is not None
    grown = bootstrap_interval(np.tile(values, 1 + math.ceil(needed / 12)), np.mean)
    assert grown.holds(1.0, "at_least") is True


@pytest.mark.parametrize(
    ("interval", "bound", "expected"),
    [
        (Interval(1, 0.9, 1.1, 0.95, 10), 2.0, 0),
        (Interval(1, 0.9, 1.1, 0.95, 10), 1.0, None),
        (Interval(1, -math.inf, math.inf, 1, 1), 2.0, 5),
    ],
)
def test_more_runs_needed_at_its_edges(interval: Interval, bound: float, expected: int | None) -> None:
    assert more_runs_needed(interval, bound) == expected


def _growing(rng: np.random.Generator, scale: float = 1.0) -> Floats:
    """A deviation as training shows it: grows with the steps, differs between runs by a factor, jitters from step to step."""
    trend: Floats = scale * 1e-7 * np.exp(rng.normal(0, 0.25) + np.linspace(0, 2, 30))
    return trend * rng.lognormal(0, 0.1, 30)


def test_sound_runs_leave_the_envelope_no_more_often_than_designed() -> None:
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(300):
        envelope = noise_envelope([_growing(rng) for _ in range(4)], systematic=1.0)
        alarms += bool((_growing(rng) > envelope.bound).any())

    assert alarms <= 9, f"{alarms} of 300 sound runs left an envelope designed for 1 %"


def test_a_run_forty_times_off_leaves_the_envelope() -> None:
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(50):
        envelope = noise_envelope([_growing(rng) for _ in range(4)])
        missed += not (_growing(rng, scale=40.0) > envelope.bound).any()

    assert missed <= 2


def test_envelope_counts_a_control_that_the_others_do_not_explain() -> None:
    rng = np.random.default_rng(8)
    envelope = noise_envelope([*(_growing(rng) for _ in range(5)), _growing(rng, scale=1e4)])

    assert envelope.left_out == 1
    assert envelope.controls == 6


def test_bitwise_equal_controls_allow_the_floor_and_no_more() -> None:
    envelope = noise_envelope([np.zeros(4)] * 3, floor=1e-16)

    assert envelope.bound.tolist() == [2e-16] * 4


@pytest.mark.parametrize("controls", [[], [[1.0], [1.0]], [[1.0], [1.0], [1.0, 2.0]], [[1.0], [1.0], [-1.0]]])
def test_envelope_refuses_what_is_no_control(controls: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least three"):
        noise_envelope(controls)


def test_gamma_is_the_published_formula_and_ends_where_no_bound_exists() -> None:
    assert gamma(1000, 2.0**-24) == pytest.approx(1000 * 2.0**-24 / (1 - 1000 * 2.0**-24), rel=1e-15)
    assert gamma(256, UNIT_ROUNDOFF["bfloat16"]) == math.inf


@pytest.mark.parametrize("seed", range(5))
def test_two_orders_of_one_sum_differ_by_less_than_the_bound(seed: int) -> None:
    terms = np.random.default_rng(seed).normal(size=2000).astype(np.float32)
    orders = [float(np.cumsum(np.random.default_rng(seed + 1 + k).permutation(terms), dtype=np.float32)[-1]) for k in range(20)]
    exact = math.fsum(terms.tolist())
    condition = math.fsum(np.abs(terms).tolist()) / abs(exact)

    assert (max(orders) - min(orders)) / abs(exact) <= reduction_bound(2000, UNIT_ROUNDOFF["float32"], condition)


def test_roundings_walk_within_their_bound_and_well_below_the_certain_one() -> None:
    """Sums of float32 terms against the exact ones: four deviations hold in all of 200, a hundredth of one does not."""
    rng = np.random.default_rng(5)
    terms, roundoff = 4096, UNIT_ROUNDOFF["float32"]
    errors = []
    for _ in range(200):
        values = rng.random(terms).astype(np.float32)
        exact = float(values.astype(np.float64).sum())
        errors.append(abs(float(np.add.accumulate(values, dtype=np.float32)[-1]) - exact) / exact)

    bound = random_walk_bound(terms, roundoff, 4.0)
    assert max(errors) <= bound < reduction_bound(terms, roundoff)
    assert max(errors) > random_walk_bound(terms, roundoff, 0.01), "a bound that nothing comes near would be none"
    with pytest.raises(ValueError, match="give n >= 0"):
        random_walk_bound(10, roundoff, 0.0)

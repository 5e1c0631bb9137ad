"""Two audits of the same code are never a regression; a planted slowdown is one, or undecided where the repeats are too few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.compare import compare
from reports.compare_model import Comparison
from reports.compare_numbers import numbers
from reports.compare_policy import CompareBounds
from reports.compare_ratio import Limits, Measured, Worse, detectable, fewest, more_runs, outcome, separable, worsening
from reports.decide import load_policy
from reports.evidence import Finding
from suite.selftest.compared import SCALING, WAIT, audited, side

BOUNDS = CompareBounds()
POLICY = load_policy()
COMPARISONS = 20


def _compared(base: dict[str, Finding], head: dict[str, Finding], bounds: CompareBounds = BOUNDS) -> Comparison:
    return compare(side(base), side(head), POLICY, bounds)


def _exits(
    *, slower: float, base_repeats: int = 9, head_repeats: int = 9, bound: float = 0.65, keep: bool = True, bounds: CompareBounds = BOUNDS
) -> list[int]:
    found = []
    for trial in range(COMPARISONS):
        rng = np.random.default_rng(trial)
        base = audited(rng, repeats=base_repeats, bound=bound, keep_repeats=keep)
        found.append(_compared(base, audited(rng, repeats=head_repeats, slower=slower, bound=bound, keep_repeats=keep), bounds).exit_code)
    return found


@pytest.mark.parametrize("keep", [True, False], ids=["repeats", "intervals"])
@pytest.mark.parametrize("repeats", [2, 3, 5, 9])
def test_the_same_code_twice_is_accepted_or_undecided_in_all_of_20_comparisons(repeats: int, keep: bool) -> None:
    found = _exits(slower=1.0, base_repeats=repeats, head_repeats=repeats, keep=keep)

    assert set(found) <= {0, 4}, f"exit codes {found}"


def test_the_same_code_twice_is_no_regression_where_its_efficiency_lies_at_its_bound_and_noise_turns_the_verdict() -> None:
    found = _exits(slower=1.0, bound=41.2 / 24.0 / 2)

    assert set(found) <= {0, 4}, f"exit codes {found}"
    assert 4 in found, "no verdict turned, so the test shows nothing"


def test_the_same_code_twice_is_accepted_where_the_bound_is_wide_against_the_noise() -> None:
    found = _exits(slower=1.0, base_repeats=25, head_repeats=25, bounds=CompareBounds(max_slowdown=0.10))

    assert found.count(0) >= COMPARISONS - 2, f"exit codes {found}"


def test_a_slowdown_of_20_percent_is_found_in_all_of_20_comparisons() -> None:
    assert _exits(slower=1.2, base_repeats=15, head_repeats=15) == [1] * COMPARISONS


@pytest.mark.parametrize("keep", [True, False], ids=["repeats", "intervals"])
def test_a_slowdown_of_20_percent_is_found_or_undecided_with_few_repeats_and_never_accepted(keep: bool) -> None:
    for repeats in (2, 3, 5, 9):
        assert set(_exits(slower=1.2, base_repeats=repeats, head_repeats=repeats, keep=keep)) <= {1, 4}
    assert set(_exits(slower=1.2, base_repeats=3, head_repeats=3, keep=keep)) == {4}, "3 repeats cannot support a claim at 99 %"


def test_a_slowdown_says_what_became_slower_and_by_how_much() -> None:
    rng = np.random.default_rng(0)
    found = _compared(audited(rng, repeats=15), audited(rng, repeats=15, slower=1.2))
    row = next(row for row in found.rows if row.id == SCALING)

    assert row.change == "regressed"
    assert "step at 2 ranks" in row.words
    assert next(number.worse for number in row.numbers if number.name == "step at 1 rank") == pytest.approx(0.2, abs=0.08)


def test_undecided_says_how_many_more_runs_and_what_would_have_been_found() -> None:
    rng = np.random.default_rng(1)
    found = _compared(audited(rng, repeats=3), audited(rng, repeats=3, slower=1.2))
    number = next(number for row in found.rows if row.id == SCALING for number in row.numbers if number.name == "step at 2 ranks")

    assert number.outcome == "undecided"
    assert number.more_runs == 2
    assert "needs about 2 more runs" in number.words
    assert number.detectable is not None
    assert f"a change of {number.detectable * 100:.3g} % would have been found" in number.words


@pytest.mark.parametrize(
    ("low", "high", "enough", "expected"),
    [(0.09, 0.2, True, "regressed"), (0.05, 0.2, True, "undecided"), (0.01, 0.2, True, "undecided"), (-0.02, 0.03, True, "unchanged"),
     (-0.2, -0.04, True, "improved"), (-0.2, 0.2, True, "undecided"), (0.09, 0.2, False, "undecided"), (-0.01, 0.01, False, "undecided")],
)  # fmt: skip
def test_every_position_of_the_interval_has_the_tabled_outcome(low: float, high: float, enough: bool, expected: str) -> None:
    assert outcome(Worse((low + high) / 2, low, high, enough, 9), Limits(0.03, 0.05, 0.99)) == expected


def test_the_interval_of_the_ratio_holds_the_truth() -> None:
    held = 0
    for trial in range(200):
        rng = np.random.default_rng(trial)
        base, head = (tuple(rng.lognormal(shift, 0.05, 9)) for shift in (0.0, math.log(1.1)))
        found = worsening(
            *(Measured(float(np.median(one)), samples=9, repeats=one) for one in (base, head)),
            scale="ratio",
            higher_is_worse=True,
            level=0.99,
        )
        assert found is not None
        held += found.low <= 0.1 <= found.high

    assert held >= 190, f"{held} of 200 intervals held the true slowdown of 10 %"


def test_the_detectable_effect_is_found_in_about_four_of_five_comparisons() -> None:
    limits, found = Limits(0.03, 0.0, 0.99), []
    spread = [_timed(np.random.default_rng(trial), 0.0) for trial in range(40)]
    effect = float(np.median([detectable(worse, limits) or math.nan for worse in spread]))
    for trial in range(100):
        found.append(outcome(_timed(np.random.default_rng(1000 + trial), effect), limits))

    assert 0.65 <= found.count("regressed") / len(found) <= 0.97, f"{found.count('regressed')} of 100 at {effect:.1%}"


def _timed(rng: np.random.Generator, effect: float) -> Worse:
    base, head = (tuple(rng.lognormal(math.log1p(shift), 0.03, 15)) for shift in (0.0, effect))
    found = worsening(
        *(Measured(float(np.median(one)), samples=15, repeats=one) for one in (base, head)), scale="ratio", higher_is_worse=True, level=0.99
    )
    assert found is not None
    return found


def test_five_repeats_on_each_side_are_the_fewest_that_decide_at_99_percent() -> None:
    assert fewest(0.99) == 5
    assert separable(5, 5, 0.99)
    assert not separable(4, 4, 0.99)
    assert separable(3, 12, 0.99), "few on one side are made up for by many on the other"


def test_one_value_each_asks_for_repeats_and_decides_nothing() -> None:
    found = worsening(Measured(10.0, samples=1), Measured(20.0, samples=1), scale="ratio", higher_is_worse=True, level=0.99)

    assert found is not None
    assert outcome(found, Limits(0.03, 0.05, 0.99)) == "undecided"
    assert more_runs(found, Limits(0.03, 0.05, 0.99)) == 4


def _one(accepted: bool, value: float, unit: str, interval: tuple[float, float] | None, **more: object) -> Finding:
    return Finding(accepted, value, unit, 10.0, explanation="Measured.", interval=interval, **more)  # type: ignore[arg-type]


def test_a_share_of_a_step_is_compared_in_points_so_that_doubling_from_nothing_is_no_regression() -> None:
    before, after, much = (
        _one(True, share, "share of the step in data wait", (share - 0.001, share + 0.001), samples=9) for share in (0.002, 0.004, 0.08)
    )

    assert numbers(WAIT, True, before, after, BOUNDS)[0].outcome == "unchanged"
    assert numbers(WAIT, True, before, much, BOUNDS)[0].outcome == "regressed"


def test_numbers_in_different_units_are_not_compared() -> None:
    before, after = (_one(True, 0.02, f"share of the step in {phase}", (0.01, 0.03), samples=9) for phase in ("data wait", "forward"))

    (number,) = numbers(WAIT, True, before, after, BOUNDS)

    assert number.outcome == "incomparable"
    assert "data wait cannot be compared with share of the step in forward" in number.words


def test_a_number_of_correctness_counts_only_where_the_intervals_show_a_change() -> None:
    base = _one(True, 1.4, "relative", (0.9, 2.1), samples=42)

    assert numbers("equivalence.gradient", False, base, base, BOUNDS)[0].outcome == "unchanged"
    assert (
        numbers("equivalence.gradient", False, base, _one(True, 2.0, "relative", (1.2, 2.9), samples=42), BOUNDS)[0].outcome == "unchanged"
    )
    assert (
        numbers("equivalence.gradient", False, base, _one(True, 4.0, "relative", (3.2, 4.9), samples=42), BOUNDS)[0].outcome == "regressed"
    )


def test_a_count_without_interval_is_judged_only_where_the_policy_names_its_criterion() -> None:
    before, after = (_one(True, count, "steps", None) for count in (0.0, 2.0))
    strict = CompareBounds(max_worsening={"recovery.*": 0.0})

    assert numbers("recovery.restore", False, before, after, BOUNDS)[0].outcome == "shown"
    assert numbers("recovery.restore", False, before, after, strict)[0].outcome == "regressed"
    assert numbers("recovery.restore", False, before, before, strict)[0].outcome == "unchanged"


def test_a_bound_of_its_own_overrides_the_common_one() -> None:
    before, after = (_one(True, ms, "ms", (ms * 0.99, ms * 1.01), samples=9) for ms in (4.0, 5.0))

    assert numbers("stragglers.slow_rank", True, before, after, BOUNDS)[0].outcome == "regressed"
    assert (
        numbers("stragglers.slow_rank", True, before, after, CompareBounds(max_worsening={"stragglers.*": 0.5}))[0].outcome == "unchanged"
    )


def test_a_time_without_spread_is_undecided_where_it_became_worse() -> None:
    before, after = (_one(True, ms, "ms", None) for ms in (4.0, 5.0))

    assert numbers("stragglers.slow_rank", True, before, after, BOUNDS)[0].outcome == "undecided"
    assert numbers("stragglers.slow_rank", True, before, before, BOUNDS)[0].outcome == "shown"


def test_a_time_that_the_head_no_longer_has_is_undecided_and_a_new_one_is_not() -> None:
    with_it, without = _one(True, 4.0, "ms", (3.9, 4.1), samples=9), Finding(True, explanation="Nothing was measured.")

    assert numbers("stragglers.slow_rank", True, with_it, without, BOUNDS)[0].outcome == "undecided"
    assert numbers("stragglers.slow_rank", True, without, with_it, BOUNDS)[0].outcome == "incomparable"

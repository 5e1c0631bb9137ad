"""Intervals, noise envelopes and rounding bounds: how far a measured number may be trusted.

All functions are pure and repeat exactly: what draws random numbers takes a seed. Nothing here knows what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Half the distance from 1 to the next larger number, the largest relative error of one correctly rounded operation.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

RESAMPLES = 4000
FEWEST_FOR_NOMINAL = 6  # 1 - 2 * 0.5**6 = 97 %: below six values not even the whole range covers a median with 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval. coverage: the share of such intervals that hold the true value. samples: independent observations."""

    estimate: float
    low: float
    high: float
    coverage: float
    samples: int

    def holds(self, bound: float, direction: str) -> bool | None:
        """Whether the whole interval is on the right side of `bound` ("at_most" or "at_least"); None where it straddles it."""
        low, high = (self.low, self.high) if direction == "at_most" else (-self.high, -self.low)
        limit = bound if direction == "at_most" else -bound
        if high <= limit:
            return True
        return False if low > limit else None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A bound per step on deviations that are noise.

    bound, shape: (steps,), bound = multiple * shape. false_alarm_rate: designed share of sound runs that leave the bound at any step.
    left_out: of `controls` control runs, how many left the bound made from the others alone.
    """

    bound: Floats
    shape: Floats
    multiple: float
    false_alarm_rate: float
    left_out: int
    controls: int


def bootstrap_interval(
    values: ArrayLike, statistic: Callable[..., Any] = np.median, *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Percentile bootstrap interval (Efron 1979) of `statistic(array, axis=-1)` over independent `values` of shape (n,).

    Fewer than two values say nothing about their spread: the interval is then infinite. Raises ValueError for no or non-finite values.
    """
    data = _finite(values)
    estimate = float(statistic(data, axis=-1))
    if len(data) < 2:
        return Interval(estimate, -math.inf, math.inf, 1.0, len(data))
    picks = np.random.default_rng(seed).integers(0, len(data), size=(resamples, len(data)))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(statistic(data[picks], axis=-1), [tail, 1.0 - tail], method="inverted_cdf")
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), level, len(data))


def median_interval(values: ArrayLike, *, level: float = 0.95, seed: int = 0) -> Interval:
    """Bootstrap interval of the median of independent `values` of shape (n,).

    Below six values the whole range is given, with the coverage it really has, 1 - 2 * 0.5**n (each value is above the median as often as
    below it). Raises ValueError as `bootstrap_interval`.
    """
    data = _finite(values)
    if 2 <= len(data) < FEWEST_FOR_NOMINAL:
        return Interval(float(np.median(data)), float(data.min()), float(data.max()), 1.0 - 2.0 * 0.5 ** len(data), len(data))
    return bootstrap_interval(data, np.median, level=level, seed=seed)


def ratio_interval(base: ArrayLike, other: ArrayLike, *, level: float = 0.95, seed: int = 0) -> Interval:
    """Interval of other / base from pairs measured one after the other (A B B A), both of shape (pairs,).

    The ratio is taken inside each pair, so that a drift of the machine, common to both, cancels. Raises ValueError for unequal lengths,
    and for values that are not above zero.
    """
    first, second = _finite(base), _finite(other)
    if len(first) != len(second):
        raise ValueError(f"ratio_interval has {len(first)} base and {len(second)} other values; give pairs.")
    if min(first.min(), second.min()) <= 0:
        raise ValueError(f"ratio_interval needs values above 0, got {min(first.min(), second.min()):g}.")
    return median_interval(second / first, level=level, seed=seed)


def wilson_interval(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Interval of a proportion (Wilson 1927); sound at 0 and at all successes, unlike the normal one. Raises ValueError."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"wilson_interval got {successes} successes of {trials} trials; give 0 <= successes <= trials, trials >= 1.")
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else centre - half
    return Interval(share, low, 1.0 if successes == trials else centre + half, level, trials)


def more_runs_needed(interval: Interval, bound: float, *, most: int = 1000) -> int | None:
    """How many more samples may free `bound` from the interval, if the estimate stays where it is; 0 if it is free already.

    The half width shrinks with the square root of the sample count. None where that takes more than `most`: the value is at its bound.
    """
    if not interval.low <= bound <= interval.high:
        return 0
    if not math.isfinite(interval.high - interval.low):
        return FEWEST_FOR_NOMINAL - interval.samples
    distance = abs(interval.estimate - bound)
    half = interval.high - interval.estimate if bound >= interval.estimate else interval.estimate - interval.low
    if distance == 0 or interval.samples * (half / distance) ** 2 > interval.samples + most:
        return None
    wanted = math.ceil(interval.samples * (half / distance) ** 2) + 1
    return max(wanted, FEWEST_FOR_NOMINAL) - interval.samples if wanted > interval.samples else 1


def noise_envelope(
    controls: Sequence[ArrayLike], *, false_alarm_rate: float = 0.01, systematic: float = 2.0, floor: float = 0.0
) -> Envelope:
    """The bound inside which the deviation of a sound run stays, from control runs that deviate by noise alone.

    controls: at least three series of shape (steps,), each the deviation (>= 0) of one control, such as a run with its batch permuted.
    systematic: how much larger than a control's a sound run's deviation may be as a rule; 2 is what permuted one-device runs were found to
    predict for 2 and 4 ranks. floor: deviations are noise up to here whatever the controls did (rounding of one operation).

    Reasoning. The shape is the running maximum of the median control, so it never falls. One number then stands for a whole run: the
    largest ratio of its deviation to the shape at any step; so the rate counts runs, not steps, and needs no correction for their number.
    The logarithms of these numbers are taken as normal; a further run of the same kind exceeds
    mean + t(1 - rate, k - 1) * deviation * sqrt(1 + 1/k) with probability `false_alarm_rate` (prediction interval, k controls), and never
    less than the largest control is allowed. `left_out` checks that: each control against the bound that the others give.
    Raises ValueError for fewer than three controls, unequal lengths, negative or non-finite deviations.
    """
    series = np.stack([_finite(control) for control in controls]) if _equal_lengths(controls) else np.empty((0, 0))
    if len(series) < 3 or series.min() < 0:
        raise ValueError(f"noise_envelope got {len(controls)} controls; give at least three of one length, with deviations >= 0.")
    shape, multiple = _fit(series, false_alarm_rate, floor)
    left_out = 0
    if len(series) > 3:
        for index in range(len(series)):
            others_shape, others_multiple = _fit(np.delete(series, index, axis=0), false_alarm_rate, floor)
            left_out += bool((series[index] > systematic * others_multiple * others_shape).any())
    multiple *= systematic
    return Envelope(multiple * shape, shape, multiple, false_alarm_rate, left_out, len(series))


def gamma(operations: int, unit_roundoff: float) -> float:
    """gamma_n = n u / (1 - n u): relative error of n rounded operations in a row (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., 2002, lemma 3.1). Infinite where n u >= 1: no bound exists then, as in bfloat16 from n = 256 on.
    """
    if operations < 0 or unit_roundoff <= 0:
        raise ValueError(f"gamma got n = {operations}, u = {unit_roundoff}; give n >= 0 and u > 0.")
    product = operations * unit_roundoff
    return product / (1.0 - product) if product < 1.0 else math.inf


def reduction_bound(terms: int, unit_roundoff: float, condition: float = 1.0) -> float:
    """Largest relative difference between two sums of the same `terms` numbers added in different orders.

    Either sum is within gamma_(n-1) * sum|x| of the exact one, whatever the order (Higham 2002, equation 4.4), so two differ by at most
    twice that. condition: sum|x| / |sum x|, 1 where all terms have one sign.
    """
    if condition < 1.0:
        raise ValueError(f"reduction_bound got condition = {condition}; sum|x| / |sum x| is never below 1.")
    return 2.0 * gamma(max(terms - 1, 0), unit_roundoff) * condition


def random_walk_bound(terms: int, unit_roundoff: float, deviations: float) -> float:
    """deviations * sqrt(n) * u: relative error of a sum of n terms whose roundings are independent and go either way.

    Reached by chance with probability 2 exp(-deviations^2 / 2) at most for each partial sum (Higham and Mary, A New Approach to Probabilistic
    Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4), so it is tighter than `gamma` where n is large, and no certainty.
    """
    if terms < 0 or unit_roundoff <= 0 or deviations <= 0:
        raise ValueError(
            f"random_walk_bound got n = {terms}, u = {unit_roundoff}, {deviations} deviations; give n >= 0 and the others above 0."
        )
    return deviations * math.sqrt(max(terms, 1)) * unit_roundoff


def _finite(values: ArrayLike) -> Floats:
    data = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(data) == 0 or not np.isfinite(data).all():
        bad = data[~np.isfinite(data)][:1]
        raise ValueError(f"expected finite values, got {'none' if len(data) == 0 else bad[0]}.")
    return data


def _equal_lengths(controls: Sequence[ArrayLike]) -> bool:
    return len(controls) > 0 and len({np.size(control) for control in controls}) == 1


def _fit(series: Floats, rate: float, floor: float) -> tuple[Floats, float]:
    """Shape (steps,) and the multiple of it that a further run of this kind stays under, except in a share `rate` of cases."""
    from scipy.stats import t as student  # half a second to import, for a table look-up

    tiny = np.finfo(np.float64).tiny
    shape = np.maximum(np.maximum.accumulate(np.median(series, axis=0)), max(floor, tiny))
    peaks = (series / shape).max(axis=1)
    if peaks.max() <= 1.0:
        return shape, 1.0
    logs = np.log(np.maximum(peaks, tiny))
    count = len(series)
    quantile = float(student.ppf(1.0 - rate, count - 1))
    multiple = math.exp(float(logs.mean()) + quantile * float(logs.std(ddof=1)) * math.sqrt(1.0 + 1.0 / count))
    return shape, max(multiple, float(peaks.max()), 1.0)

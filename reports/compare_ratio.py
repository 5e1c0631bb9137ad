"""By how much one set of measurements is worse than another, with an interval, and what follows against a practical bound.

    the interval lies above the bound (and above what two audits of the same code may differ by)   regressed
    the interval lies below minus the bound                                                        improved
    the interval does not exceed the bound                                                         unchanged
    it straddles the bound, or the repeats are too few for the level                               undecided

The two sides were measured at different times, so repeats are never paired across them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from reports.statistics import FEWEST_FOR_NOMINAL, RESAMPLES, Floats, Interval, more_runs_needed

MOST_RESAMPLED = 500  # of a million rounds, so many evenly spaced ones give the median to a few per cent of its spread
POWER = 0.8  # the detectable effect is found in four of five comparisons
Scale = Literal["ratio", "points", "exact"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of a number. repeats: one value per run, () where only `low` and `high` were kept (None: not even these).

    samples: how many independent values it rests on; None if unknown.
    """

    value: float
    low: float | None = None
    high: float | None = None
    samples: int | None = None
    repeats: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """bound: worsening still accepted. between: what two audits of the same code may differ by. level: of the interval (two-sided)."""

    bound: float
    between: float
    level: float

    @property
    def regressed_above(self) -> float:
        return (1.0 + self.bound) * (1.0 + self.between) - 1.0


@dataclass(frozen=True, slots=True)
class Worse:
    """How much worse the head is: estimate and interval, on the scale's own terms (0.03 is 3 % or 3 points). enough: whether the repeats
    can support a claim at the level at all. samples: of the smaller side; None if unknown.
    """

    estimate: float
    low: float
    high: float
    enough: bool
    samples: int | None


def worsening(base: Measured, head: Measured, *, scale: Scale, higher_is_worse: bool, level: float) -> Worse | None:
    """How much worse `head` is than `base`; None where that cannot be expressed on the scale (a ratio of numbers that are not above zero).

    Where both sides kept their repeats, the bootstrap interval of the ratio of the medians (of their difference, for points); otherwise the
    ends of both intervals, taken apart as far as they go, which is no narrower than a 99 % interval from two 95 % ones.
    """
    if scale == "exact":
        return _exact(base.value, head.value, higher_is_worse)
    first, second = _range(base), _range(head)
    values = (base.value, head.value, *base.repeats, *head.repeats, *(first if first else ()), *(second if second else ()))
    if not all(map(math.isfinite, values)) or (scale == "ratio" and min(values) <= 0.0):
        return None
    few = [count for count in (base.samples, head.samples) if count is not None]
    samples = min(few) if len(few) == 2 else None
    estimate = _against(base.value, head.value, scale, higher_is_worse)
    if first is None or second is None:
        return Worse(estimate, -math.inf, math.inf, False, samples)
    enough = samples is None or separable(base.samples or 1, head.samples or 1, level)
    if base.repeats and head.repeats and min(len(base.repeats), len(head.repeats)) >= FEWEST_FOR_NOMINAL:
        low, high = _bootstrap(base.repeats, head.repeats, scale, higher_is_worse, level)
    else:
        ends = [_against(one, other, scale, higher_is_worse) for one, other in ((first[0], second[1]), (first[1], second[0]))]
        low, high = min(ends), max(ends)
    return Worse(estimate, min(low, estimate), max(high, estimate), enough, samples)


def separable(base: int, head: int, level: float) -> bool:
    """Whether so many repeats can tell two sides apart at all: by chance alone, every head value lies above every base value once in
    (base + head)! / (base! head!) comparisons (the smallest p of the rank-sum test), which must not exceed half of 1 - level.
    """
    return math.comb(base + head, base) >= math.ceil(2.0 / (1.0 - level))


def fewest(level: float) -> int:
    """The repeats that each side needs before anything can be decided at `level`: 5 at 99 %."""
    return next(count for count in range(1, 100) if separable(count, count, level))


def outcome(found: Worse, limits: Limits) -> Literal["regressed", "undecided", "improved", "unchanged"]:
    """As tabled at the top of this file."""
    if not found.enough:
        return "undecided"
    if found.low > limits.regressed_above:
        return "regressed"
    if found.high < -limits.bound:
        return "improved"
    return "unchanged" if found.high <= limits.bound else "undecided"


def detectable(found: Worse, limits: Limits) -> float | None:
    """The smallest worsening that a comparison with this spread finds in four of five cases; None where the spread is unknown."""
    if not math.isfinite(found.high - found.low):
        return None
    z = NormalDist().inv_cdf(0.5 + limits.level / 2.0)
    error = (found.high - found.low) / (2.0 * z)
    return limits.regressed_above + (z + NormalDist().inv_cdf(POWER)) * error


def more_runs(found: Worse, limits: Limits) -> int | None:
    """About how many more repeats per side may decide, if the estimate stays where it is; None where it is not known or too many."""
    if found.samples is None:
        return None
    if not found.enough:
        return max(1, fewest(limits.level) - found.samples)
    edge = limits.bound if found.low <= limits.bound else limits.regressed_above
    return more_runs_needed(Interval(found.estimate, found.low, found.high, limits.level, found.samples), edge) or None


def _range(side: Measured) -> tuple[float, float] | None:
    if side.repeats:
        return (min(side.repeats), max(side.repeats)) if len(side.repeats) > 1 else None
    return None if side.low is None or side.high is None else (side.low, side.high)


def _against(base: float, head: float, scale: Scale, higher_is_worse: bool) -> float:
    if scale == "points":
        return head - base if higher_is_worse else base - head
    return (head / base if higher_is_worse else base / head) - 1.0


def _exact(base: float, head: float, higher_is_worse: bool) -> Worse | None:
    """Numbers without noise, such as counts: any difference is one. From zero, every worsening is infinite."""
    if math.isnan(base) or math.isnan(head):
        return None
    worse = (head - base) * (1.0 if higher_is_worse else -1.0)
    share = 0.0 if worse == 0.0 or math.isnan(worse) else (worse / abs(base) if base else math.copysign(math.inf, worse))
    return Worse(share, share, share, True, None)


def _bootstrap(base: tuple[float, ...], head: tuple[float, ...], scale: Scale, higher_is_worse: bool, level: float) -> tuple[float, float]:
    """Percentile bootstrap (Efron 1979) of the comparison of the two medians, each side resampled by itself."""
    rng = np.random.default_rng(0)
    first, second = (_medians(_thinned(values), rng) for values in (base, head))
    if scale == "points":
        compared = second - first if higher_is_worse else first - second
    else:
        compared = (second / first if higher_is_worse else first / second) - 1.0
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(compared, [tail, 1.0 - tail])
    return float(low), float(high)


def _medians(values: Floats, rng: np.random.Generator) -> Floats:
    """Medians of resamples of `values` (n,), shape (RESAMPLES,)."""
    medians: Floats = np.median(values[rng.integers(0, len(values), size=(RESAMPLES, len(values)))], axis=1)
    return medians


def _thinned(values: tuple[float, ...]) -> Floats:
    data = np.asarray(values, dtype=np.float64)
    if len(data) <= MOST_RESAMPLED:
        return data
    thinned: Floats = data[np.linspace(0, len(data) - 1, MOST_RESAMPLED).round().astype(int)]
    return thinned

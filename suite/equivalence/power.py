"""Power: the smallest wrong scale of one rank's gradient that the gradient criterion would still have rejected, on the job in hand.

The deviation grows in proportion to the excess of the scale, so one run tells where the bound will be met; runs on both sides of it confirm that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fixtures.trace import Trace
from suite.equivalence.gradient import deviation, noise_of
from suite.equivalence.usable import named, unusable

FIRST_EXCESS = 1e-3
AROUND = (0.5, 2.0)  # tried at half and at twice the predicted excess: the truth is bracketed within a factor of four


def sweep_steps(alone: Trace, permuted: Sequence[Trace], run: Callable[[float], Trace]) -> tuple[float, ...]:
    """The excesses (scale - 1) to be tried: a first one, and the two around where its deviation says that the bound lies.

    Only the first where the bound cannot be had or the first fault shows nothing.
    """
    first = run(FIRST_EXCESS)
    if unusable([alone, *permuted, first], "gradient"):
        return (FIRST_EXCESS,)
    bound, seen = noise_of(alone, permuted).bound, deviation(alone, first)[1]
    if not (0 < seen < math.inf and 0 < bound < seen):
        return (FIRST_EXCESS,)
    predicted = FIRST_EXCESS * bound / seen
    return (FIRST_EXCESS, *(_representable(predicted * factor) for factor in AROUND))


def smallest_scale(alone: Trace, permuted: Sequence[Trace], tried: Mapping[float, Trace], numbers: str = "float64") -> str:
    """The sentence for the page; "" where nothing can be said. numbers: in what the job computed."""
    if unusable([alone, *permuted, *tried.values()], "gradient"):
        return ""
    bound = noise_of(alone, permuted).bound
    rejected = sorted(excess for excess, trace in tried.items() if deviation(alone, trace)[1] > bound)
    if not rejected:
        return f"even a gradient of rank 1 that is {max(tried):.0e} too large would not have been caught"
    passed = [excess for excess in tried if excess < rejected[0]]
    where = named(next(iter(tried.values())))
    missed = f"; {max(passed):.1g} would not" if passed else ""
    return f"rank 1's gradient scaled by 1 + {rejected[0]:.1g} ({where}, {numbers}) would have been caught{missed}"


def _representable(excess: float) -> float:
    """Two digits, so that the run's name is readable and the same on every machine; at least the rounding of 1."""
    return float(f"{max(excess, 2.0**-52):.1e}")

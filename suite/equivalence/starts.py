"""How the criteria of this area start their runs: with the same arguments, so that they share them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fixtures.audit import Audit
from fixtures.trace import Trace
from suite.equivalence.usable import worlds

Start = Callable[..., Trace]
"""audit.run with some of its arguments fixed."""

FIRST_STEPS = 2
CONTROLS = 5  # permuted one-device runs; three is the least the envelope takes, five bring its Student factor from 7.0 down to 3.7


def as_it_runs(audit: Audit) -> Start:
    """In the job's own numbers, the first gradient written down as well."""
    return partial(audit.run, level="gradient")


def exactly(audit: Audit) -> Start:
    """In float64 with dropout off."""
    return partial(audit.run, numerics="exact")


def first_gradient(audit: Audit) -> Start:
    """In float64 with dropout off, the first gradient written down, and no more steps than that takes."""
    return partial(audit.run, numerics="exact", level="full", steps=FIRST_STEPS)


def in_other_orders(start: Start) -> list[Trace]:
    """One device on the same samples in other orders: what rounding does."""
    return [start(world_size=1, permute=seed) for seed in range(1, CONTROLS + 1)]


def of_several(start: Start, largest: int) -> list[Trace]:
    """One run of each world of more than one rank."""
    return [start(world_size=count) for count in worlds(largest)[1:]]


def one_and_several(start: Start, largest: int) -> tuple[Trace, list[Trace], list[Trace]]:
    """One device, one device in other orders, and the ranks."""
    return start(world_size=1), in_other_orders(start), of_several(start, largest)

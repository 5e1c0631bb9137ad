"""Judge: the gradient is a mean over the batch, so a larger batch leaves its scale as it is.

A loss that is summed gives twice the gradient for twice the batch: the learning rate then means something else at every batch size, and Adam hides it. The
first step of a run with twice the global batch holds the same samples and more; each of them must weigh half there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import absent, named, rounding, undecided, unusable
from suite.equivalence.weights import Part, parts, ratios_to, weighed_steps


def batch_leaves_the_scale(pairs: Sequence[tuple[Trace, Trace]]) -> Finding:
    """Judge runs in pairs: as configured, and with a larger global batch."""
    if reason := unusable([trace for pair in pairs for trace in pair], "samples"):
        return undecided(reason)
    worst: tuple[float, float, str] | None = None
    compared = 0
    for usual, larger in pairs:
        if not weighed_steps(usual) or not weighed_steps(larger):
            said = usual.not_seen().get("row weights", "no gradient reached the model's output")
            return undecided(f"the weights of the samples were not seen: {said}")
        before, after = parts(usual, 1), parts(larger, 1)
        growth = [_count(after) / _count(before), _labels(after) / _labels(before)]
        if math.isclose(growth[0], 1.0):
            return absent(
                f"{named(usual)}: asked for twice the global batch, a step still takes {_count(before)} samples: [job] command names no {{global_batch}} or "
                "{per_rank_batch}, so the batch cannot be varied"
            )
        ratios = [ratio for values in ratios_to(before, after).values() for ratio in values]
        if not ratios:
            return undecided(f"{named(usual)}: the first step with twice the batch holds none of the samples of the usual one")
        middle, compared = float(np.median(ratios)), compared + len(ratios)
        tolerance = max(rounding(part.dtype) for part in before)
        spread = max(abs(ratio / middle - 1.0) for ratio in ratios)
        if spread > max(tolerance, abs(growth[0] / growth[1] - 1.0)):
            return undecided(
                f"{named(usual)}: samples change unequally with the batch, by {spread:.2g}: the model's output depends on the batch (BatchNorm)"
            )
        off = min(abs(middle * one - 1.0) for one in growth)
        if off > tolerance:
            return _rejected(usual, middle, growth[0], off, tolerance, compared)
        worst = max(worst or (off, tolerance, ""), (off, tolerance, ""))
    if worst is None:
        return undecided("no run was made with another batch")
    text = f"with a larger batch every sample weighs less in proportion, within {worst[0]:.2g}: the gradient is a mean, at every world size"
    return Finding(
        True,
        worst[0],
        "of the scale",
        worst[1],
        "at_most",
        text,
        samples=compared,
        power=f"a gradient that grows with the batch by {worst[1]:.1g}",
    )


def _rejected(usual: Trace, middle: float, growth: float, off: float, tolerance: float, compared: int) -> Finding:
    said = f"{named(usual)}: with {growth:.4g} times the batch each sample weighs {middle:.4g} times as much, not {1 / growth:.4g} times"
    cause = (
        "the loss is summed over its samples, so the gradient grows with the batch"
        if math.isclose(middle, 1.0, rel_tol=1e-3)
        else "the scale of the gradient depends on the batch"
    )
    return Finding(False, off, "of the scale", tolerance, "at_most", f"{said}: {cause}", samples=compared)


def _count(found: Sequence[Part]) -> int:
    return sum(len(part.samples) for part in found)


def _labels(found: Sequence[Part]) -> int:
    return sum(part.labels for part in found)

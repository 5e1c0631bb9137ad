"""Clipping by hand, with no torch function called: told from what one device's first steps did to their gradient.

Where both first steps multiplied every tensor by one factor below 1 and left the same norm, the job clips to that norm. What the ranks apply must then have no
larger one: parts clipped by norms of their own (each rank its shard) add up to more. Other changes by hand (noise, centralisation, averaging) are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import named

REPLICATED = "replicated"


def clipped_by_hand(alone: Trace, together: Sequence[Trace], bound: float) -> Finding | None:
    """Judge the norm of what every rank applied in the first steps; None where one device does not show that it clips, or ranks hold parts."""
    limit = hand_limit(alone, bound)
    if limit is None or any(_layouts(trace) != {REPLICATED} for trace in (alone, *together)):
        return None
    steps, worst = sorted(_seen(alone)), 0.0
    for trace in together:
        for step in steps:
            rows = trace.steps.loc[trace.steps["step"] == step]
            norms = dict(zip(rows["rank"].tolist(), rows["grad_norm"].astype("float64").tolist(), strict=True))
            if not norms or any(map(math.isnan, norms.values())):
                return None
            rank = max(norms, key=lambda one: norms[one])
            off = norms[rank] / limit - 1.0
            if off > bound:
                text = (
                    f"{named(trace)}: one device clips its gradient by hand to a norm of {limit:.4g}, but what rank {rank} applies in step {step} has one of "
                    f"{norms[rank]:.4g}: a local norm, such as one rank's shard has, is taken for that of the whole gradient"
                )
                return Finding(False, off, "of the norm", bound, "at_most", text, samples=len(steps), details={"step": step})
            if off < -bound:
                return None  # below the limit: not clipped there, or too hard; one norm does not tell
            worst = max(worst, abs(off))
    text = f"the gradient is clipped by hand to a norm of {limit:.4g} in each of the first {len(steps)} steps, at every world size (within {worst:.2g})"
    return Finding(
        True, worst, "of the norm", bound, "at_most", text, samples=len(steps), power=f"a norm that is off by {bound:.1g} of itself"
    )


def hand_limit(alone: Trace, bound: float) -> float | None:
    """The norm to which one device clips by hand: each of at least two first steps shrank all tensors by one factor, to one and the same norm."""
    seen = _seen(alone)
    if len(seen) < 2:
        return None
    applied = []
    for step, left in seen.items():
        held = alone.gradient_norms.loc[(alone.gradient_norms["step"] == step) & (alone.gradient_norms["rank"] == 0), "held"].tolist()
        largest = max((norm for norm in left if norm is not None), default=0.0)
        factors = [
            now / before
            for now, before in zip(held, left, strict=True)
            if before is not None and before > 1e-6 * largest and not math.isnan(now)
        ]
        if not factors or max(factors) - min(factors) > bound * max(factors) or max(factors) >= 1.0 - bound:
            return None
        applied.append(math.sqrt(sum(now * now for now in held if not math.isnan(now))))
    return applied[0] if applied[0] and max(applied) - min(applied) <= bound * max(applied) else None


def _seen(trace: Trace) -> dict[int, list[float | None]]:
    """By step: the norms of the gradients as the last backward left them, on rank 0."""
    rows: pd.DataFrame = trace.steps.loc[(trace.steps["rank"] == 0) & trace.steps["left_norms"].map(lambda norms: isinstance(norms, list))]
    return {int(step): list(norms) for step, norms in zip(rows["step"], rows["left_norms"], strict=True)}


def _layouts(trace: Trace) -> set[str]:
    return {str(entry.get("layout", REPLICATED)) for entry in trace.model()["parameters"]}

"""Judge: trained on a handful of samples, the job brings its loss down to nearly nothing.

The oldest sanity check there is, and the only one that needs no second run to compare with: a gradient that is cut off, an optimizer that holds other
parameters than the model, labels that belong to other rows, all leave a loss that cannot fall. It is done on any job, by giving it the same few rows again.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, undecided, unusable


def tiny_set_is_learnt(trace: Trace, share: float, rows: int) -> Finding:
    """Judge the losses of a run on `rows` samples. share: the largest part of the first loss that may be left at the end."""
    if reason := unusable(trace, "loss"):
        return undecided(reason)
    if not trace.fired("tiny_set"):
        return undecided(
            "the job's batches could not be replaced by a few rows: they pass neither a DataLoader nor the outermost module's inputs as tensors"
        )
    losses = np.asarray(trace.steps.groupby("step")["loss"].mean(), dtype=np.float64)
    if len(losses) < 8:
        return undecided(f"only {len(losses)} steps were made: raise [job] steps")
    first, last = float(losses[0]), _middle(losses, 0.75)  # an epoch's last batch may hold other rows: the median leaves it out
    if not math.isfinite(first) or first <= 0:
        return undecided(
            f"the first loss is {first:.4g}, and only of a positive one can a part be left: declare this criterion under [capabilities], with the reason"
        )
    left = last / first if math.isfinite(last) else math.inf
    said = (
        f"{named(trace)}: on {rows} samples the loss falls from {first:.4g} to {last:.4g} in {len(losses)} steps, {left:.2g} of it is left"
    )
    details = {"losses": losses}
    if left <= share:
        return Finding(True, left, "of the first loss", share, "at_most", said, samples=len(losses), details=details)
    if _no_gradient(trace):
        text = f"{said}: nothing is learnt: every gradient is zero in every step"
        return Finding(False, left, "of the first loss", share, "at_most", text, samples=len(losses), details=details)
    if _still_falling(losses) and left < 1:
        return undecided(f"{said} and it is still falling: raise [job] steps, or set [targets] overfit_loss_share")
    cause = (
        "nothing is learnt: gradients are cut off, the optimizer holds other parameters, or its rate is nothing"
        if left > 0.9
        else "it stays there"
    )
    return Finding(False, left, "of the first loss", share, "at_most", f"{said}: {cause}", samples=len(losses), details=details)


def _no_gradient(trace: Trace) -> bool:
    """Whether no step had any gradient: weight decay alone then moves the loss."""
    norms = trace.gradient_norms["norm"].dropna()
    return len(norms) > 0 and not norms.any()


def _middle(losses: NDArray[np.float64], begin: float) -> float:
    """The median from this part of the run on."""
    return float(np.median(losses[int(begin * len(losses)) :]))


def _still_falling(losses: NDArray[np.float64]) -> bool:
    """Whether the last quarter lies below all that was reached before it."""
    quarter = max(2, len(losses) // 4)
    return bool(np.median(losses[-quarter:]) < losses[:-quarter].min())

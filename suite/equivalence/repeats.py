"""Judge: the same run, started again, does the same thing: bit for bit, or within rounding where the job's kernels add in any order.

A job that differs from itself by more than rounding draws something without a seed, and no comparison with it means anything. Reproducibility flags of
frameworks ask for determinism; this says whether there is any.
"""

from __future__ import annotations

import math

import numpy as np

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, rounding, size, undecided, unusable


def run_repeats_itself(first: Trace, second: Trace) -> Finding:
    """Judge a run against its repeat."""
    if reason := unusable([first, second], "param_digest", "loss"):
        return undecided(reason)
    steps = int(first.steps["step"].max())
    if said := _other_start(first, second) or _other_samples(first, second):
        return Finding(False, 1, "steps", 0, "at_most", f"{named(first)}: {said}", samples=steps)
    bits = _first_difference(first, second, "param_digest")
    losses = _losses_apart(first, second)
    if not bits and not losses:
        text = f"{named(first)}: the repeat is the same bit for bit, in all parameters behind each of {steps} steps"
        return Finding(
            True, 0, "of the loss", 0, "at_most", text, samples=steps, power="one bit of one parameter", details={"bitwise": True}
        )
    step, value, words = losses or (bits, 0.0, "")
    bound = rounding("float32")
    if value > bound:
        text = f"{named(first)}: the repeat leaves the first run at step {step}: {words}, on the same samples and initial weights; something draws without a seed"
        return Finding(False, value, "of the loss", bound, "at_most", text, samples=steps, details={"bitwise": False, "step": step})
    text = f"{named(first)}: the repeat is not the same bit for bit (from step {bits or step} on), but leaves it no faster than rounding does: by {value:.2g} of the loss at step {step}"
    return Finding(True, value, "of the loss", bound, "at_most", text, samples=steps, details={"bitwise": False, "step": step})


def _other_start(first: Trace, second: Trace) -> str:
    for rank in range(size(first)):
        try:
            one, two = (trace.start(rank).get("param_digest") for trace in (first, second))
        except NotSeen:
            return ""
        if one != two:
            return f"the repeat begins from other weights (rank {rank}): they are drawn without a seed"
    return ""


def _other_samples(first: Trace, second: Trace) -> str:
    one, two = (trace.samples.set_index(["step", "rank", "position"])["sample"].sort_index() for trace in (first, second))
    if one.equals(two):
        return ""
    joined = one.to_frame("one").join(two.to_frame("two"), how="outer")
    step = int(joined.index.get_level_values("step")[joined["one"].ne(joined["two"])][0])
    return f"the repeat takes other samples from step {step} on, in content or order: shuffling or augmentation is not seeded"


def _first_difference(first: Trace, second: Trace, column: str) -> int:
    """The first step in which a column differs on any rank; 0 for none."""
    one, two = (trace.steps.set_index(["step", "rank"])[column].sort_index() for trace in (first, second))
    if not one.index.equals(two.index):
        return int(min(len(one), len(two)) // size(first) + 1)
    apart = one.index[one.ne(two)]
    return int(apart[0][0]) if len(apart) else 0


def _losses_apart(first: Trace, second: Trace) -> tuple[int, float, str] | None:
    """The first step whose loss differs, by how much of itself, and both."""
    one, two = (trace.steps.set_index(["step", "rank"])["loss"].sort_index() for trace in (first, second))
    together = one.to_frame("one").join(two.to_frame("two"), how="inner")
    apart = together.loc[together["one"].ne(together["two"]) & ~(together["one"].isna() & together["two"].isna())]
    if apart.empty:
        return None
    step = int(apart.index[0][0])
    here = apart.loc[apart.index.get_level_values("step") == step]
    off = np.abs(here["two"] - here["one"]) / np.maximum(np.abs(here["one"]), np.finfo(np.float64).tiny)
    worst = int(np.argmax(np.nan_to_num(off.to_numpy(), nan=np.inf)))
    value = float(off.iloc[worst]) if math.isfinite(float(off.iloc[worst])) else math.inf
    return step, value, f"its loss is {here['two'].iloc[worst]:.6g} where it was {here['one'].iloc[worst]:.6g}"

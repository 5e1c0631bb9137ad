"""Judge: a step of fewer micro-batches than usual, such as the last of an epoch, weighs as much as any other.

A trainer that divides every micro-batch's loss by the number that a full window has makes the last window of an epoch a smaller step than it should be
(it is the sum of 2 means, divided by 4). Nothing else shows it: all world sizes agree on it, the micro-batches of the window weigh alike, and a loss is
printed undivided. What all labels of a step weigh together is read off the gradient at the output: 1 for a mean over the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.ledger import epochs, ledger
from suite.equivalence.usable import named, rounding, undecided, unusable
from suite.equivalence.weights import Part, parts, total_weight, weighed_steps


def may_have_short_windows(alone: Trace) -> bool:
    """Whether one device's steps differ in their rows, or its loader drops what is left of an epoch: then a window in micro-batches may be short."""
    return not alone.samples.empty and (alone.steps["n_samples"].nunique() > 1 or epochs(ledger(alone)).tail == "dropped")


def short_windows_weigh_alike(traces: Sequence[Trace]) -> Finding:
    """Judge the steps that have fewer micro-batches than the others of their run, where those are a mean over their labels."""
    if reason := unusable(traces, "micro_batches"):
        return undecided(reason)
    judged, tolerance = 0, 0.0
    for trace in traces:
        totals = _totals(trace)
        full = max((count for count, total, _ in totals.values()), default=0)
        if full < 2 or not all(math.isclose(total, 1.0, rel_tol=near) for count, total, near in totals.values() if count == full):
            continue
        for step, (count, total, near) in sorted(totals.items()):
            if count == full:
                continue
            judged, tolerance = judged + 1, max(tolerance, near)
            if not math.isclose(total, 1.0, rel_tol=near) and math.isclose(total, count / full, rel_tol=near):
                text = (
                    f"{named(trace)}: step {step} has {count} micro-batches where others have {full}, and its labels weigh {total:.4g} together instead of 1: "
                    "each micro-batch is divided by the number in a full window all the same"
                )
                return Finding(False, abs(total - 1.0), "of a step's weight", near, "at_most", text, samples=judged)
    if not judged:
        return undecided("no step of fewer micro-batches than the others was seen whose labels could be weighed")
    text = f"the labels of each of {judged} steps with fewer micro-batches than the others weigh 1 together, as those of a full one do"
    return Finding(True, 0.0, "of a step's weight", tolerance, "at_most", text, samples=judged)


def _totals(trace: Trace) -> dict[int, tuple[int, float, float]]:
    """By step: micro-batches of a rank, what all labels weigh together on the average rank, and how near that is known."""
    found: dict[int, tuple[int, float, float]] = {}
    for step in weighed_steps(trace):
        labelled = [part for part in parts(trace, step) if part.labels]
        by_rank = [[part for part in labelled if part.rank == rank] for rank in trace.ranks]
        sums = [total_weight(own) for own in by_rank]
        counts = {len(own) for own in by_rank}
        if len(counts) == 1 and all(total is not None for total in sums):
            found[step] = (counts.pop(), sum(total or 0.0 for total in sums) / len(sums), _near(labelled))
    return found


def _near(found: Sequence[Part]) -> float:
    return max(rounding(part.dtype) for part in found)

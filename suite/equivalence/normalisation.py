"""Judge: a label weighs the same in the gradient, whichever rank it falls to.

A mean over a rank's own labels, averaged over ranks, is another loss than the mean over all labels as soon as the ranks have unequal counts. The weight of
every label is read off the gradient at the model's output, so the law (per label, per sample, per rank) is deduced and not asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, rounding, undecided, unusable
from suite.equivalence.weights import LAWS, Part, Weighing, by_ratio, by_weight, laws_within, parts, total_weight, weighed_steps

WAY_OUT = "return the logits from the outermost module, so that the gradient at them is seen"


def labels_weigh_alike(alone: Trace, together: Sequence[Trace]) -> Finding:
    """Judge the weights of the ranks' labels against each other, in every step in which they were seen."""
    if reason := unusable([alone, *together], "samples"):
        return undecided(reason)
    if not together:
        return undecided("there is only one rank to look at: start with --world-size 2")
    if not all(weighed_steps(trace) for trace in (alone, *together)):
        return undecided(f"{_unseen(alone, *together)}; {WAY_OUT}")
    largest, weighings, uneven = 0.0, 0, False
    tolerance, law = rounding("float64"), ""
    laws = next((fitting for step in weighed_steps(alone) if (fitting := laws_within(parts(alone, step)))), LAWS)
    for trace in together:
        for step in weighed_steps(trace):
            found = [part for part in parts(trace, step) if part.labels]
            weighing = by_weight(found, laws) or by_ratio(parts(alone, step), found)
            if weighing is None or len({rank for rank, _ in weighing.relative}) < 2:
                continue
            if weighing.spread > weighing.tolerance:
                return undecided(
                    f"{named(trace)}: samples of one rank differ among themselves by {weighing.spread:.2g} in what they weigh against one device: the model's "
                    "output depends on the batch (BatchNorm) or on chance, so weights cannot be compared"
                )
            tolerance, law, weighings = max(tolerance, weighing.tolerance), weighing.law, weighings + 1
            largest, uneven = max(largest, weighing.largest), uneven or len(set(_labels(found).values())) > 1
            if weighing.largest > weighing.tolerance:
                return _rejected(f"{named(trace)}: {_why(step, found, weighing)}", weighing)
    if not weighings:
        return undecided("no sample of the ranks is one of one device's, and the loss is no cross-entropy whose weights could be read off")
    return _accepted(alone, largest, tolerance, law, weighings, uneven)


def _accepted(alone: Trace, largest: float, tolerance: float, law: str, weighings: int, uneven: bool) -> Finding:
    whole = total_weight(parts(alone, weighed_steps(alone)[0]))
    mean = "" if whole is None else f"; on one device they add up to {whole:.6g}{' (a mean)' if abs(whole - 1) < 1e-6 else ''}"
    counts = "" if uneven else "; each rank had as many as the others, so a mean over each rank's own could not be told apart"
    text = f"every {law} weighs the same on every rank, within {largest:.2g}{mean}{counts}"
    power = f"a rank whose {law}s weigh {tolerance:.1g} more"
    return Finding(
        True,
        largest,
        f"of a {law}'s weight",
        tolerance,
        "at_most",
        text,
        samples=weighings,
        power=power,
        details={"law": law, "total_weight": whole},
    )


def _why(step: int, found: Sequence[Part], weighing: Weighing) -> str:
    """The worst rank, and whether the ranks' own counts explain it."""
    by_rank: dict[int, float] = {}
    for (rank, _), value in weighing.relative.items():
        by_rank.setdefault(rank, value)
    rank = max(by_rank, key=lambda one: abs(by_rank[one] - 1.0))
    labels, samples = _labels(found), _samples(found)
    said = f"in step {step} rank {rank}'s {weighing.law}s weigh {by_rank[rank]:.4g} times rank {min(by_rank)}'s"
    for name, counts in (("labels", labels), ("samples", samples)):
        if _explained(by_rank, counts):
            listed = ", ".join(str(counts[one]) for one in sorted(counts))
            return f"{said}: each rank divides by its own count of {name} ({listed}), not by the global one"
    if len({rank for rank, _ in weighing.relative}) == len(by_rank) and len(weighing.relative) > len(by_rank):
        return f"{said}, or its micro-batches differ: the loss is normalised otherwise there"
    return f"{said}: its loss is multiplied or normalised otherwise"


def _explained(by_rank: Mapping[int, float], counts: Mapping[int, int]) -> bool:
    """Whether the weights are as the reciprocals of each rank's count."""
    first = min(by_rank)
    if len(set(counts.values())) < 2 or not all(counts.values()):
        return False
    return all(abs(by_rank[rank] * counts[rank] / counts[first] - 1.0) < 1e-3 for rank in by_rank)


def _labels(found: Sequence[Part]) -> dict[int, int]:
    return {rank: sum(part.labels for part in found if part.rank == rank) for rank in {part.rank for part in found}}


def _samples(found: Sequence[Part]) -> dict[int, int]:
    return {rank: sum(len(part.samples) for part in found if part.rank == rank) for rank in {part.rank for part in found}}


def _unseen(*traces: Trace) -> str:
    said = next(
        (trace.not_seen()["row weights"] for trace in traces if "row weights" in trace.not_seen()), "no gradient reached the model's output"
    )
    return f"the weights of the samples were not seen: {said}"


def _rejected(text: str, weighing: Weighing) -> Finding:
    return Finding(
        False, weighing.largest, f"of a {weighing.law}'s weight", weighing.tolerance, "at_most", text, samples=len(weighing.relative),
        details={"table": {"columns": ["rank", "micro-batch", "weight"], "rows": [[*place, value] for place, value in weighing.relative.items()]}},
    )  # fmt: skip

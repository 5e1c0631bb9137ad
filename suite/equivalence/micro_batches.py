"""Judge: a step of K micro-batches applies the gradient of one batch.

Two ways to know. Where the job can be told to accumulate, it is run whole and in parts, and the gradients are held against each other. Where it cannot, what
each label weighs is read off the gradient at the model's output: it must not depend on the micro-batch that the label falls into.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.cause import fit
from suite.equivalence.gradient import deviation, noise_of
from suite.equivalence.usable import absent, named, undecided, unusable
from suite.equivalence.weights import Part, Weighing, by_ratio, by_weight, is_ambiguous, parts, total_weight, weighed_steps

OPTION = 'name the option under [job] as accumulate = "--accumulate {micro_batches}"'


def parts_are_the_whole(alone: Trace, permuted: Sequence[Trace], whole: Trace, split: Trace) -> Finding:
    """Judge the first gradient of a run in micro-batches against the same job's in one. alone, permuted: one device in several orders, for the noise."""
    if reason := unusable([alone, *permuted, whole, split], "gradient"):
        return undecided(reason)
    made = [int(trace.steps["micro_batches"].iloc[0]) for trace in (whole, split)]
    if made[0] >= made[1]:
        return undecided(
            f"asked for more micro-batches, the job made {made[1]} backwards in a step instead of {made[0]}: correct [job] accumulate"
        )
    noise = noise_of(alone, permuted)
    if noise.reason:
        return undecided(noise.reason)
    name, value = deviation(whole, split)
    text = f"{named(split)}: the first gradient in {made[1]} micro-batches deviates from that in {made[0]} by {value:.2g} at most (tensor {name})"
    if value > noise.bound:
        text = f"{named(split)}: {_why_split(whole, split, made[1] // made[0])}; tensor {name} deviates most, by {value:.2g} of its norm"
    return Finding(
        value <= noise.bound, value, "of the tensor's norm", noise.bound, "at_most", f"{text}; rounding alone explains {noise.bound:.2g}",
        samples=made[1], provenance="measured" if noise.measured else "calculated", power=f"a gradient in parts that is off by {noise.bound:.1g}",
        details={"controls": list(noise.controls), "micro_batches": made[1]},
    )  # fmt: skip


def micro_batches_weigh_alike(traces: Sequence[Trace]) -> Finding:
    """Judge by what labels weigh in each micro-batch of the job's own steps."""
    if reason := unusable(traces, "micro_batches"):
        return undecided(reason)
    most = max(int(trace.steps["micro_batches"].max()) for trace in traces)
    if most < 2:
        steps = sum(len(trace.steps) for trace in traces)
        return absent(f"each of {steps} steps made one backward, so nothing is accumulated; if the job can, {OPTION}")
    compared, tolerance, largest = 0, 0.0, 0.0
    for trace in traces:
        for step in weighed_steps(trace):
            found = [part for part in parts(trace, step) if part.labels]
            for rank in sorted({part.rank for part in found}):
                own = [part for part in found if part.rank == rank]
                weighing = by_weight(own)
                if weighing is None or is_ambiguous(own):
                    continue
                compared, tolerance, largest = compared + 1, max(tolerance, weighing.tolerance), max(largest, weighing.largest)
                if said := _uneven(step, own, weighing) or _not_divided(own, len(own)):
                    value = max(weighing.largest, abs((total_weight(own) or 1.0) - 1.0))
                    return Finding(
                        False, value, "of a label's weight", weighing.tolerance, "at_most", f"{named(trace)}: {said}", samples=compared
                    )
    if not compared:
        return undecided(
            f"{most} micro-batches make a step, but what their labels weigh cannot be read off this loss, or fits a mean over samples as well: {OPTION}"
        )
    text = f"a label weighs the same in each of up to {most} micro-batches of a step ({compared} steps of ranks)"
    return Finding(
        True,
        largest,
        "of a label's weight",
        tolerance,
        "at_most",
        text,
        samples=compared,
        power=f"a micro-batch that weighs {tolerance:.1g} more",
    )


def _uneven(step: int, own: Sequence[Part], weighing: Weighing) -> str:
    if weighing.largest <= weighing.tolerance:
        return ""
    (rank, micro), value = max(weighing.relative.items(), key=lambda item: abs(item[1] - 1.0))
    said = f"in step {step} {weighing.law}s of micro-batch {micro} weigh {value:.4g} times those of the first on rank {rank}"
    counts = {part.micro: part.labels for part in own}
    if _reciprocal({place[1]: one for place, one in weighing.relative.items()}, counts):
        return f"{said}: each micro-batch divides by its own count ({', '.join(str(one) for one in counts.values())} labels), not by the step's"
    return f"{said}: it is normalised otherwise"


def _not_divided(own: Sequence[Part], count: int) -> str:
    """The means of all micro-batches added up, in words."""
    whole = total_weight(own)
    if count > 1 and whole is not None and math.isclose(whole, count, rel_tol=1e-6):
        return (
            f"the labels of a step weigh {whole:.4g} together = micro-batches per step: means are added up without dividing by their number"
        )
    return ""


def _reciprocal(weights: Mapping[int, float], counts: Mapping[int, int]) -> bool:
    first = min(counts)
    return len(set(counts.values())) > 1 and all(
        abs(weights[one] * counts[one] / counts[first] - 1.0) < 1e-3 for one in weights if counts.get(one)
    )


def _why_split(whole: Trace, split: Trace, times: int) -> str:
    step = 1
    found = [part for part in parts(split, step) if part.labels]
    weighing = by_ratio(parts(whole, step), found) or by_weight(found)
    if weighing is not None and weighing.spread <= weighing.tolerance and weighing.largest > weighing.tolerance:
        first = min(part.rank for part in found)
        own = [part for part in found if part.rank == first]
        if said := _uneven(step, own, _of_rank(weighing, first)):
            return said
    factor, residual = fit(whole.gradients(), split.gradients())
    if residual < 1e-6 and math.isclose(factor, times, rel_tol=1e-6):
        return f"gradients differ by exactly {factor:.4g} = micro-batches per step: they are added up without dividing by their number"
    if residual < 1e-6:
        return f"all gradients differ by one factor, {factor:.6g}"
    return "a step in micro-batches applies another gradient than a step in one, and no single factor explains it"


def _of_rank(weighing: Weighing, rank: int) -> Weighing:
    own = {place: value for place, value in weighing.relative.items() if place[0] == rank}
    first = next(iter(own.values()))
    return Weighing({place: value / first for place, value in own.items()}, weighing.spread, weighing.tolerance, weighing.law)

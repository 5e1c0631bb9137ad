"""Judge: the first step's gradient is the one that a single device computes on the same samples, tensor by tensor.

Adam hides a wrong scale from the loss, so gradients are compared, not losses; and the first step's, before chaos can grow. What rounding may do is
measured on the job itself: one device on the same samples in another order. A bound from rounding theory caps that, so a job whose own randomness
made the measurement large cannot buy itself a wide bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF, noise_envelope, reduction_bound
from suite.equivalence.cause import Contributions, why_gradients_differ
from suite.equivalence.ledger import Samples, ledger
from suite.equivalence.recognition import unrecognisable
from suite.equivalence.sharing import holding_parts
from suite.equivalence.usable import named, size, undecided, unusable

Gradient = Mapping[str, NDArray[np.float64]]
SMALL_TENSOR = 1e-3
BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Noise:
    """What rounding alone does to a gradient. bound: largest relative deviation of a tensor that counts as noise; controls: the deviation
    of each permuted run; cap: from theory. reason: why there is no bound, "" where there is one.
    """

    bound: float
    controls: tuple[float, ...]
    cap: float
    measured: bool
    reason: str = ""


def gradients_agree(
    alone: Trace, permuted: Sequence[Trace], together: Sequence[Trace], shares: Mapping[int, Contributions] | None = None, power: str = ""
) -> Finding:
    """Judge the first gradients of several world sizes against one device's.

    permuted: one-device runs on the same samples in other orders. shares: by world size, each rank's part of the gradient, where it was taken
    apart to find who is to blame. power: the smallest fault that this bound rejects, in words.
    """
    if reason := unusable([alone, *permuted, *together], "gradient"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    noise = noise_of(alone, permuted)
    if noise.reason:
        return undecided(noise.reason, controls=list(noise.controls))
    worst = max(together, key=lambda trace: deviation(alone, trace)[1])
    name, value = deviation(alone, worst)
    text = f"{named(worst)}: the first gradient deviates from one device's by {value:.2g} at most (tensor {name})"
    if value > noise.bound:
        if reason := _strange_rows(alone, worst):
            return undecided(reason, controls=list(noise.controls))
        text = f"{named(worst)}: {_why(alone, worst, noise, (shares or {}).get(size(worst)))}; tensor {name} deviates most, by {value:.2g} of its norm"
    rounding = f"rounding alone explains {noise.bound:.2g}"
    details = {"controls": list(noise.controls), "cap": noise.cap, "worst_tensor": name, "table": table(alone, together)}
    return Finding(
        value <= noise.bound, value, "of the tensor's norm", noise.bound, "at_most", f"{text}; {rounding}",
        samples=1 + len(permuted), provenance="measured" if noise.measured else "calculated", power=power, details=details,
    )  # fmt: skip


def noise_of(alone: Trace, permuted: Sequence[Trace]) -> Noise:
    """Measure what another order of the same samples does to the gradient, and cap it by what the rounding of a sum can do at most.

    condition: samples that cancel to less than one of them, or to less than a thousandth of the whole gradient, are not measured by their own norm.
    """
    roundoff, terms = _roundoff(alone), _terms(alone)
    cap = reduction_bound(terms, roundoff, condition=max(float(terms), 1.0 / SMALL_TENSOR))
    moved = [trace for trace in permuted if another_order(alone, trace)]
    controls = tuple(deviation(alone, trace)[1] for trace in moved)
    if len(controls) < 3:  # the job draws its batches past any DataLoader: nothing was permuted, only theory is left
        return Noise(cap, controls, cap, measured=False)
    if max(controls) > cap:
        reason = (
            f"one device on the same samples in another order already deviates by {max(controls):.2g}, more than rounding can explain ({cap:.2g}): "
            "the job draws random numbers of its own (or computes below its parameters' precision), so no world size can be compared with it"
        )
        return Noise(math.nan, controls, cap, measured=True, reason=reason)
    envelope = noise_envelope([[control] for control in controls], floor=roundoff)
    return Noise(min(float(envelope.bound[0]), cap), controls, cap, measured=True)


def deviation(alone: Trace, other: Trace) -> tuple[str, float]:
    """The tensor that deviates most, over all ranks, and by how much of its norm."""
    every = [item for rank in range(size(other)) for item in deviations(alone.gradients(), other.gradients(rank)).items()]
    return max(every, key=lambda item: item[1])


def deviations(reference: Gradient, other: Gradient) -> dict[str, float]:
    """|other - reference| / |reference| per tensor, in the 2-norm; infinite for a tensor that is missing or not finite.

    A tensor whose norm is below a thousandth of the whole gradient's is measured against that thousandth: a gradient that is zero but for
    rounding (a bias that a softmax ignores) consists of the rounding errors of much larger terms, and its own norm says nothing.
    """
    whole = math.sqrt(sum(float(np.vdot(value, value)) for value in reference.values()))
    found = {}
    for name, value in reference.items():
        difference = float(np.linalg.norm(other[name] - value)) if name in other and other[name].shape == value.shape else math.inf
        scale = max(float(np.linalg.norm(value)), SMALL_TENSOR * whole)
        found[name] = difference / scale if math.isfinite(difference) and scale > 0 else (0.0 if difference == 0 else math.inf)
    return found


def another_order(alone: Trace, other: Trace) -> bool:
    """Whether the first step took the same samples in another order."""
    first, second = (trace.samples.loc[trace.samples["step"] == 1].sort_values("position")["sample"].tolist() for trace in (alone, other))
    return first != second and sorted(first) == sorted(second)


def table(alone: Trace, together: Sequence[Trace], rows: int = 8) -> dict[str, list[object]]:
    """The tensors that deviate most, one column per world size, for the page."""
    by_size = {size(trace): deviations(alone.gradients(), trace.gradients()) for trace in together}
    worst = sorted(next(iter(by_size.values())), key=lambda name: -max(found[name] for found in by_size.values()))[:rows]
    return {
        "columns": ["tensor", *(f"{count} ranks" for count in by_size)],
        "rows": [[name, *(found[name] for found in by_size.values())] for name in worst],
    }


def _why(alone: Trace, worst: Trace, noise: Noise, shares: Contributions | None) -> str:
    if not same_mix(ledger(alone).at(1), ledger(worst).at(1)):
        return "the first step takes other samples than one device's, so its gradient is another one (equivalence.data_order names them)"
    ranks = {rank: worst.gradients(rank) for rank in range(size(worst))}
    own, micro_batches = (int(trace.steps["micro_batches"].fillna(1).iloc[0]) for trace in (alone, worst))
    why = why_gradients_differ(alone.gradients(), ranks, micro_batches, 10 * noise.bound, shares, own)
    return f"{why}{_reduced_again(worst)}{_batch_statistics(worst)}"


def _strange_rows(alone: Trace, worst: Trace) -> str:
    """Why the first step's rows cannot be held against one device's, "" where they can: a gradient on random rows is another one."""
    single, ranks = ledger(alone), ledger(worst)
    return "" if same_mix(single.at(1), ranks.at(1)) else unrecognisable(single, ranks, "equivalence.gradient")


def same_mix(expected: Samples, seen: Samples) -> bool:
    """The same samples in the same proportions: a batch that every rank repeats as a whole has the mean gradient of that batch."""
    rows, wanted = sum(seen.values()), sum(expected.values())
    return all(seen[sample] * wanted == expected[sample] * rows for sample in seen.keys() | expected.keys())


def _reduced_again(trace: Trace) -> str:
    """Whether the first step reduces more bytes than its gradient has, in words: then sums of earlier micro-batches are reduced again.

    Ranks that hold parts of the same layers reduce activations as well.
    """
    if holding_parts(trace):
        return ""
    calls = trace.collectives.loc[(trace.collectives["step"] == 1) & (trace.collectives["rank"] == 0)]
    reduced = float(calls.loc[calls["op"].str.contains("reduce"), "bytes"].sum())
    whole = sum(int(parameter["numel"]) * BYTES.get(str(parameter["dtype"]), 4) for parameter in trace.model()["parameters"])
    times = reduced / whole
    return f" (the step reduces {times:.1f} times its gradient's bytes: what is reduced already is reduced again)" if times > 1.5 else ""


def _batch_statistics(trace: Trace) -> str:
    """Whether the model normalises by statistics of a batch, in words: a smaller batch per rank then has other ones."""
    normalised = any(str(name).endswith("running_mean") for name in trace.model()["buffers"])
    return (
        " (the model has batch statistics: unless they are synchronised, each rank normalises by its own share of the batch)"
        if normalised
        else ""
    )


def _roundoff(trace: Trace) -> float:
    """The coarsest precision among the parameters: gradients are no finer than that."""
    types = {str(parameter["dtype"]).removeprefix("torch.") for parameter in trace.model()["parameters"]}
    return max(UNIT_ROUNDOFF.get(kind, UNIT_ROUNDOFF["float64"]) for kind in types)


def _terms(trace: Trace) -> int:
    """How many numbers a gradient's element may be summed from: the samples of a step and the widest layer."""
    first = ledger(trace).at(1)
    widest = max((max(parameter["shape"], default=1) for parameter in trace.model()["parameters"]), default=1)
    return max(sum(first.values()), 1) + int(widest)

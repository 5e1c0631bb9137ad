"""Judge: the parts that the ranks of a sharded model hold are parts of one model, kept in step.

No two ranks need hold the same number then, so there is nothing to compare bit for bit. What is compared instead: the parts make up every parameter
without gap or overlap, all ranks step with one learning rate and one clip norm, and the gradients that the ranks applied to their parts, put together,
have the norm of one device's gradient, tensor by tensor and step by step, within the noise that the job itself shows. torch's own tests of FSDP compare
gathered parameters at the end and would gather here too; this needs no collective, covers every step, and names the rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fixtures.shards import Place, held, peers
from fixtures.trace import Trace
from reports.statistics import UNIT_ROUNDOFF, noise_envelope
from suite.equivalence.gradient import SMALL_TENSOR, another_order
from suite.equivalence.usable import named, size, unusable

FEWEST_CONTROLS = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """accepted: None where it cannot be told; text: one clause; steps: how many are off, from step `first` on."""

    accepted: bool | None
    text: str
    first: int = 0
    steps: int = 0


def sharded(trace: Trace) -> bool:
    """Whether any parameter of the run is spread over ranks."""
    return any("placed" in one for record in trace.records if record["kind"] == "model" for one in record["parameters"])


def parts_agree(trace: Trace, alone: Trace, permuted: Sequence[Trace], numerics: str = "as_run") -> Parts:
    """Judge the parts of one run. alone, permuted: one device on the same samples, and in other orders."""
    if reason := torn(trace) or _unequal_settings(trace):
        return Parts(False, f"{named(trace)}: {reason}")
    if reason := unusable([alone, *permuted, trace], "grad_norm"):
        return Parts(None, reason)
    controls = [norm_deviation(alone, other) for other in permuted if another_order(alone, other)]
    if len(controls) < FEWEST_CONTROLS:
        return Parts(
            None,
            f"{named(trace)}: each rank holds another part of the model, and the noise of its gradient norms cannot be measured: {_WAY_OUT}",
        )
    series = norm_deviation(alone, trace)
    length = min(len(series), *(len(control) for control in controls))
    if not length or not all(np.isfinite(control).all() for control in controls):
        return Parts(
            None,
            f"{named(trace)}: one device's own gradient norms are not finite numbers in every step, so there is nothing to compare with",
        )
    floor = UNIT_ROUNDOFF["float64" if numerics == "exact" else "float32"]
    envelope = noise_envelope([control[:length] for control in controls], floor=floor)
    outside = np.flatnonzero(series[:length] > envelope.bound)
    if len(outside):
        first = int(outside[0]) + 1
        return Parts(False, f"{named(trace)}: {_explain(trace, alone, first, len(outside))}", first, len(outside))
    nearest = int(np.argmax(series[:length] / envelope.bound))
    return Parts(
        True,
        f"where each rank holds another part the parts make up the model, and the gradients applied to them have one device's norms in every step, nearest at step "
        f"{nearest + 1} ({series[nearest]:.2g} of {envelope.bound[nearest]:.2g}; {envelope.left_out} of {envelope.controls} controls outside the others' envelope)",
    )


_WAY_OUT = "no batch could be permuted; read the batches through a torch DataLoader"


def norm_deviation(alone: Trace, other: Trace) -> NDArray[np.float64]:
    """By common step, the largest deviation of a tensor's gradient norm from one device's, relative to that norm.

    A tensor below a thousandth of the whole gradient is measured against that thousandth.
    """
    reference, seen = _norms(alone), _norms(other)
    found = []
    for step in sorted(set(reference) & set(seen)):
        whole = math.sqrt(sum(norm * norm for norm in reference[step].values()))
        off = [
            abs(seen[step].get(name, math.inf) - norm) / max(norm, SMALL_TENSOR * whole, np.finfo(np.float64).tiny)
            for name, norm in reference[step].items()
        ]
        found.append(max(off, default=0.0))
    return np.asarray(found, dtype=np.float64)


def torn(trace: Trace) -> str:
    """Where the parts of a parameter leave a gap or overlap, in words; "" where they make up every parameter."""
    for name, (shape, places) in _places(trace).items():
        for rank, place in places.items():
            among = {other: places[other] for other in peers(rank, place) if other in places}
            numel = math.prod(shape)
            kept = sum(held(one) for one in among.values())
            if any(_common(one["runs"], two["runs"]) for one, two in combinations(among.values(), 2)):
                return f"ranks {sorted(among)} hold overlapping parts of {name}"
            if kept != numel:
                return f"ranks {sorted(among)} together hold {kept} of the {numel} numbers of {name}"
    return ""


def _explain(trace: Trace, alone: Trace, step: int, count: int) -> str:
    rank, factor = _blamed(trace, alone, step)
    if rank is None:
        return (
            f"the gradients applied to the ranks' parts of the parameters differ from one device's from step {step} on, in {count} steps, "
            "and no single rank's part explains it better than the others'"
        )
    return (
        f"rank {rank}'s part of the parameters differs from one device's from step {step} on, in {count} steps: it applied another gradient, "
        f"{factor:.4g} times what it should be"
    )


def _blamed(trace: Trace, alone: Trace, step: int) -> tuple[int | None, float]:
    """The rank whose part, changed by one factor throughout, explains the norms of a step; None where none does, or several do as well (ranks that
    hold equal shares of every tensor: half of one is a quarter less of the other).
    """
    reference = _norms(alone)[step]
    rows = trace.gradient_norms.loc[trace.gradient_norms["step"] == step]
    parts: dict[int, dict[str, float]] = {
        int(str(rank)): dict(zip(own["name"], own["held"], strict=True)) for rank, own in rows.groupby("rank")
    }
    found: list[tuple[float, int, float]] = []
    for rank in sorted(parts):
        factors = [factor for name, norm in reference.items() if (factor := _factor(trace, rank, parts, name, norm)) is not None]
        if factors and min(factors) > 0:
            logs = np.log(factors)
            found.append((float(logs.std()), rank, float(np.exp(np.median(logs)))))
    scatter, rank, factor = min(found, default=(math.inf, -1, 1.0))
    as_well = [one for one in found if one[0] <= max(scatter, UNIT_ROUNDOFF["float32"])]
    # factors that scatter by more than a tenth are none
    return (rank, factor) if scatter < math.log(1.1) and len(as_well) == 1 else (None, 1.0)


def _factor(trace: Trace, rank: int, parts: Mapping[int, Mapping[str, float]], name: str, norm: float) -> float | None:
    """What this rank's part of a tensor's gradient was multiplied by if all other parts are right; 0 where that is impossible."""
    place = _places(trace).get(name, ((), {}))[1].get(rank)
    if place is None or not parts[rank].get(name):
        return None
    others = sum(parts[other].get(name, 0.0) ** 2 for other in peers(rank, place) if other != rank and other in parts)
    left = norm * norm - others
    return parts[rank][name] / math.sqrt(left) if left > 0 else 0.0


def _unequal_settings(trace: Trace) -> str:
    """Learning rates or clip norms that differ between ranks in one step, in words."""
    for step, rows in trace.steps.groupby("step"):
        for column, words in (("lr", "learning rate"), ("clip_norm", "clip norm")):
            by_rank = {rank: repr(value) for rank, value in zip(rows["rank"], rows[column], strict=True) if value == value}
            if len(set(by_rank.values())) > 1:
                first, other = next((one, two) for one, two in combinations(sorted(by_rank), 2) if by_rank[one] != by_rank[two])
                return f"rank {other}'s {words} is {by_rank[other]} where rank {first}'s is {by_rank[first]} in step {step}, so their parts are not of one model"
    return ""


def _norms(trace: Trace) -> dict[int, dict[str, float]]:
    """Step -> name -> norm of the whole gradient, as the lowest rank sees it."""
    rows = trace.gradient_norms.loc[trace.gradient_norms["rank"] == min(trace.ranks, default=0)]
    return {int(str(step)): dict(zip(own["name"], own["norm"], strict=True)) for step, own in rows.groupby("step")}


def _places(trace: Trace) -> dict[str, tuple[Sequence[int], dict[int, Place]]]:
    """Parameter -> its whole shape, and where each rank's part of it lies; only parameters that are spread."""
    found: dict[str, tuple[Sequence[int], dict[int, Place]]] = {}
    for rank in range(size(trace)):
        for one in trace.model(rank)["parameters"]:
            if "placed" in one:
                found.setdefault(one["name"], (one["shape"], {}))[1][rank] = one["placed"]
    return found


def _common(one: Sequence[Sequence[Sequence[int]]], two: Sequence[Sequence[Sequence[int]]]) -> bool:
    """Whether two parts have a number in common: their runs meet in every dimension."""
    return all(
        any(max(a, b) < min(a + m, b + n) for a, m in mine for b, n in others) for mine, others in zip(one, two, strict=True)
    )  # fmt: skip

"""Judge: as the job runs, in its own precision, its first gradient differs from one device's by rounding alone, and no reduction rounds it further.

A sum over ranks in bfloat16 keeps three digits and loses more with every rank (pytorch#106395): stable on few, unstable on many. The dtype of every
reduction is seen, and its noise is measured: one device, the same samples in other orders, against the ranks. Megatron-LM's own test accepts 8 %.
"""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF
from suite.equivalence.gradient import deviation, noise_of, same_mix, table
from suite.equivalence.ledger import ledger
from suite.equivalence.usable import named, several, undecided, unusable

BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def reductions_keep_precision(alone: Trace, permuted: Sequence[Trace], together: Sequence[Trace], power: str = "") -> Finding:
    """Judge the dtype of every reduction of gradients, then the first gradients as the job computes them."""
    runs = several(together)
    if reason := unusable([alone, *permuted, *together]):
        return undecided(reason)
    if not runs:
        return undecided("there is only one rank, nothing is reduced: start with --world-size 2")
    seen = {dtype for trace in runs for dtype in reduced(trace)}
    if not seen:
        return undecided(
            "no reduction of gradients was seen in the first steps: they are reduced past torch.distributed's operations, or not at all"
        )
    kept = coarsest([str(entry["dtype"]).removeprefix("torch.") for entry in alone.model()["parameters"]])
    coarse = coarsest(seen)
    measured = _measured(alone, permuted, runs)
    if UNIT_ROUNDOFF.get(coarse, 1.0) > UNIT_ROUNDOFF.get(kept, 0.0):
        said = f"gradients of {kept} parameters are reduced in {coarse}, which keeps {BITS.get(coarse, '?')} bits: each sum over ranks is rounded to them, and more ranks round more"
        unit = UNIT_ROUNDOFF.get(coarse)
        text = f"{named(runs[-1])}: {said}{'' if measured is None else f'; the first gradient deviates by {measured[1]:.2g}'}"
        return Finding(False, unit, "of a sum", UNIT_ROUNDOFF.get(kept), "at_most", text, samples=len(runs))
    return _judged(alone, permuted, runs, f"gradients are reduced in {coarse}, as their parameters are kept", measured, power)


def reduced(trace: Trace) -> dict[str, int]:
    """Bytes of gradient that were handed to reductions in the first steps, by dtype."""
    found: dict[str, int] = {}
    for row in trace.steps["reduced"]:
        for dtype, size in (row or {}).items():
            found[dtype] = found.get(dtype, 0) + int(size)
    return found


def coarsest(dtypes: Sequence[str] | set[str]) -> str:
    """The dtype that rounds most; one that is not known counts as coarsest of all."""
    return max(sorted(dtypes), key=lambda dtype: UNIT_ROUNDOFF.get(dtype, 1.0))


def _measured(alone: Trace, permuted: Sequence[Trace], runs: Sequence[Trace]) -> tuple[str, float] | None:
    """The tensor and world that deviate most, None where first gradients were not written down."""
    if unusable([alone, *permuted, *runs], "gradient"):
        return None
    name, value, trace = max(((*deviation(alone, trace), trace) for trace in runs), key=lambda item: item[1])
    return f"{named(trace)}, tensor {name}", value


def _judged(
    alone: Trace, permuted: Sequence[Trace], runs: Sequence[Trace], dtypes: str, measured: tuple[str, float] | None, power: str
) -> Finding:
    if measured is None:
        reason = unusable([alone, *permuted, *runs], "gradient")
        return Finding(True, None, "", None, "at_most", f"{dtypes}; their noise could not be measured ({reason})", samples=len(runs))
    if any(not same_mix(ledger(alone).at(1), ledger(trace).at(1)) for trace in runs):
        return Finding(
            True, None, "", None, "at_most", f"{dtypes}; their noise could not be measured: the ranks' first step takes other samples than one device's",
            samples=len(runs),
        )  # fmt: skip
    noise = noise_of(alone, permuted)
    if noise.reason:
        return Finding(True, None, "", None, "at_most", f"{dtypes}; their noise could not be measured: {noise.reason}", samples=len(runs))
    where, value = measured
    floor = sorted(noise.controls)[len(noise.controls) // 2] if noise.controls else noise.bound
    said = f"{dtypes}; as the job computes, the first gradient deviates from one device's by {value:.2g} at most ({where})"
    said += (
        f" where other orders of the samples on one device do by {floor:.2g} (noise floor) and rounding alone explains {noise.bound:.2g}"
    )
    if value > noise.bound:
        said += f": rounding does not{_of_the_size_of(value)}"
    details = {"controls": list(noise.controls), "cap": noise.cap, "noise_floor": floor, "table": table(alone, runs)}
    smallest = f"a first gradient that is off by {noise.bound:.1g} of a tensor's norm, {noise.bound / floor:.1f} times the noise floor"
    return Finding(
        value <= noise.bound, value, "of the tensor's norm", noise.bound, "at_most", said, samples=1 + len(permuted),
        provenance="measured" if noise.measured else "calculated", power="; ".join(filter(None, (smallest, power))), details=details,
    )  # fmt: skip


def _of_the_size_of(value: float) -> str:
    """A coarser dtype whose rounding is of this size, in words."""
    near = [dtype for dtype in ("bfloat16", "float16") if UNIT_ROUNDOFF[dtype] / 8 < value < UNIT_ROUNDOFF[dtype] * 4]
    return f" (it is of the size of {near[0]}'s: a communication hook, or a cast before the reduction?)" if near else ""

"""Judge: where gradients are clipped, by the norm of the whole gradient, the same on every rank, and without turning it.

A norm of a rank's own shard, or of its gradient before the reduction, clips each rank otherwise; one that counts replicas twice clips too hard. The norm that
the job used is held against the gradient that it had, and what the optimizer got against what was there before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF, random_walk_bound
from suite.equivalence.hand_clipping import clipped_by_hand
from suite.equivalence.usable import absent, named, size, undecided, unusable

DEVIATIONS = 10.0  # of the random walk of roundings: never reached by chance


def clipping_is_global(alone: Trace, together: Sequence[Trace]) -> Finding:
    """Judge norm and direction of every clipping in every run."""
    traces = [alone, *together]
    if reason := unusable(traces):
        return undecided(reason)
    steps = sum(len(trace.steps) for trace in traces)
    clips = [clip for trace in traces for clip in trace.steps["clip"] if clip]
    if not clips:
        return clipped_by_hand(alone, together, _bound(alone)) or _no_clipping(alone, steps)
    if all(clip["by"] == "value" for clip in clips):
        return absent(
            f"the gradient is clipped element by element ({len(clips)} times), which knows no norm; it is the same on every rank that has the same gradient"
        )
    bound, worst = _bound(alone), 0.0
    for trace in together:
        if any(trace.steps["clip"]) or not any(alone.steps["clip"]):
            continue
        said = f"{named(trace)}: no torch clipping function is called where one device clips"
        if not _untouched(trace):
            return undecided(f"{said}: what clips there instead is not seen")
        text = f"{said}, and the optimizer gets, bit for bit, the gradient that backward left"
        return Finding(False, 1.0, "of the norm", bound, "at_most", text, samples=len(clips))
    for trace in traces:
        for key, rows in trace.steps.groupby("step"):
            for check in (_scaled, _norms_apart, _another_norm, _turned):
                off, said = check(trace, rows, bound)
                worst = max(worst, off if not said else 0.0)
                if said:
                    text = f"{named(trace)}: in step {key} {said}"
                    return Finding(False, off, "of the norm", bound, "at_most", text, samples=len(clips), details={"step": int(str(key))})
    if said := _replicas_counted(alone, together):
        return Finding(False, 1.0, "of the norm", bound, "at_most", said, samples=len(clips))
    active = sum(
        clip["limit"] is not None and norm > clip["limit"]
        for trace in traces
        for clip, norm in zip(trace.steps["clip"], trace.steps["clip_norm"], strict=True)
        if clip
    )
    text = f"{len(clips)} times the norm was that of the whole gradient, on every rank, and the direction was kept (within {worst:.2g}); it clipped {active} times"
    return Finding(
        True, worst, "of the norm", bound, "at_most", text, samples=len(clips), power=f"a norm that is off by {bound:.1g} of itself"
    )


def _no_clipping(alone: Trace, steps: int) -> Finding:
    if looked := _untouched(alone):
        return absent(
            f"no torch clipping function was called in {steps} steps, and in the {looked} that were looked at the optimizer got, bit for bit, the gradient that "
            "backward left: nothing is clipped"
        )
    return undecided(
        "no torch clipping function was called, but something altered the gradient between backward and the optimizer: clipping by hand cannot be told"
    )


def _untouched(trace: Trace) -> int:
    """In how many steps the optimizer was seen to get the gradient that backward left; 0 where it got another one in any."""
    seen = trace.steps.loc[trace.steps["left_digest"].notna()]
    return len(seen) if seen["left_digest"].eq(seen["grad_digest"]).all() else 0


def _scaled(trace: Trace, rows: pd.DataFrame, bound: float) -> tuple[float, str]:
    """Clipped while GradScaler's factor was still on the gradient."""
    factor = max((float(clip["scaled_by"]) for clip in rows["clip"] if clip), default=1.0)
    if factor == 1.0:
        return 0.0, ""
    return factor, f"the gradient is clipped while it carries the loss scale of {factor:g}: call scaler.unscale_(optimizer) before clipping"


def _norms_apart(trace: Trace, rows: pd.DataFrame, bound: float) -> tuple[float, str]:
    """Ranks that clip by different norms."""
    norms = rows.set_index("rank")["clip_norm"].astype("float64")
    if norms.isna().all():
        return 0.0, ""
    if norms.isna().any():
        absent_ranks, present = norms.index[norms.isna()], norms.index[norms.notna()]
        return 1.0, f"rank {absent_ranks[0]} does not clip, while rank {present[0]} does"
    expected = _expected(trace, rows)
    odd = max(norms.index, key=lambda rank: abs(norms[rank] / (expected or norms.iloc[0]) - 1.0))
    other = min(rank for rank in norms.index if rank != odd) if len(norms) > 1 else odd
    off = abs(norms[odd] / norms[other] - 1.0) if norms[other] else math.inf
    if len(norms) > 1 and off > bound:
        return (
            off,
            f"rank {odd} clips by a norm of {norms[odd]:.4g}, rank {other} by {norms[other]:.4g}: a local norm, of its own shard or of its gradient before the reduction",
        )
    return (0.0 if len(norms) < 2 else off), ""


def _another_norm(trace: Trace, rows: pd.DataFrame, bound: float) -> tuple[float, str]:
    """Ranks that all clip by one norm, which is not the gradient's."""
    norm, expected = rows["clip_norm"].iloc[0], _expected(trace, rows)
    if expected is None or not expected or norm is None or math.isnan(norm):
        return 0.0, ""
    off = abs(norm / expected - 1.0)
    if off <= bound:
        return off, ""
    ranks = math.sqrt(size(trace))
    why = ""
    if size(trace) > 1 and math.isclose(norm / expected, ranks, rel_tol=0.01):
        why = f": {ranks:.3g} times too large = the root of the ranks, so the squares of equal replicas are added up"
    elif size(trace) > 1 and norm < expected:
        why = ": of a part of the gradient, such as one rank's shard"
    return off, f"the gradient is clipped by a norm of {norm:.4g}, but has one of {expected:.4g}{why}"


def _turned(trace: Trace, rows: pd.DataFrame, bound: float) -> tuple[float, str]:
    """Tensors that were clipped by different factors, or by another one than the norm asks for."""
    names = [entry["name"] for entry in trace.model()["parameters"]]
    worst = 0.0
    for rank, clip in zip(rows["rank"].tolist(), rows["clip"].tolist(), strict=True):
        for group in _groups(clip):
            factors = _factors(trace, rank, rows, clip, group)
            if not factors:
                continue
            usual = sorted(factors.values())[len(factors) // 2]
            place, value = max(factors.items(), key=lambda item: abs(item[1] - usual))
            off = abs(value - usual) / max(usual, 1e-30)
            if off > bound:
                said = f"rank {rank} multiplies {names[place]} by {value:.4g} and most tensors by {usual:.4g}"
                return off, f"{said}: the direction of the gradient is not kept{_in_parts(clip)}"
            worst = max(worst, off)
    return worst, ""


def _groups(clip: Mapping[str, Any] | None) -> list[set[int] | None]:
    """The places of the tensors whose direction is one claim: those of each optimizer where each was clipped by itself, else all that were clipped.
    None stands for every tensor.
    """
    if not clip:
        return []
    calls = [clip, *clip.get("further", ())]
    chosen = [None if call.get("tensors") is None else set(call["tensors"]) for call in calls]
    if all(call.get("of_optimizer") for call in calls):
        return chosen
    known = [places for places in chosen if places is not None]
    return [set().union(*known) if len(known) == len(chosen) else None]


def _in_parts(clip: Mapping[str, Any]) -> str:
    calls = [clip, *clip.get("further", ())]
    apart = len({tuple(call.get("tensors") or ()) for call in calls})
    return f" ({apart} parts of it are clipped each by a norm of its own)" if apart > 1 else ""


def _factors(
    trace: Trace, rank: int, rows: pd.DataFrame, clip: Mapping[str, Any] | None, group: Collection[int] | None
) -> dict[int, float]:
    """By the parameter's place, what clipping multiplied it by. group: the places to look at, None for all."""
    if not clip or clip["by"] != "norm" or not clip.get("applied"):
        return {}
    step = int(rows["step"].iloc[0])
    before = trace.gradient_norms.loc[(trace.gradient_norms["step"] == step) & (trace.gradient_norms["rank"] == rank), "held"].tolist()
    chosen = range(len(before)) if group is None else sorted(group)
    largest = max((norm for norm in before if norm == norm), default=0.0)
    return {
        place: clip["applied"][place] / before[place]
        for place in chosen
        if place < len(clip["applied"])
        and clip["applied"][place] is not None
        and before[place] == before[place]
        and before[place] > 1e-6 * largest
    }


def _expected(trace: Trace, rows: pd.DataFrame) -> float | None:
    """The norm of the whole gradient that was there; None where the trace does not tell (another norm than the 2-norm, copies of shards)."""
    first = rows["clip"].iloc[0]
    if not first or first["by"] != "norm" or first["norm_type"] != 2.0:
        return None
    layouts = {str(entry.get("layout", "replicated")) for entry in trace.model()["parameters"]}
    step = int(rows["step"].iloc[0])
    squares = [_square(trace, step, rank, first.get("tensors")) for rank in rows["rank"].tolist()]
    if layouts == {"replicated"}:
        return math.sqrt(squares[0])
    if all("Shard" in layout or layout.startswith("S(") for layout in layouts) and not any(
        "R" in layout.replace("Replicate", "R") for layout in layouts
    ):
        return math.sqrt(sum(squares))
    return None


def _square(trace: Trace, step: int, rank: int, tensors: Sequence[int] | None) -> float:
    norms = trace.gradient_norms.loc[(trace.gradient_norms["step"] == step) & (trace.gradient_norms["rank"] == rank), "held"].tolist()
    return float(sum(norms[place] ** 2 for place in (tensors or range(len(norms))) if norms[place] == norms[place]))


def _replicas_counted(alone: Trace, together: Sequence[Trace]) -> str:
    """The norm of the first step grows with the root of the ranks, where nothing else tells what it should be."""
    single = alone.steps.loc[alone.steps["step"] == 1, "clip_norm"].dropna()
    for trace in together:
        norm = trace.steps.loc[trace.steps["step"] == 1, "clip_norm"].dropna()
        if (
            len(single)
            and len(norm)
            and single.iloc[0] > 0
            and math.isclose(norm.iloc[0] / single.iloc[0], math.sqrt(size(trace)), rel_tol=1e-3)
        ):
            return f"{named(trace)}: the norm of the first step is {norm.iloc[0] / single.iloc[0]:.4g} times one device's = the root of the ranks: replicas are counted as parts"
    return ""


def _bound(trace: Trace) -> float:
    """What rounding may do to a norm over all parameters, taken as a random walk."""
    model = trace.model()
    roundoff = max(UNIT_ROUNDOFF.get(str(entry["dtype"]).removeprefix("torch."), UNIT_ROUNDOFF["float32"]) for entry in model["parameters"])
    return random_walk_bound(int(model["parameter_count"]), roundoff, DEVIATIONS)

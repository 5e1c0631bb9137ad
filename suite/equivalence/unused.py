"""Judge: every trained parameter gets a gradient, on every rank, at every world size.

DistributedDataParallel's search for unused parameters keeps a job from failing where a parameter takes no part in the loss; nothing says then that it is
never trained, or is trained on some ranks alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import named, size, undecided, unusable

SHOWN = 3


def every_parameter_is_trained(traces: Sequence[Trace]) -> Finding:
    """Judge which parameters had a gradient when the optimizer stepped."""
    if reason := unusable(traces):
        return undecided(reason)
    if any(trace.gradient_norms.empty for trace in traces):
        return undecided("no gradient was recorded in any step")
    for trace in traces:
        if said := trace.not_seen().get("grad_norms") or trace.not_seen().get("whole_parameters"):
            return undecided(f"whether every parameter gets a gradient cannot be told: {said}")
    for trace in traces:
        if said := _on_some_ranks(trace):
            return _rejected(f"{named(trace)}: {said}", traces)
    without = {index: never(trace) for index, trace in enumerate(traces)}
    everywhere = set.intersection(*(set(names) for names in without.values()))
    for index, trace in enumerate(traces):
        if here := [name for name in without[index] if name not in everywhere]:
            return _rejected(f"{named(trace)}: {_shown(here)} never {_get(here)} a gradient, at another world size {_do(here)}", traces)
    if everywhere:
        names = [name for name in without[0] if name in everywhere]
        said = f"{_shown(names)} never {_get(names)} a gradient in {_steps(traces)} steps at any world size: {_take(names)} no part in the loss; freeze or remove"
        return _rejected(f"{said} {'it' if len(names) == 1 else 'them'}", traces)
    text = f"all {len(trained(traces[0]))} trained parameters get a gradient on every rank ({', '.join(named(trace) for trace in traces)})"
    return Finding(
        True, 0, "parameters", 0, "at_most", text, samples=_steps(traces), power="one parameter without a gradient on one rank in one step"
    )


def trained(trace: Trace) -> list[str]:
    """The parameters that require a gradient."""
    return [entry["name"] for entry in trace.model()["parameters"] if entry.get("trained", True) and entry["numel"]]


def never(trace: Trace) -> list[str]:
    """The trained parameters that have a gradient in no step of any rank."""
    norms = _of_made_steps(trace)
    seen = set(norms.loc[norms["held"].notna(), "name"])
    return [name for name in trained(trace) if name not in seen]


def _on_some_ranks(trace: Trace) -> str:
    """The first parameter and step in which some ranks have a gradient and others none, in words."""
    if size(trace) == 1:
        return ""
    table = _of_made_steps(trace).pivot_table(
        index=["step", "name"], columns="rank", values="held", aggfunc=lambda norms: norms.notna().all(), dropna=False
    )
    table = table.loc[table.index.get_level_values("name").isin(trained(trace))].fillna(False).astype(bool)
    mixed = table.loc[table.any(axis=1) & ~table.all(axis=1)]
    if mixed.empty:
        return ""
    step, name = mixed.index[0]
    row = mixed.iloc[0]
    lacking, having = row.index[~row][0], row.index[row][0]
    return f"rank {lacking} has no gradient for {name} in step {step} while rank {having} has one: it takes part in the loss on some ranks alone, or is not reduced"


def _of_made_steps(trace: Trace) -> pd.DataFrame:
    skipped = trace.steps.loc[trace.steps["skipped"], "step"]
    return trace.gradient_norms.loc[~trace.gradient_norms["step"].isin(skipped)]


def _steps(traces: Sequence[Trace]) -> int:
    return min(int(trace.steps["step"].nunique()) for trace in traces)


def _get(names: Sequence[str]) -> str:
    return "gets" if len(names) == 1 else "get"


def _do(names: Sequence[str]) -> str:
    return "it does" if len(names) == 1 else "they do"


def _take(names: Sequence[str]) -> str:
    return "it takes" if len(names) == 1 else "they take"


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _rejected(text: str, traces: Sequence[Trace]) -> Finding:
    return Finding(False, 1, "parameters", 0, "at_most", text, samples=_steps(traces))

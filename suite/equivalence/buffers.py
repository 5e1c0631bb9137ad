"""Judge: all ranks hold the same buffers whenever a forward begins, and when they evaluate.

BatchNorm's running statistics move within the forward, so under DDP, which sends rank 0's round before it, the ranks differ behind it by that one update:
that is no drift. Statistics that are never sent round are: what rank 0 saves is then not what the others trained with. Comparing digests behind the
step, as replica checks do, cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import absent, named, records, several, size, undecided, unusable

SHOWN = 3
OWN_STATISTICS = (
    "each rank keeps running statistics of its own share of the data (broadcast_buffers is off, or nothing sends them round): synchronise BatchNorm, or "
    "broadcast its buffers"
)


def buffers_agree(together: Sequence[Trace]) -> Finding:
    """Judge the buffers of the ranks of each run against each other."""
    runs = several(together)
    if not runs:
        return undecided("there is only one rank, nothing to agree with: start with --world-size 2")
    if reason := unusable(runs):
        return undecided(reason)
    if not any(trace.model()["buffers"] for trace in runs):
        return absent(f"the model, {trace_modules(runs[0])}, has no buffer")
    if all(row is None for trace in runs for row in trace.steps["buffers"]):
        return undecided("the buffers were not seen at the beginning of a forward: the model inside the wrapper is compiled")
    for trace in runs:
        if said := _differing(trace) or _differing_at_evaluation(trace):
            step, text = said
            return Finding(False, 1, "ranks", 0, "at_most", f"{named(trace)}: {text}", samples=_compared(runs), details={"step": step})
    behind = sum(digests > 1 for trace in runs for digests in trace.steps.groupby("step")["buffer_digest"].nunique())
    text = (
        f"the {len(runs[0].model()['buffers'])} buffers are equal on every rank whenever a forward begins ({_compared(runs)} comparisons)"
    )
    if behind:
        text += f"; behind {behind} forwards they differ by that one update, as they do where rank 0's are sent round: send them round again before evaluating"
    return Finding(True, 0, "ranks", 0, "at_most", text, samples=_compared(runs), power="one changed bit in one buffer of one rank")


def at_begin(trace: Trace) -> dict[int, dict[int, Mapping[str, Any]]]:
    """Step -> rank -> the digests of the buffers as its first forward began."""
    table: dict[int, dict[int, Mapping[str, Any]]] = {}
    for step, rank, row in zip(trace.steps["step"].tolist(), trace.steps["rank"].tolist(), trace.steps["buffers"].tolist(), strict=True):
        if row is not None:
            table.setdefault(step, {})[rank] = row
    return dict(sorted(table.items()))


def trace_modules(trace: Trace) -> str:
    """The model in words."""
    model = trace.model()
    return f"{model['module']} with {len(model['parameters'])} parameters"


def _differing(trace: Trace) -> tuple[int, str] | None:
    for step, row in at_begin(trace).items():
        rank = next((one for one in sorted(row) if row[one]["all"] != row[min(row)]["all"]), None)
        if rank is None:
            continue
        names = _names(trace, row[rank], row[min(row)])
        cause = OWN_STATISTICS if any("running_" in name for name in names) else "something changes them on one rank alone"
        return step, f"rank {rank}'s buffers differ from rank {min(row)}'s when step {step} begins ({_shown(names)}): {cause}"
    return None


def _differing_at_evaluation(trace: Trace) -> tuple[int, str] | None:
    """Ranks that evaluate together on buffers that are one update apart compute their parts of one metric with different models."""
    by_step: dict[int, dict[int, str | None]] = {}
    for record in records(trace, "evaluated"):
        by_step.setdefault(record["step"], {})[record["rank"]] = record.get("buffers")
    for step, row in sorted(by_step.items()):
        rank = next((one for one in sorted(row) if row[one] != row[min(row)]), None)
        if rank is not None and None not in row.values():
            return step, (
                f"rank {rank} evaluates after step {step} with other buffers than rank {min(row)}: its running statistics hold an update of its own (broadcast "
                "the buffers before evaluating)"
            )
    return None


def _names(trace: Trace, mine: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return [name for name, one, two in zip(trace.model()["buffers"], mine["each"], others["each"], strict=False) if one != two]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "which ones was not recorded") + more


def _compared(runs: Sequence[Trace]) -> int:
    return sum(len(at_begin(trace)) * (size(trace) - 1) for trace in runs)

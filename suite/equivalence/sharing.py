"""Ranks that are given the same samples on purpose: they hold parts of the same layers (tensor parallelism).

Their rows are one copy of a batch, not several. That they hold parts of the same layers is read off the mesh of the parameters (the probe writes it down);
that they are given the same samples is seen in the samples themselves. Neither alone is enough: equal samples on ranks whose parameters do not say so are
the commonest mistake of all, and ranks that each hold some experts, or a part of each sequence, are given different ones.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce

import pandas as pd

from fixtures.trace import Trace

Group = tuple[int, ...]


def holding_parts(trace: Trace) -> tuple[Group, ...]:
    """The groups of ranks that hold parts of the same layers, as far as the parameters' mesh shows it; only groups of several ranks."""
    found: list[frozenset[int]] = []
    for record in trace.records:
        own = frozenset(record.get("sharing") or ()) if record["kind"] == "model" else frozenset()
        if len(own) > 1:
            met = [group for group in found if group & own]
            found = [group for group in found if group not in met] + [reduce(frozenset.union, met, own)]
    return tuple(sorted(tuple(sorted(group)) for group in found))


def sharing(trace: Trace) -> tuple[Group, ...]:
    """Those of them that are given the same samples in most steps."""
    return tuple(group for group in holding_parts(trace) if _mostly_alike(trace, group))


def once(trace: Trace) -> pd.DataFrame:
    """The samples frame with what a group shares counted once, for its lowest rank."""
    again = {rank for group in sharing(trace) for rank in group[1:]}
    return trace.samples.loc[~trace.samples["rank"].isin(again)] if again else trace.samples


def strayed(trace: Trace) -> str:
    """The first rank and step that is given other samples than the ranks which share its layers, in words; "" where none is."""
    for group in sharing(trace):
        for step, row in sorted(_by_step(trace, group).items()):
            first = row.get(group[0], Counter())
            for rank in group[1:]:
                own = row.get(rank, Counter())
                if own != first:
                    count = sum((own - first).values())
                    return (
                        f"rank {rank} takes other samples than rank {group[0]} in step {step} ({count} of {sum(own.values())}), although both hold parts of the "
                        "same layers (tensor parallel) and compute one batch together"
                    )
    return ""


def _mostly_alike(trace: Trace, group: Group) -> bool:
    rows = _by_step(trace, group)
    alike = sum(all(row.get(rank, Counter()) == row.get(group[0], Counter()) for rank in group[1:]) for row in rows.values())
    return bool(rows) and 2 * alike >= len(rows)


def _by_step(trace: Trace, group: Group) -> dict[int, dict[int, Counter[str]]]:
    """Step -> rank of the group -> its samples."""
    found: dict[int, dict[int, Counter[str]]] = {}
    rows = trace.samples.loc[trace.samples["rank"].isin(group)]
    for step, rank, sample in zip(rows["step"].tolist(), rows["rank"].tolist(), rows["sample"].tolist(), strict=True):
        found.setdefault(step, {}).setdefault(rank, Counter())[sample] += 1
    return found

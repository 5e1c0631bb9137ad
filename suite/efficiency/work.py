"""Judge: a step is the same amount of work at every world size, so that times may be compared at all.

The commonest reason why eight ranks are no faster than one is that each of them does what the one did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.ledger import Epochs, epochs, ledger
from suite.equivalence.sharing import once, strayed
from suite.equivalence.usable import named, size, undecided, unusable


def same_work(alone: Trace, together: Sequence[Trace], padding: str = "") -> Finding:
    """Judge samples per step, number of steps and micro-batches of several world sizes. padding: the job's declared reason for filling up batches."""
    if reason := unusable([alone, *together], "samples", "micro_batches"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    found = epochs(ledger(alone))
    compared = 0
    for trace in together:
        text, ratio = _difference(alone, trace, found, padding)
        if not text and (said := strayed(trace)):
            text = f"{named(trace)}: {said}"
        compared += trace.steps["step"].nunique()
        if text:
            return Finding(
                False,
                None if ratio == 1.0 else ratio,
                "times one device's samples per step",
                1.0,
                "equal",
                text,
                samples=compared,
                details=table(alone, together),
            )
    rows = _rows(alone)
    usual = f"{median(rows.values()):.0f} samples per step in {len(rows)} steps"
    text = f"{' and '.join(named(trace) for trace in together)} do the work of one device: {usual}"
    power = "one sample more or less in one step"
    return Finding(
        True, 1.0, "times one device's samples per step", 1.0, "equal", text, samples=compared, power=power, details=table(alone, together)
    )


def table(alone: Trace, together: Sequence[Trace]) -> dict[str, object]:
    """Steps, samples and micro-batches by world size, for the page."""
    rows = [
        [
            size(trace),
            int(trace.steps["step"].nunique()),
            len(once(trace)),
            median(_rows(trace).values()),
            int(_micro_batches(trace).max()),
        ]
        for trace in [alone, *together]
    ]
    return {"table": {"columns": ["ranks", "steps", "samples", "samples per step", "micro-batches per rank and step"], "rows": rows}}


def _difference(alone: Trace, trace: Trace, found: Epochs, padding: str) -> tuple[str, float]:
    """What this world size does otherwise, and its samples per step relative to one device's where they differ most; "" and 1 if nothing."""
    one, several = _rows(alone), _rows(trace)
    if set(one) != set(several):
        ratio = sum(several.values()) / sum(one.values())
        return f"{named(trace)} make {len(several)} optimizer steps where one device makes {len(one)}", ratio
    if uneven := _uneven_micro_batches(trace):
        return uneven, sum(several.values()) / sum(one.values())
    different = [step for step in one if one[step] != several[step] and not (padding and _may_pad(one, several, found, step))]
    if not different:
        return "", 1.0
    step = max(different, key=lambda made: abs(several[made] / one[made] - 1.0))
    ratio = several[step] / one[step]
    what = "the work grows with the world size" if ratio > 1.01 else ("samples are lost on the way" if ratio < 1.0 else "samples are added")
    which = "per step" if len(different) == len(one) else f"in step {step}"
    return (
        f"{named(trace)} process {several[step]} samples {which} where one device processes {one[step]}: {what} ({len(different)} of {len(one)} steps)",
        ratio,
    )


def _may_pad(one: Mapping[int, int], several: Mapping[int, int], found: Epochs, step: int) -> bool:
    """The last step of an epoch may be filled up with less than one batch."""
    return any(window[-1] == step for window in found.windows[: found.whole]) and one[step] < several[step] < 2 * one[step]


def _rows(trace: Trace) -> dict[int, int]:
    """Samples of the global batch by step."""
    counted = once(trace).groupby("step").size()
    return {int(step): int(counted.get(step, 0)) for step in sorted(set(trace.steps["step"]))}


def _micro_batches(trace: Trace) -> pd.Series:
    """Micro-batches per rank, by step: the ranks' maximum."""
    return trace.steps.groupby("step")["micro_batches"].max()


def _uneven_micro_batches(trace: Trace) -> str:
    """Ranks that accumulate over different numbers of micro-batches in the same step, in words."""
    for step, group in trace.steps.groupby("step"):
        counts = dict(zip(group["rank"].tolist(), group["micro_batches"].tolist(), strict=True))
        if len(set(counts.values())) > 1:
            least, most = min(counts, key=lambda rank: counts[rank]), max(counts, key=lambda rank: counts[rank])
            return f"in step {step} rank {most} accumulates {counts[most]:.0f} micro-batches and rank {least} {counts[least]:.0f}: their means do not weigh alike"
    return ""

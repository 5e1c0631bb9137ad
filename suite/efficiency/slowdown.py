"""Why several ranks are not as fast as they should be, in one sentence.

Either one rank does more of its own work than the others (waiting ranks are victims, not causes), or all of them lose: then because the work per rank
does not shrink, or in the phase that loses most against an even split of one device's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fixtures.trace import Trace
from suite.efficiency.timing import mean_phases
from suite.equivalence.usable import size

OWN_WORK = ("data_wait_ms", "forward_ms", "optimizer_ms", "unnamed_ms")  # in backward and in collectives a rank also waits for others
COMPUTE = ("data_wait_ms", "forward_ms", "backward_ms")
NAMES = {
    "data_wait_ms": "data wait", "forward_ms": "forward", "backward_ms": "backward", "optimizer_ms": "the optimizer", "other_ms": "the rest", "unnamed_ms": "code outside the named phases",
    "exposed_ms": "exposed communication",
}  # fmt: skip
REMEDIES = {
    "data_wait_ms": "the input pipeline (storage or decode) does not keep up",
    "exposed_ms": "ranks wait for communication that computation does not hide",
    "optimizer_ms": "every rank updates all parameters, which does not get less with more ranks",
    "unnamed_ms": "input without a DataLoader, logging or synchronisation takes its time",
    "forward_ms": "compute per rank does not shrink as the batch is split",
    "backward_ms": "compute per rank does not shrink as the batch is split",
}


def why_slower(alone: Sequence[Trace], together: Sequence[Trace], rows: Mapping[int, float]) -> str:
    """The main reason why `together` takes longer per step than its share of `alone`. rows: samples per step by world size."""
    ranks = size(together[0])
    one, several = mean_phases(alone).iloc[0], mean_phases(together)
    worst, extra_ms = _largest_loss(one, several, ranks)
    rank, phase, most_ms, others_ms = imbalance(several)
    if most_ms - others_ms > extra_ms:
        return f"rank {rank} takes {most_ms:.3g} ms in {NAMES[phase]} where the others take {others_ms:.3g}: they wait for it in every step"
    grows = ""
    if rows.get(ranks, 0.0) > 1.01 * rows.get(1, float("inf")):
        grows = f"a step of {ranks} ranks processes {rows[ranks]:.0f} samples where one of one rank processes {rows[1]:.0f}: the work grows with the world size"
    if grows and worst in COMPUTE:
        return grows
    lost = f"{NAMES[worst]} loses most, {extra_ms:.3g} ms of each step against an even split: {REMEDIES[worst]}"
    return f"{lost}; besides, {grows}" if grows else lost


def imbalance(several: pd.DataFrame) -> tuple[int, str, float, float]:
    """The rank and phase of own work that exceed the other ranks most: rank, phase, its milliseconds, the median of the others'."""
    found = []
    for phase in OWN_WORK:
        times = dict(zip(several.index.tolist(), several[phase].tolist(), strict=True))
        rank = max(times, key=lambda one: times[one])
        others = [time for other, time in times.items() if other != rank]
        found.append((int(rank), phase, float(times[rank]), float(np.median(others)) if others else float(times[rank])))
    return max(found, key=lambda item: item[2] - item[3])


def _largest_loss(one: pd.Series, several: pd.DataFrame, ranks: int) -> tuple[str, float]:
    """The phase in which every rank, the quickest too, exceeds its share of one device's time most.

    Waiting for communication is taken out of backward, where it happens; the rank that waits least shows what communication itself costs.
    """
    computed = several["backward_ms"] - several["exposed_ms"]
    quickest = several.min()
    extra = {name: float(quickest[name] - one[name] / ranks) for name in (*OWN_WORK, "exposed_ms")}
    extra["backward_ms"] = float(computed.clip(lower=0.0).min() - (one["backward_ms"] - one["exposed_ms"]) / ranks)
    worst = max(extra, key=lambda name: extra[name])
    return worst, extra[worst]

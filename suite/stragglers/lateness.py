"""How late each rank came to the collectives of a step: the one signal that an all-reduce does not smooth away.

Every rank leaves a collective at the same time, so step times are equal and waiting times point at the wrong rank: the one that waits
longest is the fastest. The time of arrival is each rank's own. Per step the collective with the widest spread of arrivals is taken (a
delay early in the step and one late in it then both count), and a rank's lateness there is its arrival minus the median arrival of the
others: positive means the others waited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fixtures.trace import Trace

WARM_UP_STEPS = 2  # the first steps import, allocate and, under DDP, rebuild buckets
NANOSECONDS_PER_MS = 1e6
POINT_TO_POINT = ("send", "recv")


@dataclass(frozen=True, slots=True)
class Lateness:
    """`late_ms` of shape (steps, ranks), signed; `step_ms` of shape (steps,), the slowest rank's; `ranks` names the columns."""

    ranks: tuple[int, ...]
    late_ms: NDArray[np.float64]
    step_ms: NDArray[np.float64]

    @property
    def steps(self) -> int:
        return len(self.step_ms)

    @property
    def spread_ms(self) -> NDArray[np.float64]:
        """Latest minus earliest arrival, shape (steps,)."""
        spread: NDArray[np.float64] = self.late_ms.max(axis=1) - self.late_ms.min(axis=1)
        return spread


def lateness_of(traces: Sequence[Trace]) -> Lateness:
    """Lateness over the steps of one or more runs of the same world, without the warm-up of each.

    Steps that follow a save are left out (whoever writes a checkpoint is late, and no straggler), and so are steps without a common
    collective.
    """
    ranks = tuple(sorted(set.intersection(*(set(trace.ranks) for trace in traces)))) if traces else ()
    late, times = [np.empty((0, len(ranks)))], [np.empty(0)]
    for trace in traces:
        arrivals = _widest_arrivals(trace, ranks)
        if arrivals.empty:
            continue
        step_ms = trace.steps.groupby("step")["step_ms"].max().reindex(arrivals.index)
        known = np.isfinite(step_ms.to_numpy(dtype=float))
        late.append(_against_others(arrivals.to_numpy(dtype=float)[known] / NANOSECONDS_PER_MS))
        times.append(step_ms.to_numpy(dtype=float)[known])
    return Lateness(ranks, np.concatenate(late), np.concatenate(times))


def _widest_arrivals(trace: Trace, ranks: tuple[int, ...]) -> pd.DataFrame:
    """Arrival times (ns, by step and rank) at that collective of each step which all ranks entered and whose arrivals lie furthest
    apart.
    """
    calls = trace.collectives
    judged = (calls["step"] > WARM_UP_STEPS) & ~calls["step"].isin(trace.files["step"] + 1)
    calls = calls[judged & calls["rank"].isin(ranks) & ~calls["op"].astype(str).str.contains("|".join(POINT_TO_POINT))]
    if calls.empty or len(ranks) < 2:
        return pd.DataFrame(columns=list(ranks))
    # times of the run's own beginning: nanoseconds since boot do not fit a float64 exactly
    table = (calls.set_index(["step", "index", "rank"])["arrive_ns"].astype("int64") - int(calls["arrive_ns"].min())).unstack("rank")
    table = table.reindex(columns=list(ranks)).dropna()
    spread = table.max(axis=1) - table.min(axis=1)
    return table.loc[spread.groupby(level="step").idxmax()].droplevel("index") if len(table) else table


def _against_others(arrive_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each arrival minus the median arrival of the other ranks; shape (steps, ranks)."""
    columns = range(arrive_ms.shape[1])
    others = [np.median(np.delete(arrive_ms, column, axis=1), axis=1) for column in columns]
    return arrive_ms - np.stack(others, axis=1)

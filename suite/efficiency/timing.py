"""From traces of timed runs to step times, phase times and shares, with the warm-up left out.

Medians over steps, because one slow step (a save, a page fault) says nothing about the job; and one number per run, because the steps of one run
share its luck: only runs are independent observations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fixtures.trace import Trace
from suite.equivalence.sharing import once

PHASES = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms")
"""What one step's time consists of; exposed_ms is the part of these that is spent waiting for communication."""

WARM_UP_SHARE = 0.25  # allocator, caches and lazy imports settle in the first steps; a quarter of the run is left out
FEWEST_STEPS = 4


def settled(trace: Trace) -> pd.DataFrame:
    """The steps behind the warm-up, all ranks; one column more, unnamed_ms: other_ms without the waiting for communication in it."""
    last = int(trace.steps["step"].max()) if len(trace.steps) else 0
    steps = trace.steps.loc[trace.steps["step"] > int(last * WARM_UP_SHARE)]
    waited_ms = _waits_outside_backward_ms(trace)
    outside = [waited_ms.get((rank, step), 0.0) for rank, step in zip(steps["rank"].tolist(), steps["step"].tolist(), strict=True)]
    in_other = np.minimum(np.asarray(outside), steps["exposed_ms"].fillna(0.0).to_numpy())
    return steps.assign(unnamed_ms=(steps["other_ms"] - np.clip(in_other, 0.0, None)).clip(lower=steps["other_ms"].clip(upper=0.0)))


def _waits_outside_backward_ms(trace: Trace) -> dict[tuple[int, int], float]:
    """(rank, step) -> how long collectives took that were called outside of backward."""
    called = trace.collectives.loc[trace.collectives["phase"] != "backward"].dropna(subset=["done_ns"])
    took: dict[tuple[int, int], float] = {}
    for rank, step, arrive_ns, done_ns in zip(*(called[name].tolist() for name in ("rank", "step", "arrive_ns", "done_ns")), strict=True):
        took[rank, step] = took.get((rank, step), 0.0) + (done_ns - arrive_ns) / 1e6
    return took


def too_short(trace: Trace) -> str:
    """Why the run has too few steps to be timed, or ""."""
    steps = settled(trace)["step"].nunique()
    return "" if steps >= FEWEST_STEPS else f"{steps} steps are left behind the warm-up, {FEWEST_STEPS} are needed: raise [job] steps"


def step_ms(trace: Trace) -> float:
    """The time of one optimizer step of the whole world: the median over steps of the slowest rank."""
    return float(settled(trace).groupby("step")["step_ms"].max().median())


def phases(trace: Trace) -> pd.DataFrame:
    """Median milliseconds of each phase, one row per rank; columns PHASES, unnamed_ms, exposed_ms and step_ms."""
    columns = [*PHASES, "unnamed_ms", "exposed_ms", "step_ms"]
    medians = settled(trace).groupby("rank")[columns].median()
    return medians.fillna(0.0)


def shares(trace: Trace) -> pd.DataFrame:
    """Share of a step that a rank waits for input, waits for communication, and spends outside of every name, one row per rank.

    Columns data_wait_ms, exposed_ms, unnamed_ms. Of data wait the whole counts, since input may stall once in many steps. Pauses between steps
    (a save, an evaluation) are no part of a step: what unnamed time exceeds its median is left out. Waiting for communication is the median
    step's, as the ranks that do not save wait there for the one that does.
    """
    steps = settled(trace)
    pause_ms = (steps["unnamed_ms"] - steps.groupby("rank")["unnamed_ms"].transform("median")).clip(lower=0.0).fillna(0.0)
    steady = steps.assign(unnamed_ms=steps["unnamed_ms"] - pause_ms, step_ms=steps["step_ms"] - pause_ms)
    sums = steady.groupby("rank")[["data_wait_ms", "unnamed_ms", "step_ms"]].sum()
    waits = steady.assign(exposed_ms=steady["exposed_ms"].fillna(0.0) / steady["step_ms"]).groupby("rank")["exposed_ms"].median()
    return sums[["data_wait_ms", "unnamed_ms"]].div(sums["step_ms"], axis=0).assign(exposed_ms=waits)


def mean_phases(traces: Sequence[Trace]) -> pd.DataFrame:
    """The phases of several repeats of one run: the median repeat, per rank and phase."""
    return pd.concat([phases(trace) for trace in traces]).groupby(level="rank").median()


def rows_per_step(trace: Trace) -> float:
    """Samples per optimizer step over all ranks, median over steps; NaN where the probe saw none."""
    counted = once(trace).groupby("step").size()
    return float(counted.median()) if len(counted) else float(np.nan)

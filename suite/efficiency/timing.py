"""From traces of timed runs to step times, phase times and shares, with the warm-up left out.

Medians over steps, because one slow step (a save, a page fault) says nothing about the job; and one number per run, because the steps of one run
share its luck: only runs are independent observations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fixtures.trace import Trace

PHASES = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms")
"""What one step's time consists of; exposed_ms is the part of these that is spent waiting for communication."""

WARM_UP_SHARE = 0.25  # allocator, caches and lazy imports settle in the first steps; a quarter of the run is left out
FEWEST_STEPS = 4


def settled(trace: Trace) -> pd.DataFrame:
    """The steps behind the warm-up, all ranks."""
    last = int(trace.steps["step"].max()) if len(trace.steps) else 0
    return trace.steps.loc[trace.steps["step"] > int(last * WARM_UP_SHARE)]


def too_short(trace: Trace) -> str:
    """Why the run has too few steps to be timed, or ""."""
    steps = settled(trace)["step"].nunique()
    return "" if steps >= FEWEST_STEPS else f"{steps} steps are left behind the warm-up, {FEWEST_STEPS} are needed: raise [job] steps"


def step_ms(trace: Trace) -> float:
    """The time of one optimizer step of the whole world: the median over steps of the slowest rank."""
    return float(settled(trace).groupby("step")["step_ms"].max().median())


def phases(trace: Trace) -> pd.DataFrame:
    """Median milliseconds of each phase, one row per rank; columns PHASES, exposed_ms and step_ms."""
    columns = [*PHASES, "exposed_ms", "step_ms"]
    medians = settled(trace).groupby("rank")[columns].median()
    return medians.fillna(0.0)


def shares(trace: Trace) -> pd.DataFrame:
    """Share of a step that each phase takes, one row per rank; columns PHASES and exposed_ms.

    Of the phases' own time the whole counts, since input may stall once in many steps. Pauses between steps (a save, an evaluation) are not part
    of a step: what unnamed time exceeds its median is left out. Waiting for communication is the median step's, as the ranks that do not save
    wait there for the one that does.
    """
    steps = settled(trace)
    pause_ms = (steps["other_ms"] - steps.groupby("rank")["other_ms"].transform("median")).clip(lower=0.0).fillna(0.0)
    steady = steps.assign(other_ms=steps["other_ms"] - pause_ms, step_ms=steps["step_ms"] - pause_ms)
    sums = steady.groupby("rank")[[*PHASES, "step_ms"]].sum()
    found = sums[list(PHASES)].div(sums["step_ms"], axis=0)
    waits = steady.assign(exposed_ms=steady["exposed_ms"].fillna(0.0) / steady["step_ms"]).groupby("rank")["exposed_ms"].median()
    return found.assign(exposed_ms=waits)


def mean_phases(traces: Sequence[Trace]) -> pd.DataFrame:
    """The phases of several repeats of one run: the median repeat, per rank and phase."""
    return pd.concat([phases(trace) for trace in traces]).groupby(level="rank").median()


def rows_per_step(trace: Trace) -> float:
    """Samples per optimizer step over all ranks, median over steps; NaN where the probe saw none."""
    counted = trace.samples.groupby("step").size()
    return float(counted.median()) if len(counted) else float(np.nan)

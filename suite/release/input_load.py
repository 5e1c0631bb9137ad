"""Judge of one path under load: the input path at rising rates, and where it saturates against what the training takes.

Load generators for input (PyTorch's own dataloader benchmarks, tf.data's) drain the loader alone, on idle cores, and give a rate that training never
gets. Here the job itself trains while its loader is asked for 1, 8, 64, 512 batches for each that is trained on: the ranks, the cores and the caches are
those of the training, and the rate at which waiting begins is read in multiples of what the training takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fixtures.trace import Trace
from reports.statistics import Interval, median_interval
from suite.efficiency.timing import settled, too_short
from suite.equivalence.usable import unusable
from suite.release.paths import LoadedPath

NAME = "the input path"
SATURATED = 0.3  # share of a step that is spent waiting for input: what is carried then is set by the input path, not by the training
Rates = Mapping[int, Sequence[Trace]]
"""Batches taken for each that is trained on -> repeats."""


def waiting(trace: Trace) -> float:
    """Time that the slowest rank waits for input, for each unit of the rest of its step: the median step behind the warm-up."""
    steps = settled(trace).groupby("step")[["data_wait_ms", "step_ms"]].max()
    wait_ms = float(steps["data_wait_ms"].median())
    return wait_ms / max(float((steps["step_ms"] - steps["data_wait_ms"]).median()), 1e-6)


def taken(runs: Sequence[Trace]) -> int:
    """Batches that were really taken for each that was trained on, at the median step: fewer than asked for where an epoch holds fewer."""
    counts = [int(record["detail"]) for run in runs for record in run.faults() if record["fault"]["kind"] == "draw_batches"]
    return int(np.median(counts))


def saturated(runs: Sequence[Trace]) -> bool:
    """Whether a higher rate would show nothing more; also where these runs show nothing at all."""
    if unseen(runs):
        return True
    return float(np.median([waiting(run) for run in runs])) >= SATURATED / (1 - SATURATED)


def carries_enough(rates: Rates, wait_share: float) -> LoadedPath:
    """The rate at which waiting for input reaches `wait_share` of the step is certainly no less than what the training takes."""
    lowest = rates[min(rates)]  # what the training itself takes
    if reason := unseen(lowest):
        return LoadedPath(NAME, None, reason)
    usable = {taken(runs): runs for runs in rates.values() if not unseen(runs)}
    knees = [knee({times: waiting(runs[repeat]) for times, runs in usable.items()}, wait_share) for repeat in range(_repeats(usable))]
    found = median_interval(knees)
    holds = found.holds(1.0, "at_least")
    enough = {
        True: "and that is enough",
        False: "less than the training takes",
        None: "and whether that is enough is open: more repeats would tell",
    }[holds]
    text = f"it {_reached(found, max(usable), wait_share)}, {enough}{_rates(usable)}"
    return LoadedPath(NAME, holds, text, found, "at least 1", "of the training's rate")


def knee(waits: Mapping[int, float], wait_share: float) -> float:
    """The demand, in multiples of the training's, at which waiting takes `wait_share` of the step; linear between the rates tried.

    waits: rate -> waiting per unit of the rest of the step. The largest rate tried where waiting never gets that far.
    """
    limit = wait_share / (1 - wait_share)
    before = (0.0, 0.0)
    for times in sorted(waits):
        if waits[times] > limit:
            low, waited = before
            return low + (times - low) * max(0.0, limit - waited) / (waits[times] - min(waited, limit))
        before = (float(times), waits[times])
    return before[0]


def _reached(found: Interval, most: int, wait_share: float) -> str:
    if found.low >= most:
        return f"makes nobody wait at {most} times the training's rate, the highest that was tried"
    return f"makes ranks wait for {wait_share:.0%} of a step at {found.estimate:.3g} times the training's rate [{found.low:.3g}, {found.high:.3g}]"


def _rates(usable: Rates) -> str:
    """What the training takes, and what the path carries at most, in samples a second."""
    first, last = usable[min(usable)], usable[max(usable)]
    batch = first[0].spec.get("global_batch")
    if not batch:
        return ""
    step_ms = float(np.median([settled(run).groupby("step")["step_ms"].max().median() for run in first]))
    told = f" (the training takes {1e3 * batch / step_ms:,.0f} samples a second"
    if saturated(last):
        waits_ms = [settled(run).groupby("step")["data_wait_ms"].max().median() for run in last]
        told += f", the path carries {1e3 * batch * max(usable) / float(np.median(waits_ms)):,.0f} when it is saturated"
    return f"{told})"


def _repeats(usable: Rates) -> int:
    return min(len(runs) for runs in usable.values())


def unseen(runs: Sequence[Trace]) -> str:
    """Why these runs show no input path, or ""."""
    if reason := unusable(runs, "step_ms", "data_wait_ms") or next(filter(None, map(too_short, runs)), ""):
        return reason
    if not all(run.fired("draw_batches") for run in runs):
        return "the job makes its batches without a DataLoader, so its input path cannot be asked for more than the training takes"
    return ""

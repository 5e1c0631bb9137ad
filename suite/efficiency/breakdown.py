"""Judge: each rank's step is accounted for, and neither input nor communication takes more of it than agreed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import Interval, median_interval, more_runs_needed
from suite.efficiency.busy import given_back
from suite.efficiency.scaling import Room
from suite.efficiency.slowdown import NAMES, REMEDIES
from suite.efficiency.timing import PHASES, mean_phases, settled, shares, too_short
from suite.equivalence.usable import named, size, undecided, unusable

CLOCK_MS = 0.05  # phases are stamped to a microsecond each; what a step's phases miss of it, or exceed it by, is no more than this
SHOWN = {"data_wait_ms": "waits for its input", "exposed_ms": "waits for communication", "unnamed_ms": "is outside every named phase"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One share of one rank's time at one world size, over the repeats, and the bound it must stay below."""

    world_size: int
    rank: int
    phase: str
    share: Interval
    bound: float

    @property
    def excess(self) -> float:
        """By how much of a step it is over its bound; negative within."""
        return self.share.estimate - self.bound


def accounted_for(runs: Sequence[Sequence[Trace]], data_wait_share: float, exposed_share: float, room: Room) -> Finding:
    """Judge timed repeats of several world sizes (runs[k] are the repeats of one).

    The bounds are shares of a step. Time outside every named phase may take no more than the smaller of the two: more could hide what they bound.
    """
    every = [trace for repeats in runs for trace in repeats]
    if reason := room.oversubscribed(max((size(trace) for trace in every), default=1)):
        return undecided(reason)
    if reason := unusable(every, "step_ms", "data_wait_ms", "backward_ms") or next(filter(None, map(too_short, every)), ""):
        return undecided(reason)
    if torn := next(filter(None, map(_does_not_add_up, every)), ""):
        return undecided(torn)
    bounds = {"data_wait_ms": data_wait_share, "exposed_ms": exposed_share, "unnamed_ms": min(data_wait_share, exposed_share)}
    judged = [share for repeats in runs for share in _judged(repeats, bounds)]
    over = max((share.world_size for share in judged if share.excess > 0), default=0)
    worst = max((share for share in judged if share.world_size == over or not over), key=lambda share: share.excess)
    finding = _finding(worst, judged, runs)
    if finding.accepted:
        return given_back(finding, every, min(1.0 - share.share.high / share.bound for share in judged))
    slow = next(repeats for repeats in runs if size(repeats[0]) == worst.world_size)
    return given_back(finding, slow, worst.share.low - worst.bound)


def _judged(repeats: Sequence[Trace], bounds: Mapping[str, float]) -> list[Judged]:
    """Every rank's bounded shares at one world size. One device has no communication to wait for, but it has input."""
    table = [shares(trace) for trace in repeats]
    return [
        Judged(size(repeats[0]), int(rank), phase, median_interval([float(made.loc[rank, phase]) for made in table]), bound)
        for rank in table[0].index
        for phase, bound in bounds.items()
        if table[0][phase].notna().all()
    ]


def _does_not_add_up(trace: Trace) -> str:
    """Why the phases are no breakdown of the step: their sum is not the step's time, or one of them is negative."""
    steps = settled(trace)
    gap = (steps[list(PHASES)].fillna(0.0).sum(axis=1) - steps["step_ms"]).abs()
    wrong = steps.loc[(gap > CLOCK_MS + 0.01 * steps["step_ms"]) | (steps[list(PHASES)].min(axis=1) < -CLOCK_MS)]
    if wrong.empty:
        return ""
    row = wrong.iloc[0]
    return f"the phases of rank {row['rank']} in step {row['step']} at world size {size(trace)} do not add up to its {row['step_ms']:.3g} ms: the clock or the probe erred"


def _finding(worst: Judged, judged: Sequence[Judged], runs: Sequence[Sequence[Trace]]) -> Finding:
    decided = _all_hold(judged)
    details = {"breakdown": breakdown(runs), "world_size": worst.world_size, "rank": worst.rank, "phase": NAMES[worst.phase]}
    text = (
        f"rank {worst.rank} of {worst.world_size} {SHOWN[worst.phase]} for {worst.share.estimate:.0%} of its step (bound {worst.bound:.0%})"
    )
    if decided is None:
        needed = more_runs_needed(worst.share, worst.bound)
        more = f"needs about {needed} more runs" if needed else "the share lies at its bound, more runs will not tell"
        text = f"undecided, {more}: {text}, [{worst.share.low:.0%}, {worst.share.high:.0%}]"
    elif not decided:
        text = f"the bottleneck is {NAMES[worst.phase]}: {text}, so {REMEDIES[worst.phase]}"
    else:
        text = f"every step is accounted for and spent on computing: the largest bounded share is {NAMES[worst.phase]}, {text}; {_busiest(runs[-1])}"
    return Finding(
        decided, worst.share.estimate, f"share of the step in {NAMES[worst.phase]}", worst.bound, "at_most", text,
        interval=(worst.share.low, worst.share.high), samples=worst.share.samples, details=details,
    )  # fmt: skip


def _all_hold(judged: Sequence[Judged]) -> bool | None:
    """False where one share is over its bound for certain, None where one may be, else True."""
    held = [share.share.holds(share.bound, "at_most") for share in judged]
    return False if False in held else (None if None in held else True)


def breakdown(runs: Sequence[Sequence[Trace]]) -> list[dict[str, float]]:
    """The breakdown chart's bars: median milliseconds per phase, world size and rank."""
    bars = []
    for repeats in runs:
        for rank, row in mean_phases(repeats).iterrows():
            named_ms = {name: round(float(row[name]), 4) for name in (*PHASES, "exposed_ms")}
            bars.append({"world_size": size(repeats[0]), "rank": int(str(rank)), **named_ms})
    return bars


def _busiest(repeats: Sequence[Trace]) -> str:
    """Where most of the step goes, which is the bottleneck of a sound job."""
    spent: pd.Series = mean_phases(repeats)[list(PHASES)].mean()
    phase = str(spent.idxmax())
    return f"{named(repeats[0])} spend {float(spent[phase] / np.sum(spent.to_numpy())):.0%} of it in {NAMES[phase]}"

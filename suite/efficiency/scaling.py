"""Judge: more ranks make the same training faster, by at least the agreed share of what they cost.

Efficiency is the speed-up per rank in time per optimizer step. A step has one global batch at every world size, so it is the same piece of work; a job
that does more per step when it has more ranks is no faster for it, and is told so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import Interval, more_runs_needed, ratio_interval
from suite.efficiency.busy import given_back
from suite.efficiency.slowdown import why_slower
from suite.efficiency.timing import rows_per_step, step_ms, too_short
from suite.equivalence.usable import size, undecided, unusable


@dataclass(frozen=True, slots=True)
class Room:
    """Where the runs took place: how many ranks can compute at once, and what they compute on ("cores" or "GPUs")."""

    places: int
    what: str

    def oversubscribed(self, ranks: int) -> str:
        """Why no scaling claim can be made for so many ranks, or ""."""
        if ranks <= self.places:
            return ""
        return f"{ranks} ranks on {self.places} {self.what} are oversubscribed: no scaling claim can be made here"


def scales(alone: Sequence[Trace], together: Sequence[Sequence[Trace]], work: Sequence[Trace], bound: float, room: Room) -> Finding:
    """Judge interleaved repeats: alone[i] and together[k][i] were measured one after the other.

    work: untimed runs at world size 1 and the others, which tell the samples per step. bound: least efficiency of the largest world size.
    """
    largest = max((size(traces[0]) for traces in together if traces), default=1)
    if largest < 2:
        return undecided("there is only one rank: start with --world-size 2")
    if reason := room.oversubscribed(largest):
        return undecided(reason)
    every = [*alone, *(trace for traces in together for trace in traces)]
    if reason := unusable(every, "step_ms") or next(filter(None, map(too_short, every)), ""):
        return undecided(reason)
    found = {size(traces[0]): efficiency(alone, traces) for traces in together}
    weakest = min(found, key=lambda count: found[count].estimate)
    slow = next(traces for traces in together if size(traces[0]) == weakest)
    rows = {size(trace): rows_per_step(trace) for trace in work}
    finding = _finding(found[weakest], weakest, bound, why_slower(alone, slow, rows), curve(alone, together, rows, found))
    if finding.accepted:  # what may be too good is due to one device's time being too long, what may be too bad to the others'
        return given_back(finding, alone, distance=1.0 - bound / found[weakest].low)
    return given_back(finding, slow, distance=1.0 - found[weakest].high / bound)


def efficiency(alone: Sequence[Trace], together: Sequence[Trace]) -> Interval:
    """Speed-up per rank, in time per step, with its interval over the pairs of runs."""
    repeats = min(len(alone), len(together))
    one = [step_ms(trace) for trace in alone[:repeats]]
    several = [size(trace) * step_ms(trace) for trace in together[:repeats]]
    return ratio_interval(several, one)


def curve(
    alone: Sequence[Trace], together: Sequence[Sequence[Trace]], rows: Mapping[int, float], found: Mapping[int, Interval]
) -> list[dict[str, float | None]]:
    """The scaling chart's points."""
    points = []
    for traces in [alone, *together]:
        count = size(traces[0])
        times = np.array([step_ms(trace) for trace in traces])
        samples = rows.get(count, math.nan)
        points.append({
            "world_size": count, "step_ms": float(np.median(times)), "low": float(times.min()), "high": float(times.max()),
            "samples_per_s": None if math.isnan(samples) else samples / float(np.median(times)) * 1000.0,
            "efficiency": found[count].estimate if count in found else 1.0, "repeats_ms": times.tolist(),
        })  # fmt: skip
    return points


def _finding(found: Interval, ranks: int, bound: float, why: str, points: list[dict[str, float | None]]) -> Finding:
    by_size = {point["world_size"]: point["step_ms"] or 0.0 for point in points}
    text = f"{ranks} ranks take {by_size[ranks]:.3g} ms a step where one takes {by_size[1]:.3g}: speed-up {found.estimate * ranks:.2f}, efficiency {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
    if found.high * ranks < 1.0:
        text += f", so {ranks} ranks are slower than one"
    decided = found.holds(bound, "at_least")
    if decided is None:
        needed = more_runs_needed(found, bound)
        more = f"needs about {needed} more runs" if needed else "the efficiency lies at its bound, more runs will not tell"
        text = f"undecided, {more}: {text} straddles {bound:.2f}"
    elif not decided:
        text = f"{text}; {why}"
    return Finding(
        decided, found.estimate, "speed-up per rank", bound, "at_least", text, interval=(found.low, found.high), samples=found.samples,
        details={"scaling": points, "coverage": found.coverage, "world_size": ranks},
    )  # fmt: skip

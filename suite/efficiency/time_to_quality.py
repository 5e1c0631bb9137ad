"""Judge: do more ranks reach the quality that one device reaches, sooner, once saves, interruptions and restarts are counted?

Time to quality is what MLPerf measures, on machines that do not fail; goodput is what clusters report, without the loss. Here both are in one number: the steps
until the loss is reached, the measured time of each, what a save adds, and what an interruption costs at the rate that the policy assumes.

    T = s t / (1 - v) * (1 + (r + c t / 2) / M)

s steps to the quality, t seconds a step, v share of the time spent saving, r seconds from a restart to its first step, c steps between saves, M seconds between
interruptions of the whole world. It is Young's first-order sum: at each interruption a restart and half an interval of work are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import ratio_interval
from suite.efficiency.busy import given_back
from suite.efficiency.diagnosis import causes
from suite.efficiency.timing import step_ms, too_short
from suite.equivalence.usable import rounding, size, undecided, unusable

REACHED_AT = 0.75  # of one device's steps: the quality that it has then is the target, so that noise at the very end decides nothing
WINDOW_SHARE = 0.25  # of the steps: what a loss is averaged over


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What an interruption costs and how often one comes: seconds between them (assumed), seconds to restart (measured), steps between
    saves, as planned for the real run and as the audited one made them.
    """

    mean_s: float
    restart_s: float
    every: int
    audited_every: int

    def stretch(self, step_s: float) -> float:
        """By how much interruptions lengthen a training whose steps take `step_s`."""
        return 1.0 + (self.restart_s + self.every * step_s / 2.0) / self.mean_s

    def saving(self, share: float) -> float:
        """The share of the time that saving takes at the planned cadence, from its share at the audited one."""
        steps_per_save = self.audited_every * share / max(1.0 - share, 1e-9)  # what a save costs, in steps
        return steps_per_save / (steps_per_save + self.every)


def smoothed(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(steps,): the loss at each step over all ranks, averaged over the last quarter of a run's steps; shorter at the beginning."""
    losses = trace.steps.groupby("step")["loss"].mean().dropna()
    window = max(1, round(WINDOW_SHARE * len(losses)))
    return losses.rolling(window, min_periods=window).mean().dropna().to_numpy(dtype=float)


def reaches_sooner(
    alone: Sequence[Trace],
    together: Sequence[Trace],
    one: Trace,
    several: Trace,
    permuted: Sequence[Trace],
    lost: Interruptions,
    bound: float,
) -> Finding:
    """Judge interleaved timed repeats of one device and of the largest world, and one whole run of each that carries losses and saves.

    permuted: one device on the same samples in other orders; a loss that differs from the goal by no more than theirs do has reached it.
    bound: the least that each rank has to be worth, as a share of one device. The value is T(1 device) / (ranks x T(ranks)).
    """
    if reason := unusable([*alone, *together, one, several, *permuted], "step_ms") or next(
        filter(None, map(too_short, [*alone, *together])), ""
    ):
        return undecided(reason)
    curve, other = smoothed(one), smoothed(several)
    if len(curve) < 2 or not len(other):
        return undecided("too few losses were seen to tell a quality")
    goal_at = max(1, round(REACHED_AT * len(curve)) - 1)
    goal, behind = float(curve[goal_at]) + _noise(curve, permuted), len(one.steps["step"].unique()) - len(curve)
    if goal >= curve[0]:
        return undecided(
            f"the loss of one device does not fall ({curve[0]:.4g}, then {goal:.4g}), so there is no quality to reach: raise [job] steps"
        )
    ranks, there = size(several), np.flatnonzero(other <= goal)
    needed = int(np.flatnonzero(curve <= goal)[0]) + 1 + behind
    if not len(there):
        text = f"{ranks} ranks have not reached the loss of {goal:.4g}, which one device reaches after {needed} steps, after {len(several.steps['step'].unique())}: their best is {other.min():.4g}"
        return Finding(False, explanation=text, details={"goal": goal})
    took = int(there[0]) + 1 + len(several.steps["step"].unique()) - len(other)
    first = [_seconds(trace, needed, one, lost) for trace in alone]
    second = [_seconds(trace, took, several, lost) for trace in together]
    found = ratio_interval([ranks * value for value in second], first)
    held = found.holds(bound, "at_least")
    text = (
        f"{ranks} ranks reach a loss of {goal:.4g} after {took} steps and {np.median(second):.3g} s, one device after {needed} steps and {np.median(first):.3g} s, "
        f"saves and an interruption every {lost.mean_s / 3600:.3g} h (assumed) included: each rank is worth {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}] of one device"
    )
    text += "" if held else (f", at least {bound:.2f} is required" if held is False else f"; undecided, the interval straddles {bound:.2f}")
    finding = Finding(
        held, found.estimate, "of one device's time to quality, per rank", bound, "at_least", text, interval=(found.low, found.high), samples=found.samples,
        details=_details(ranks, goal, (needed, took), (first, second), lost),
    )  # fmt: skip
    distance = 1.0 - bound / found.low if held else 1.0 - found.high / bound
    return given_back(finding, alone if held else together, distance=distance)


def _noise(curve: np.ndarray[tuple[int], np.dtype[np.float64]], permuted: Sequence[Trace]) -> float:
    """How far one device's own loss moves when it takes the rows of its batches in another order; not less than float32 resolves."""
    others = [smoothed(trace) for trace in permuted]
    moved = [float(np.abs(other - curve).max()) for other in others if len(other) == len(curve)]
    return max([*moved, rounding("float32") * float(np.abs(curve).max())])


def _seconds(timed: Trace, steps: int, whole: Trace, lost: Interruptions) -> float:
    """Expected seconds to the quality, by the formula above, from one timed repeat."""
    step_s = step_ms(timed) / 1e3
    saving = min(0.99, lost.saving(causes(whole)["checkpoint"]))
    return steps * step_s / (1.0 - saving) * lost.stretch(step_s)


def _details(
    ranks: int, goal: float, steps: tuple[int, int], seconds: tuple[Sequence[float], Sequence[float]], lost: Interruptions
) -> dict[str, object]:
    rows = [
        [count, needed, f"{np.median(times):.4g}", f"{count * float(np.median(times)) / 3600.0:.3g}"]
        for count, needed, times in zip((1, ranks), steps, seconds, strict=True)
    ]
    return {
        "goal": goal, "interruption_every_s": lost.mean_s, "restart_s": lost.restart_s, "world_size": ranks,
        "table": {"columns": ["ranks", "steps to the quality", "seconds, interruptions included", "device hours"], "rows": rows},
    }  # fmt: skip

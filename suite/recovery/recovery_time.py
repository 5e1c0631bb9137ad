"""Judge: how long the job is away after a failure, from the kill to the first step that is new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from reports.statistics import median_interval
from suite.recovery.cases import finished_steps, unproven_kill
from suite.recovery.ends import how_it_ended

NS_PER_S = 1e9


def back_in_time(killed: Trace, restarts: Sequence[Trace], *, every: int, bound_s: float) -> Finding:
    """Noticing the failure, restoring, and doing the lost steps again: their sum stays below the bound, for repeated restarts.

    What a scheduler, Python and the import of torch take is not in it where the launcher is a warm one.
    """
    if reason := unproven_kill(killed):
        return Finding(None, explanation=reason)
    for trace in restarts:
        if trace.steps.empty or trace.crashed:
            return Finding(False, explanation=f"it never came back: the restarted run did not do its work: {how_it_ended(trace)}")
    noticed_s = _noticed_s(killed)
    restoring_s = [restored_s(trace) for trace in restarts]
    lost = finished_steps(killed) % every
    redone_s = [lost * float(trace.steps.groupby("step")["step_ms"].max().median()) / 1e3 for trace in restarts]
    totals = [noticed_s + restored + redone for restored, redone in zip(restoring_s, redone_s, strict=True)]
    if len(totals) < 3:
        low = high = value = float(np.median(totals))
    else:
        middle = median_interval(totals)
        low, high, value = middle.low, middle.high, float(np.median(totals))
    accepted = None if low <= bound_s < high else value <= bound_s
    parts = f"{noticed_s:.2f} s until every rank had ended, {np.median(restoring_s):.2f} s to the first step after the restart, {np.median(redone_s):.2f} s for {lost} steps done again"
    warm = " (Python and torch were imported already)" if killed.spec.get("launcher") == "warm" else ""
    text = f"from the kill to the first new step {value:.2f} s, at most {bound_s:g} s allowed: {parts}{warm}"
    if accepted is None:
        text += f"; undecided: the interval {low:.2f} to {high:.2f} s holds the bound"
    details = {"noticed_s": noticed_s, "restored_s": restoring_s, "redone_s": redone_s, "lost_steps": lost}
    return Finding(accepted, value, "s", bound_s, "at_most", text, interval=(low, high), samples=len(totals), details=details)


def _noticed_s(killed: Trace) -> float:
    """From the kill to the end of the last rank; ranks start together, so both are counted from their start."""
    opened = [float(record["t_ns"]) for record in killed.records if record["kind"] == "meta"]
    kill = min(float(record["t_ns"]) for record in killed.faults() if record["fault"]["kind"] == "kill")
    return max(0.0, float(killed.ended.get("wall_s") or 0.0) - (kill - min(opened)) / NS_PER_S)


def restored_s(trace: Trace) -> float:
    """From the start of the first rank to the moment when the last one begins its first step."""
    opened = [float(record["t_ns"]) for record in trace.records if record["kind"] == "meta"]
    try:
        begun = [float(trace.start(rank)["t_ns"]) for rank in trace.ranks]
    except NotSeen:
        begun = [float(trace.steps["t_ns"].min())]
    return (max(begun) - min(opened)) / NS_PER_S

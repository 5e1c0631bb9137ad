"""Judge of one path under load: all ranks restore at once, from a cold cache or from a store that is slow to read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fixtures.devices import summarise
from fixtures.trace import NotSeen, Trace
from reports.statistics import median_interval
from suite.recovery.ends import how_it_ended, lost_a_peer_on_purpose
from suite.release.paths import LoadedPath

MOST_STILL_CACHED = 0.01  # share of the checkpoint's bytes; a page that another process maps cannot be dropped
MOST_PRESSURE = 0.5  # share of the time in which some task waited for a core: beyond it a slow restore says nothing about the job


def restart_s(trace: Trace) -> float | None:
    """From the beginning of the first rank's process until the last rank began its first step; None where a rank began none."""
    begun = {record["rank"]: float(record["t_ns"]) for record in trace.records if record["kind"] == "start"}
    opened = [float(record["t_ns"]) for record in trace.records if record["kind"] == "meta"]
    ranks = int(trace.spec.get("world_size") or len(trace.ranks))
    return (max(begun.values()) - min(opened)) / 1e9 if len(begun) == ranks and opened else None


def restored_step(control: Trace, resumed: Trace) -> int | None:
    """The least step of the control whose parameters a rank held before its first step; 0 for a fresh start, None for a state that it never had.

    Raises NotSeen where a rank began no step or its parameters were not digested.
    """
    ranks = range(int(resumed.spec.get("world_size") or len(resumed.ranks)))
    steps = [_step_of(control, resumed, rank) for rank in ranks]
    return None if None in steps else min(step for step in steps if step is not None)


def _step_of(control: Trace, resumed: Trace, rank: int) -> int | None:
    held = resumed.start(rank).get("param_digest")
    if held is None:
        raise NotSeen(resumed.not_seen().get("param_digest", f"the parameters that rank {rank} restored were not digested"))
    rows = control.steps[(control.steps["rank"] == rank) & (control.steps["param_digest"] == held)]["step"]
    if not rows.empty:
        return int(rows.max())
    return 0 if control.start(rank).get("param_digest") == held else None


def restores_in_time(control: Trace, runs: Sequence[Trace], *, name: str, least_step: int, bound_s: float, note: str = "") -> LoadedPath:
    """Every run came back at `least_step` or later, on all ranks, and the time until all ranks trained again is certainly within the bound."""
    if wrong := next(filter(None, (_wrong(control, run, least_step) for run in runs)), None):
        return LoadedPath(name, *wrong)
    times = [seconds for run in runs if (seconds := restart_s(run)) is not None]
    found = median_interval(times)
    told = f"all {int(runs[0].spec['world_size'])} ranks train again after {found.estimate:.2f} s [{found.low:.2f}, {found.high:.2f}]{note}"
    holds = found.holds(bound_s, "at_most")
    if holds is not True:
        told += f", and {bound_s:g} s are allowed"
        if pressure := _busy(runs):
            holds, told = None, f"{told}; but tasks waited for a core during {pressure:.0%} of the time: try again on a quiet machine"
    return LoadedPath(name, holds, told, found, f"at most {bound_s:g}", "s")


def not_cold(runs: Sequence[Trace]) -> str:
    """Why these restores were not from a cold cache, or ""."""
    for run in runs:
        dropped = run.spec.get("dropped") or {}
        if not dropped.get("bytes"):
            return "there was no checkpoint file to drop from the cache"
        kept = dropped["bytes_cached_after"] / dropped["bytes"]
        if kept > MOST_STILL_CACHED:
            return f"{kept:.0%} of the checkpoint's bytes stayed in memory when they were dropped (a memory file system?): put --audit-dir on a disk"
    return ""


def _wrong(control: Trace, run: Trace, least_step: int) -> tuple[bool | None, str] | None:
    try:
        step = restored_step(control, run)
    except NotSeen as error:
        return (False, f"the restore failed: {how_it_ended(run)}") if run.crashed else (None, f"what was restored was not seen: {error}")
    if step is None or step < least_step:
        where = "in a state that the uninterrupted run never had" if step is None else f"at step {step}"
        return False, f"it came back {where}, and a checkpoint of step {least_step} or later was there"
    if run.crashed and not lost_a_peer_on_purpose(run):
        return False, f"it came back at step {step} and then {how_it_ended(run)}"
    return None


def _busy(runs: Sequence[Trace]) -> float:
    """How much of the time tasks waited for a core, where that is too much to time anything; else 0."""
    seen = [summarise(run.folder)["pressure_share"] for run in runs]
    known = [share for share in seen if share is not None]
    return float(np.median(known)) if known and np.median(known) > MOST_PRESSURE else 0.0

"""Which part of a recorded run is the save to be looked at: the last one that had predecessors and was followed by steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from fixtures.crash.attach import REFUSED
from fixtures.crash.layout import REPLAY
from fixtures.crash.operations import LOG, Log, Operation, read_log
from fixtures.crash.progress import Progress, progress, requirements
from fixtures.trace import Trace

SAVES_BEFORE = 3  # a saver that keeps two checkpoints removes one for the first time in its third save


@dataclass(frozen=True, slots=True)
class Window:
    """One save: the step it saves, its operations, and how far the ranks can come in it."""

    step: int
    log: Log
    part: Progress
    operations: tuple[Operation, ...]


class NoWindow(Exception):
    """There is no save to look at; the message says why and what to do."""


def steps_needed(job_steps: int, every: int) -> int:
    """Steps of the recorded run: three saves, and two steps after the third."""
    return max(job_steps, SAVES_BEFORE * every + 2)


def window_of(recorded: Trace, every: int) -> Window:
    """The save to look at. Raises NoWindow where nothing was recorded, or the recording cannot be trusted."""
    log = _log(recorded)
    step_of = _steps(recorded, log.operations)
    for save in range(SAVES_BEFORE, 0, -1):
        inside = [one for one in log.operations if save * every <= step_of[one.n] < (save + 1) * every]
        if inside and any(one.op in ("write", "rename", "link", "symlink", "exchange") for one in inside):
            arrivals = _times(recorded.collectives, "arrive_ns")
            first, last = inside[0].n, inside[-1].n + 1
            part = progress(log, requirements(log, arrivals), first, last)
            return Window(save * every, log, part, tuple(one for one in log.operations if first <= one.n < last))
    raise NoWindow(f"no save was recorded: nothing was written below {{out}} between steps {every} and {(SAVES_BEFORE + 1) * every}")


def _log(recorded: Trace) -> Log:
    refused, log, replay = (recorded.folder / name for name in (REFUSED, LOG, REPLAY))
    if not log.exists():
        reason = json.loads(refused.read_text())["reason"] if refused.exists() else "the recorder left nothing"
        raise NoWindow(f"the save could not be recorded below Python: {reason}; recovery.worst_boundary looks at what Python shows")
    found = read_log(log)
    if found.trouble:
        raise NoWindow(f"the recording has a gap: {found.trouble}")
    differing: Sequence[str] = json.loads(replay.read_text())["differences"] if replay.exists() else ["it was never replayed"]
    if differing:
        raise NoWindow(f"replaying the recording does not give what the run left: {differing[0]} (a writer that system calls do not show)")
    return found


def _steps(recorded: Trace, operations: Sequence[Operation]) -> Mapping[int, int]:
    """Steps that the operation's rank had completed by then."""
    ends = _times(recorded.steps, "t_ns")
    return {one.n: sum(t_ns <= one.t_ns for t_ns in ends.get(one.rank, ())) for one in operations}


def _times(frame: pd.DataFrame, column: str) -> dict[int, list[int]]:
    """Sorted times (ns) by rank."""
    found: dict[int, list[int]] = {}
    for rank, t_ns in zip(frame["rank"].tolist(), frame[column].tolist(), strict=True):
        found.setdefault(int(rank), []).append(int(t_ns))
    return {rank: sorted(times) for rank, times in found.items()}

"""Which part of a recorded run is the save to be looked at: the last one that had predecessors and was followed by steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from fixtures.crash.attach import REFUSED
from fixtures.crash.layout import REPLAY
from fixtures.crash.operations import LOG, Log, Operation, read_log
from fixtures.crash.progress import Progress, progress, requirements
from fixtures.crash.python_level import HOW
from fixtures.trace import Trace
from suite.recovery.ends import how_it_ended

RECOVERING, AGAIN, REMOVING = "recovery before its first step", "the same step saved again", "moving or removing older checkpoints"
_REMOVES = ("unlink", "rmdir", "remove_tree")
SAVES_BEFORE = 3  # a saver that keeps two checkpoints removes one for the first time in its third save


@dataclass(frozen=True, slots=True)
class Window:
    """One save: the step it saves, its operations, how far the ranks can come in it, and the step of the oldest checkpoint that is right.

    `what` are words for it; `whole` says that it begins with the recording, when there was no checkpoint yet. `phases` says of an operation (by its
    number) what is more at stake than the save itself; `restart` how a recorded restart ended, "" where it ended well or is none.
    """

    step: int
    oldest: int
    what: str
    log: Log
    part: Progress
    operations: tuple[Operation, ...]
    whole: bool = False
    phases: Mapping[int, str] = field(default_factory=dict)
    restart: str = ""


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
            step, first, last = save * every, inside[0].n, inside[-1].n + 1
            return _window(recorded, log, step, step - every, f"save of step {step}", first, last)
    raise NoWindow(f"no save was recorded: nothing was written below {{out}} between steps {every} and {(SAVES_BEFORE + 1) * every}")


def from_the_beginning(recorded: Trace, window: Window) -> Window:
    """The same recording from its first operation to the end of the window: where a saver is wrong from its first save on."""
    what = f"saves up to step {window.step}"
    return replace(_window(recorded, window.log, window.step, 0, what, 0, window.operations[-1].n + 1), whole=True)


def restart_of(recorded: Trace, step: int, came_back_at: int) -> Window:
    """All of a recorded restart that came back at a step and saved `step` again. Raises NoWindow."""
    log = _log(recorded)
    if not log.operations:
        raise NoWindow("the restart changed no file")
    what = f"restart after a crash in the save of step {step}, which saves it again"
    step_of = _steps(recorded, log.operations)
    phases = {one.n: AGAIN if step_of[one.n] else RECOVERING for one in log.operations}
    ending = how_it_ended(recorded) if recorded.crashed else ""
    return replace(_window(recorded, log, step, came_back_at, what, 0, len(log.operations)), phases=phases, restart=ending)


def _window(recorded: Trace, log: Log, step: int, oldest: int, what: str, first: int, last: int) -> Window:
    if waits_unseen(recorded):
        log = replace(log, causal=False)
    part = progress(log, requirements(log, _times(recorded.collectives, "arrive_ns")), first, last)
    inside = tuple(one for one in log.operations if first <= one.n < last)
    return Window(step, oldest, what, log, part, inside, phases=dict.fromkeys(_taken_away(inside), REMOVING))


def _taken_away(inside: Sequence[Operation]) -> list[int]:
    """Numbers of the operations that move or remove what none of these operations made."""
    own: set[str] = set()
    found = []
    for one in inside:
        mine = any(one.path == name or one.path.startswith(f"{name}/") for name in own)
        if one.op in ("open", "mkdir"):
            own.add(one.path)
        elif one.op in ("link", "symlink") or (one.op == "rename" and mine):
            own.add(one.to)
        elif one.op in (*_REMOVES, "rename") and not mine and not one.tried:
            found.append(one.n)
    return found


def waits_unseen(recorded: Trace) -> bool:
    """Whether ranks wait for each other where no system call shows it (nccl): then only the recorded order of their operations is believed."""
    backends = [record for record in recorded.records if record["kind"] == "backend"]
    return any(record.get("device") != "cpu" and record.get("backend") not in (None, "gloo") for record in backends)


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
        unseen = "Python does not show, and ptrace is forbidden" if found.how == HOW else "system calls do not show"
        raise NoWindow(f"replaying the recording does not give what the run left: {differing[0]} (a writer that {unseen})")
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

"""Have the job resume on each of the folders that were made, one run for all that the resume cannot tell apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from fixtures.audit import Audit
from fixtures.crash.layout import BEFORE, WRITTEN, lay_out
from fixtures.crash.looks import LOOKS, read_looks
from fixtures.crash.observed import Seen, seen, told_apart
from fixtures.crash.operations import Operation
from fixtures.crash.states import State, States
from fixtures.trace import Trace
from suite.recovery.alignment import states_of
from suite.recovery.crash_states import Explored, Tried, outcome_of
from suite.recovery.crash_window import Window
from suite.recovery.returns import GOOD, Return

STEPS_AFTER = 2
DEADLINE_S = 60.0
STALL_S = 20.0
MOST_HANGS = 2
MOST_BAD = 150
Make = Callable[[State], Callable[[Path, Path], None]]
"""A state -> what lays it out, from the folder of what was recorded, in {out}."""


def explore(audit: Audit, control: Trace, recorded: Trace, window: Window, states: States, make: Make) -> Explored:
    """What becomes of each state."""
    chosen, stopped = _chosen(audit, states)
    expected, tried, seconds = states_of(control), list[Tried](), 0.0
    runs: dict[str, Seen] = {}
    outcomes: dict[str, Return] = {}
    for state in chosen:
        same = told_apart(state, runs)
        if same is not None:
            tried.append(Tried(state, outcomes[same], True))
            continue
        resumed = audit.resume_from_state(recorded, state.key, make(state), stop_after=STEPS_AFTER, deadline_s=DEADLINE_S, stall_s=STALL_S)
        advertised = any(one.back.step for one in tried)
        back = outcome_of(control, resumed, window, expected, advertised=advertised)
        seconds += float(resumed.ended["wall_s"])
        tried.append(Tried(state, back, False))
        looks = read_looks(resumed.folder / LOOKS)
        if looks is not None and back.outcome != "hang":
            runs[state.key], outcomes[state.key] = seen(state, looks), back
        if enough := _enough(audit, tried):
            stopped = enough
            break
    return Explored(control.spec["world_size"], window, states, tuple(tried), seconds, stopped)


def _enough(audit: Audit, tried: Sequence[Tried]) -> str:
    """Why no more states need to be tried, "" where they do."""
    bad = [one for one in tried if one.back.outcome not in GOOD]
    if audit.part == "twin" and bad:
        return "stopped after the first bad one"
    if sum(one.back.outcome == "hang" for one in bad) >= MOST_HANGS:
        return f"stopped after {MOST_HANGS} hangs"
    return f"stopped after {MOST_BAD} bad ones" if len(bad) >= MOST_BAD else ""


def _chosen(audit: Audit, states: States) -> tuple[tuple[State, ...], str]:
    """All states, or as many as the job's target most_crash_states allows, drawn by its seed."""
    most = int(audit.job.targets.get("most_crash_states", len(states.states)))
    if most >= len(states.states):
        return states.states, ""
    drawn = sorted(Random(audit.job.seed).sample(range(len(states.states)), most))
    return tuple(states.states[index] for index in drawn), f"bound: {most} of them drawn by seed {audit.job.seed}"


def made_of(operations: Sequence[Operation]) -> Make:
    """States that are made of one recording."""
    by_number = {one.n: one for one in operations}

    def make(state: State) -> Callable[[Path, Path], None]:
        return lambda recorded, out: lay_out(state.tree, out, before=recorded / BEFORE, data=recorded / WRITTEN, operations=by_number)

    return make


def restarted_from(found: Explored) -> tuple[State, int] | None:
    """The state with the most left over from the save that was cut: the last from which the job comes back at the checkpoint before; and its step."""
    fitting = [
        (one.state, one.back.step) for one in found.tried if one.state.kind == "process death" and one.back.outcome == "resumed_previous"
    ]
    state, step = fitting[-1] if fitting and not any(one.back.outcome not in GOOD for one in found.tried) else (None, None)
    return (state, step) if state is not None and step is not None else None


def record_restart(audit: Audit, recorded: Trace, window: Window, state: State, back_at: int, every: int) -> Trace:
    """The restart from a state, recorded itself, up to the next save of the same step."""
    make, steps = made_of(window.log.operations)(state), window.step - back_at + every
    return audit.resume_from_state(recorded, state.key, make, stop_after=steps, deadline_s=DEADLINE_S, stall_s=STALL_S, record=True)


def saved_in(audit: Audit, recorded: Trace) -> str:
    """The checkpoint directory relative to {out}, "" where that is {out} itself or none is declared."""
    if audit.job.checkpoint is None:
        return ""
    out = recorded.spec["out"]
    directory = os.path.relpath(audit.job.checkpoint.within.replace("{out}", out), out)
    return "" if directory == "." else directory

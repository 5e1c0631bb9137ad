"""Record one save below Python, make every folder that a crash in it may leave, and have the job resume on each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from fixtures.audit import Audit
from fixtures.crash.layout import BEFORE, WRITTEN, lay_out
from fixtures.crash.looks import LOOKS, read_looks
from fixtures.crash.observed import Seen, seen, told_apart
from fixtures.crash.operations import Operation
from fixtures.crash.planted import OLDER_REMOVED_FIRST, older_removed_first
from fixtures.crash.python_level import HOW
from fixtures.crash.states import Bounds, State, States, crash_states, whole_tree
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.alignment import states_of
from suite.recovery.crash_states import Explored, Tried, outcome_of, survives_every_crash_state
from suite.recovery.crash_window import NoWindow, Window, from_the_beginning, restart_of, steps_needed, window_of
from suite.recovery.returns import GOOD, Return

STEPS_AFTER = 2
DEADLINE_S = 60.0
STALL_S = 20.0
MOST_HANGS = 2
MOST_BAD = 150
EVERYTHING = Bounds()
DEATHS_ONLY = Bounds(power_loss=False)


@criterion(
    "recovery.crash_states",
    claim="Whatever a crash in a save leaves on the disk, killed processes or lost power, the job comes back from the newest complete checkpoint or the one before.",
    twin=Fault(OLDER_REMOVED_FIRST),
    because=r"fresh start|loud failure|exit 0 without resuming|divergence|wrong checkpoint",
    threshold="0 states from which the job comes back as anything else, over all that exist",
    needs=("checkpoint",),
    min_world=1,
    assumptions=(
        "power loss: what was synced stays, what happened before this save is on the disk, the rest may be lost in any order (fixtures/crash/power.py)",
        "a resume is a function of what it looks at below {out}: states that agree in that have one outcome",
        "the third save is like every later one",
    ),
    limitations=(
        "what a survivor does on noticing the death of a peer (clean-up in an exception handler) is not in the recording: recovery.worst_boundary kills for real",
        "not recorded: writes through io_uring, and stores through a shared mapping before it is synced, unmapped or renamed",
        "where ranks wait for each other through device memory (nccl) they are taken to progress in the order that was recorded",
        "parameters, optimizer, learning rate, RNG and samples are compared for the first two steps after the resume",
    ),
    overturned_by="a folder that a crash in a save can leave, on which a restart fails, starts afresh, mixes two checkpoints or trains on differently",
)
def test_crash_states(audit: Audit) -> None:
    """Whatever folder a crash in a save leaves, the restarted job resumes the newest complete checkpoint or the one before."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    steps = steps_needed(audit.job.steps, every)
    explored: list[Explored] = []
    for world_size in sorted({1, audit.world_size}):
        control = audit.run(world_size=world_size, steps=steps, level="full", planted=False)
        recorded = audit.run(world_size=world_size, steps=steps, level="full", planted=False, record=True)
        try:
            found = _both(audit, control, recorded, every)
        except NoWindow as why:
            audit.judge(survives_every_crash_state, control, (), trouble=str(why))
            return
        explored += found
        if audit.part == "twin" and any(one.back.outcome not in GOOD for world in found for one in world.tried):
            break
    audit.judge(survives_every_crash_state, control, explored)


def _both(audit: Audit, control: Trace, recorded: Trace, every: int) -> list[Explored]:
    """The crash states of the save, and, at the largest world, those of a restart from one of them."""
    window = window_of(recorded, every)
    found = _explore(audit, control, recorded, window)
    first = found.tried[0].back if found.tried else None
    if first is not None and first.outcome == "wrong_checkpoint" and first.step == window.step - 2 * every:
        found = _explore(audit, control, recorded, replace(window, oldest=first.step))  # an asynchronous save was still under way
    elif first is not None and audit.part == "as_is" and first.outcome not in GOOD:
        return [_explore(audit, control, recorded, from_the_beginning(recorded, window), DEATHS_ONLY), found]
    again = _restarted_from(found)
    if audit.part == "twin" or again is None or recorded.spec["world_size"] != audit.world_size:
        return [found]
    state, back_at = again
    make = partial(_make, state, {one.n: one for one in found.window.log.operations})
    steps = found.window.step - back_at + every
    second = audit.resume_from_state(recorded, state.key, make, stop_after=steps, deadline_s=DEADLINE_S, stall_s=STALL_S, record=True)
    return [found, _explore(audit, control, second, restart_of(second, found.window.step, back_at))]


def _restarted_from(found: Explored) -> tuple[State, int] | None:
    """The state with the most left over from the save that was cut: the last from which the job comes back at the checkpoint before."""
    fitting = [
        (one.state, one.back.step) for one in found.tried if one.state.kind == "process death" and one.back.outcome == "resumed_previous"
    ]
    state, step = fitting[-1] if fitting and not any(one.back.outcome not in GOOD for one in found.tried) else (None, None)
    return (state, step) if state is not None and step is not None else None


def _explore(audit: Audit, control: Trace, recorded: Trace, window: Window, bounds: Bounds = EVERYTHING) -> Explored:
    states = _states(audit, recorded, window, DEATHS_ONLY if window.log.how == HOW else bounds)
    chosen, stopped = _chosen(audit, states)
    expected, tried, seconds = states_of(control), list[Tried](), 0.0
    runs: dict[str, Seen] = {}
    outcomes: dict[str, Return] = {}
    operations = {one.n: one for one in window.log.operations}
    for state in chosen:
        same = told_apart(state, runs)
        if same is not None:
            tried.append(Tried(state, outcomes[same], True))
            continue
        make = partial(_make, state, operations)
        resumed = audit.resume_from_state(recorded, state.key, make, stop_after=STEPS_AFTER, deadline_s=DEADLINE_S, stall_s=STALL_S)
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


def _states(audit: Audit, recorded: Trace, window: Window, bounds: Bounds) -> States:
    """All of them; on the twin's execution those of the same save with the fault in it."""
    start = whole_tree(window.log, window.part.first)
    if audit.twin is None or audit.job.checkpoint is None:
        return crash_states(window.log, window.part, bounds, start)
    directory = os.path.relpath(audit.job.checkpoint.within.replace("{out}", recorded.spec["out"]), recorded.spec["out"])
    part, left, fired = older_removed_first(window.part, start, "" if directory == "." else directory)
    audit.plant(fired)
    return crash_states(window.log, part, bounds, left)


def _chosen(audit: Audit, states: States) -> tuple[tuple[State, ...], str]:
    """All states, or as many as the job's target most_crash_states allows, drawn by its seed."""
    most = int(audit.job.targets.get("most_crash_states", len(states.states)))
    if most >= len(states.states):
        return states.states, ""
    drawn = sorted(Random(audit.job.seed).sample(range(len(states.states)), most))
    return tuple(states.states[index] for index in drawn), f"bound: {most} of them drawn by seed {audit.job.seed}"


def _make(state: State, operations: dict[int, Operation], recorded: Path, out: Path) -> None:
    lay_out(state.tree, out, before=recorded / BEFORE, data=recorded / WRITTEN, operations=operations)

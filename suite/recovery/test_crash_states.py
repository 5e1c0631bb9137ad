"""Record one save below Python, make every folder that a crash in it may leave, and have the job resume on each."""

from __future__ import annotations

from dataclasses import replace

from fixtures.audit import Audit
from fixtures.crash.planted import OLDER_REMOVED_FIRST, older_removed_first
from fixtures.crash.python_level import HOW
from fixtures.crash.states import Bounds, States, crash_states, whole_tree
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.crash_states import Explored, survives_every_crash_state
from suite.recovery.crash_window import NoWindow, Window, from_the_beginning, restart_of, steps_needed, window_of
from suite.recovery.exploring import explore, made_of, record_restart, restarted_from, saved_in
from suite.recovery.returns import GOOD

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
    again = restarted_from(found)
    if audit.part == "twin" or again is None or recorded.spec["world_size"] != audit.world_size:
        return [found]
    second = record_restart(audit, recorded, found.window, *again, every)
    return [found, _explore(audit, control, second, restart_of(second, found.window.step, again[1]))]


def _explore(audit: Audit, control: Trace, recorded: Trace, window: Window, bounds: Bounds = EVERYTHING) -> Explored:
    states = _states(audit, recorded, window, DEATHS_ONLY if window.log.how == HOW else bounds)
    return explore(audit, control, recorded, window, states, made_of(window.log.operations))


def _states(audit: Audit, recorded: Trace, window: Window, bounds: Bounds) -> States:
    """All of them; on the twin's execution those of the same save with the fault in it."""
    start = whole_tree(window.log, window.part.first)
    if audit.twin is None:
        return crash_states(window.log, window.part, bounds, start)
    part, left, fired = older_removed_first(window.part, start, saved_in(audit, recorded))
    audit.plant(fired)
    return crash_states(window.log, part, bounds, left)

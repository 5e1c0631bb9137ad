"""Let a run that was given up go on in the checkpoint directory of its restart, operation by operation, and have the job resume on what that leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fixtures.audit import Audit
from fixtures.crash.late import beside, late_states
from fixtures.crash.layout import BEFORE, WRITTEN, lay_out
from fixtures.crash.operations import Operation
from fixtures.crash.planted import LATE_RUN_CLEARS, late_run_clears
from fixtures.crash.states import Bounds, State, crash_states, whole_tree
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.recovery.crash_states import Explored, survives_every_crash_state
from suite.recovery.crash_window import NoWindow, Window, restart_of, steps_needed, window_of
from suite.recovery.exploring import Make, explore, made_of, record_restart, restarted_from, saved_in
from suite.recovery.returns import GOOD

BOTH = "both.bin"


@criterion(
    "recovery.two_runs",
    claim="A run that was given up, whose ranks still write into the checkpoint directory, costs its restart nothing that the restart saved.",
    twin=Fault(LATE_RUN_CLEARS),
    because=r"fresh start|loud failure|exit 0 without resuming|divergence|wrong checkpoint",
    threshold="0 states from which the job comes back as anything but the newest complete checkpoint or the one before",
    needs=("checkpoint",),
    min_world=1,
    assumptions=(
        "the restart begins in the folder with the most left over from the save that was cut",
        "the run that was given up goes on as it did undisturbed; its first operation that cannot happen any more ends it",
    ),
    limitations=(
        "the late operations come after those of the restarted run: what that run does on noticing them is not seen",
        "one save of each run",
    ),
    overturned_by="a folder that two runs left together, on which a restart fails, starts afresh, mixes two checkpoints or trains on differently",
)
def test_two_runs(audit: Audit) -> None:
    """Whatever a run that was given up still writes, its restart's checkpoints stay whole."""
    if not audit.claims("two_runs"):
        audit.not_applicable(
            "the job does not claim to bear a second run in its checkpoint directory ([capabilities] two_runs = true): whoever starts it must end the first"
        )
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    steps = steps_needed(audit.job.steps, every)
    control = audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False)
    recorded = audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False, record=True)
    try:
        window = window_of(recorded, every)
        found, trouble = _beside_its_restart(audit, control, recorded, window, every)
    except NoWindow as why:
        found, trouble = [], str(why)
    audit.judge(survives_every_crash_state, control, found, trouble=trouble)


def _beside_its_restart(audit: Audit, control: Trace, recorded: Trace, window: Window, every: int) -> tuple[list[Explored], str]:
    """The states of both runs together; or why there are none."""
    alone = crash_states(window.log, window.part, Bounds(power_loss=False), whole_tree(window.log, window.part.first))
    cut = explore(audit, control, recorded, window, alone, made_of(window.log.operations))
    begun = restarted_from(cut)
    if begun is None:
        bad = [one for one in cut.tried if one.back.outcome not in GOOD]
        why = (
            f"one run alone is not come back from: {bad[0].state.words}: {bad[0].back.words}"
            if bad
            else "no crash in the save leaves the one before"
        )
        return [], f"two runs were not tried, as {why}"
    state, back_at = begun
    second = record_restart(audit, recorded, window, state, back_at, every)
    restarted = restart_of(second, window.step, back_at).log
    first_bytes = max((one.data_at + one.length for one in window.log.operations if one.op == "write"), default=0)
    operations = beside(window.log, restarted, first_bytes)
    digests = {one.n: one.digest for one in (*window.log.operations, *operations)}
    together = late_states(window.part, state.cut, state.tree, operations, digests)
    if audit.twin is not None:
        together, fired = late_run_clears(together, operations, state.tree, saved_in(audit, recorded), digests)
        audit.plant(fired)
    late = tuple(one for mine, done in zip(window.part.by_process, state.cut, strict=True) for one in mine[done:])
    what = f"two runs, of which the one that was cut in the save of step {window.step} goes on beside its restart"
    both = replace(window, oldest=back_at, what=what, operations=tuple(sorted(late, key=lambda one: one.n)))
    make = _make(second.spec["run_id"], first_bytes, (*window.log.operations, *operations))
    return [explore(audit, control, recorded, both, together, make)], ""


def _make(second: str, first_bytes: int, operations: Sequence[Operation]) -> Make:
    """States made of two recordings: their data in one file."""
    by_number = {one.n: one for one in operations}

    def make(state: State) -> Callable[[Path, Path], None]:
        def lay(recorded: Path, out: Path) -> None:
            both = recorded / BOTH
            if not both.exists():
                shutil.copyfile(recorded / WRITTEN, both)
                with both.open("r+b") as data, (recorded.parent / second / WRITTEN).open("rb") as more:
                    data.seek(first_bytes)
                    shutil.copyfileobj(more, data)
            lay_out(state.tree, out, before=recorded / BEFORE, data=both, operations=by_number)

        return lay

    return make

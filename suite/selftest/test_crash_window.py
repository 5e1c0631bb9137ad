"""Which save is looked at, and which recordings are not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.crash.attach import REFUSED
from fixtures.crash.layout import REPLAY
from fixtures.crash.operations import LOG, Log, Message, Operation, read_log, write_log
from fixtures.trace import Trace, load_trace
from suite.recovery.crash_window import AGAIN, RECOVERING, REMOVING, NoWindow, from_the_beginning, restart_of, steps_needed, window_of
from suite.selftest.synthetic import SECOND_NS, write_trace

EVERY = 2


def operation(n: int, step: int, op: str = "write") -> Operation:
    """One of rank 0's, half a second after a step of the made-up run."""
    return Operation(
        n, 0, n + 1, 0, op, f"checkpoints/step_{step}", length=5, digest="d", order=n + 1, t_ns=step * SECOND_NS + SECOND_NS // 2
    )


def recorded(folder: Path, *steps: int, trouble: str = "", differences: tuple[str, ...] = ()) -> Trace:
    """A run of eight steps that wrote after these."""
    write_trace(folder, steps=8, ranks=1)
    write_log(Log(tuple(operation(n, step) for n, step in enumerate(steps)), (), {}, "made up", True, trouble=trouble), folder / LOG)
    (folder / REPLAY).write_text(json.dumps({"differences": list(differences)}))
    return load_trace(folder)


def test_the_third_save_is_looked_at_or_the_last_before_it(tmp_path: Path) -> None:
    third = window_of(recorded(tmp_path / "a", 2, 4, 6, 6, 8), EVERY)
    second = window_of(recorded(tmp_path / "b", 2, 4), EVERY)

    assert (third.step, third.oldest, [one.n for one in third.operations]) == (6, 4, [2, 3])
    assert (second.step, second.oldest, [one.n for one in second.operations]) == (4, 2, [1])
    assert (third.part.first, third.part.last) == ((2,), (4,))
    assert steps_needed(5, EVERY) == 8
    assert steps_needed(50, EVERY) == 50


def test_what_a_save_removes_of_older_ones_stands_apart(tmp_path: Path) -> None:
    trace = recorded(tmp_path, 2, 4, 6, 6, 6, 6)
    log = read_log(tmp_path / LOG)
    kinds = {2: "open", 4: "unlink", 5: "unlink"}
    changed = [
        replace(one, op=kinds.get(one.n, one.op), path="checkpoints/step_2" if one.n == 5 else one.path) for one in log.operations
    ]  # fmt: skip
    write_log(replace(log, operations=tuple(changed)), tmp_path / LOG)

    assert window_of(trace, EVERY).phases == {5: REMOVING}
    changed[2:] = [
        replace(changed[2], op="rename", path="checkpoints/step_2", to="checkpoints/old"), replace(changed[3], path="checkpoints/step_6"),
        replace(changed[4], op="unlink", path="checkpoints/old/part"), replace(changed[5], op="rmdir", path="checkpoints/old"),
    ]  # fmt: skip
    write_log(replace(log, operations=tuple(changed)), tmp_path / LOG)

    assert window_of(trace, EVERY).phases == {2: REMOVING, 4: REMOVING, 5: REMOVING}


def test_a_restart_is_cut_in_its_recovery_and_while_it_saves_the_step_again(tmp_path: Path) -> None:
    window = restart_of(recorded(tmp_path, 0, 2, 2), 6, 4)

    assert window.phases == {0: RECOVERING, 1: AGAIN, 2: AGAIN}
    assert window.restart == ""


def test_from_the_beginning_takes_all_saves_up_to_it(tmp_path: Path) -> None:
    trace = recorded(tmp_path, 2, 4, 6, 6, 8)
    whole = from_the_beginning(trace, window_of(trace, EVERY))

    assert whole.whole
    assert [one.n for one in whole.operations] == [0, 1, 2, 3]
    assert whole.oldest == 0


def test_a_recording_that_cannot_be_believed_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(NoWindow, match="has a gap: write: gone"):
        window_of(recorded(tmp_path / "gap", 6, trouble="write: gone"), EVERY)
    with pytest.raises(NoWindow, match="does not give what the run left: a has another content"):
        window_of(recorded(tmp_path / "other", 6, differences=("a has another content",)), EVERY)
    with pytest.raises(NoWindow, match=r"no save was recorded: nothing was written below \{out\} between steps 2 and 8"):
        window_of(recorded(tmp_path / "none", 0, 1), EVERY)


def test_where_ptrace_is_refused_the_reason_and_what_remains_are_told(tmp_path: Path) -> None:
    write_trace(tmp_path, steps=8, ranks=1)
    (tmp_path / REFUSED).write_text(json.dumps({"reason": "ptrace of process 7 is refused: Operation not permitted"}))

    with pytest.raises(NoWindow, match=r"Operation not permitted; recovery\.worst_boundary looks at what Python shows"):
        window_of(load_trace(tmp_path), EVERY)


def test_a_log_is_stored_and_read_as_it_was(tmp_path: Path) -> None:
    log = Log(
        (replace(operation(0, 2), synced=True), operation(1, 4, "sync")), (Message(3, 0, 1, 2, -5),),
        {"a": None, "b": 7, "c": "target"}, "ptrace", True, ("io_uring",), "",
    )  # fmt: skip
    write_log(log, tmp_path / LOG)

    assert read_log(tmp_path / LOG) == log

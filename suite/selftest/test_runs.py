"""The locks of an audit: what is timed is alone, everything else shares, and nobody is kept out for ever."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from fixtures.audit import check_hung
from fixtures.criterion import Inconclusive
from fixtures.runs import machine

DEADLINE_S = 20.0


def enter(folder: Path, alone: bool, inside: threading.Event, leave: threading.Event) -> threading.Thread:
    """Start a thread that takes the machine, says so, and keeps it until told to leave."""

    def hold() -> None:
        with machine(folder, alone=alone):
            inside.set()
            leave.wait(DEADLINE_S)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    return thread


def test_what_is_not_timed_shares_the_machine(tmp_path: Path) -> None:
    """Two untimed criteria run at once."""
    first, second, leave = threading.Event(), threading.Event(), threading.Event()
    enter(tmp_path, False, first, leave)
    enter(tmp_path, False, second, leave)

    assert first.wait(DEADLINE_S)
    assert second.wait(DEADLINE_S)
    leave.set()


def test_what_is_timed_is_alone(tmp_path: Path) -> None:
    """Nobody enters beside a timed criterion; the next one enters when it has left."""
    timed, other, leave, go = threading.Event(), threading.Event(), threading.Event(), threading.Event()
    enter(tmp_path, True, timed, leave)
    assert timed.wait(DEADLINE_S)
    enter(tmp_path, False, other, go)

    assert not other.wait(0.3), "an untimed criterion ran beside a timed one"
    leave.set()
    assert other.wait(DEADLINE_S), "the untimed criterion never got its turn"
    go.set()


def test_a_stream_of_others_does_not_keep_a_timed_criterion_out(tmp_path: Path) -> None:
    """While a timed criterion waits, the gate is shut: whoever comes later queues behind it."""
    first, timed, later = threading.Event(), threading.Event(), threading.Event()
    leave_first, leave_timed, leave_later = threading.Event(), threading.Event(), threading.Event()
    enter(tmp_path, False, first, leave_first)
    assert first.wait(DEADLINE_S)
    enter(tmp_path, True, timed, leave_timed)
    assert not timed.wait(0.3), "a timed criterion ran beside another"
    enter(tmp_path, False, later, leave_later)

    assert not later.wait(0.3), "a later criterion overtook the one that waits for the machine"
    leave_first.set()
    assert timed.wait(DEADLINE_S)
    leave_timed.set()
    assert later.wait(DEADLINE_S)
    leave_later.set()


def test_after_a_hang_at_start_no_further_run_is_tried(tmp_path: Path) -> None:
    """Each would wait for the whole time limit; a run that did end is still judged."""
    (tmp_path / "hung.json").write_text(json.dumps({"message": "run w1-x reached no optimizer step in 4 s"}))
    ended = tmp_path / "traces" / "w2-y"
    ended.mkdir(parents=True)
    (ended / "ended.json").write_text("{}")

    with pytest.raises(Inconclusive, match="reached no optimizer step in 4 s"):
        check_hung(tmp_path, tmp_path / "traces" / "w1-z")
    check_hung(tmp_path, ended)

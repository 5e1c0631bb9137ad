"""What a user is told of a failed run: one line that can be shown anywhere, and what to change where that is known."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fixtures.advice import advice, how_ended, readable, stood_at
from fixtures.ranklog import close_log, last_line, open_log, pump
from fixtures.trace import Trace, trace_from_records
from suite.equivalence.usable import unusable


@pytest.mark.parametrize(
    ("by_signal", "said", "told"),
    [
        (None, "train.py: error: the following arguments are required: --data", "correct the arguments in [job] command"),
        (None, "ModuleNotFoundError: No module named 'deepspeed.ops'", "install deepspeed.ops into the environment that runs the audit"),
        (
            None,
            "RuntimeError: The server socket has failed to listen: EADDRINUSE",
            "take MASTER_PORT from the environment instead of a fixed port",
        ),
        (
            None,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "lower [job] global_batch, or give the machine more memory",
        ),
        (signal.SIGKILL, "", "see whether memory ran out (dmesg), and lower [job] global_batch if so"),
        (signal.SIGBUS, "", "see whether /dev/shm or the disk is full"),
        (signal.SIGTERM, "", ""),
        (signal.SIGRTMIN + 3, "", ""),
        (None, "ValueError: bad row 7", ""),
    ],
)
def test_what_to_change_is_said_where_it_is_known_and_not_guessed(by_signal: int | None, said: str, told: str) -> None:
    assert advice(by_signal, said) == told


def test_an_end_has_a_name() -> None:
    assert how_ended(3, None) == "exited with code 3"
    assert how_ended(None, signal.SIGSEGV) == "was killed by SIGSEGV"
    assert how_ended(None, signal.SIGRTMIN + 3) == f"was killed by signal {signal.SIGRTMIN + 3}"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mError:\x1b[0m no\tdata\r", "Error: no data"),
        ("\x07\x00\u0085", ""),
        ("caf\ufffd", "caf\ufffd"),
        ("a" * 50, "a" * 18 + " …"),
    ],
)
def test_a_line_is_made_readable(line: str, shown: str) -> None:
    assert readable(line, 20) == shown


STACKS = """Thread 0x1 (most recent call first):
  File "/job/loader.py", line 7 in fetch
  File "/usr/lib/python3.11/threading.py", line 975 in run

Current thread 0x2 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1583 in _shutdown
{own}  File "{ours}", line 12 in become
"""


def test_where_a_rank_stood_is_its_own_line() -> None:
    ours = Path(stood_at.__code__.co_filename).with_name("warm.py")
    assert stood_at(STACKS.format(own='  File "/job/train.py", line 3 in wait\n', ours=ours)) == "train.py:3 in wait"
    assert stood_at(STACKS.format(own="", ours=ours)) == "loader.py:7 in fetch", (
        "another thread's, where the main one is in no code of the job"
    )
    assert stood_at("") == ""


def test_a_disk_that_is_full_costs_the_log_and_not_the_supervisor() -> None:
    source, target = os.pipe()
    log = open_log(Path("/dev/full"), source)
    os.write(target, b"words\n")
    os.close(target)
    assert pump(log) == 6
    close_log(log)


def test_the_last_line_is_the_last_that_says_something(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(b"first\n\x1b[31mlast\xff\x1b[0m\n \t\n\x07\n")
    assert last_line(path) == "last\ufffd"


def ended(*records: dict[str, object], exit_code: int = 0, message: str = "") -> Trace:
    ranks = [{"rank": rank, "exit_code": exit_code, "signal": None, "killed_by_us": False} for rank in (0, 1)]
    return trace_from_records(records, spec={"world_size": 2}, ended={"ended_by": "exit", "ranks": ranks, "message": message})


def test_the_rank_that_failed_first_is_quoted() -> None:
    trace = ended(exit_code=1, message="rank 1 exited with code 1 (its last line: no)")
    assert unusable(trace) == "the run at world size 2 did not end well: rank 1 exited with code 1 (it printed nothing)"


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ((), "the probe was not loaded: have [job] command start python itself"),
        (({"kind": "meta", "rank": 0},), "rank 0 became another program or left by os._exit, past the probe"),
        (
            ({"kind": "not_seen", "rank": 0, "signal": "steps", "reason": "no Optimizer stepped and no backward ran"},),
            "and every rank exited with code 0: see whether [job] command trains at all",
        ),
        (
            ({"kind": "not_seen", "rank": 0, "signal": "steps", "reason": "no Optimizer stepped: the job starts its own ranks"},),
            "name in [job] command what one rank runs, and let it take RANK, LOCAL_RANK and WORLD_SIZE",
        ),
    ],
)
def test_a_run_without_steps_says_why(records: tuple[dict[str, object], ...], said: str) -> None:
    assert said in unusable(ended(*records))

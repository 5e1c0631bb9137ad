"""Jobs that crash, hang, flood, fork, hide or hit back: one sentence that says what was seen and what to change, in bounded time, nothing left behind.

Each is really run, on two ranks and on one, through a criterion, as a user's own job would be; what is looked at is what that user gets to read.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.criterion import PartResult
from fixtures.job import Job, load_job
from fixtures.ranklog import HEAD_BYTES, TAIL_BYTES
from fixtures.reap import LIFE, descendants
from fixtures.world import open_launcher
from suite.efficiency.test_efficiency import test_same_work as same_work
from suite.selftest.criterion_runs import JOBS, CriterionRuns
from suite.selftest.world_scripts import still_there

LIMIT_S, GRACE_S, SLACK_S = 1.0, 5.0, 20.0
TRAIN = JOBS / "hostile" / "train.py"

FAILS = {
    "wrong_flag": r"exited with code 2 \(.*unrecognized arguments: --nonsense\): correct the arguments in \[job\] command",
    "crash_at_import": r"ModuleNotFoundError: No module named 'no_such_library'\): install no_such_library into the environment",
    "no_newline": r"RuntimeError: the line was long\)",
    "much_output": r"RuntimeError: the log was long\): see traces/w1-\w+/rank0.log",
    "not_text": r"exited with code 3 \(its last line: \ufffd\ufffd caf\ufffd\)",
    "control_characters": r"exited with code 3 \(its last line: all red\)",
    "needs_a_terminal": r"Inappropriate ioctl for device\): a run has no terminal",
    "asks": r"EOFError: EOF when reading a line\): a run has no terminal: have the job take its answers from arguments",
    "segfault": r"killed by SIGSEGV \(it printed nothing\): write PYTHONFAULTHANDLER = \"1\" below \[job.environment\]",
    "out_of_memory": r"MemoryError\): lower \[job\] global_batch",
    "no_memory_for_a_tensor": r"can't allocate memory: you tried to allocate \d+ bytes.*: lower \[job\] global_batch",
    "killed_by_the_kernel": r"killed by SIGKILL \(it printed nothing\): see whether memory ran out",
    "no_output": r"I/O operation on closed file.\): leave standard output and standard error open",
    "exit_with_words": r"exited with code 1 \(its last line: the data is not there\)",
    "kills_its_group": r"exited with code 130 \(its last line: KeyboardInterrupt\)",
    "full_disk": r"No space left on device: '.*'\): free disk space",
    "exit_in_atexit": r"exited with code 6 \(it printed nothing\)",
    "fills_the_temp_folder": r"exited with code 5 \(it printed nothing\)",
    "ignores_sigterm": r"exited with code 4 \(it printed nothing\)",
    "recursion": r"RecursionError: maximum recursion depth exceeded",
    "long_message": r"its last line: a word a word [a-z ]{100,200} …\): see traces/",
}
"""The run fails by itself."""
HANGS = {
    "hang_at_start": r"rank 0 stood at train.py:\d+ in for_ever",
    "endless_output": r"its last line: y{100,239} …",
    "thread_that_never_ends": r"rank 0 stood at train.py:\d+ in for_ever",
    "starts_itself_for_ever": r"rank 0 said nothing",
    "forks_without_end": r"rank 0 stood at train.py:\d+ in for_ever",
    "stops_itself": r"rank 0 said nothing",
}
"""The run has to be ended."""
UNSEEN = {
    "exit_0_at_once": r"no Optimizer stepped and no backward ran, and every rank exited with code 0: see whether \[job\] command trains at all",
    "no_optimizer": r"2 backwards ran but no Optimizer.step was seen: made by hand, or compiled",
    "own_ranks": r"which started 2 others: the job starts its own ranks; name in \[job\] command what one rank runs",
    "own_torchrun": r"programs that it ran computed for \d\.\d s: the job starts its own ranks; name in \[job\] command what one rank runs",
}
"""The run ends well, and nothing of it was seen."""
LOST = {
    "deletes_the_trace": r"the job deleted .*, the folder of its trace: have it delete nothing outside \{out\}",
    "kills_its_parent": r"the process that starts the ranks ended: SIGTERM was sent to it; have the job signal no process but its own",
}
"""There is no run."""
HARMLESS = ("daemons", "changes_folder", "deletes_its_output", "closes_everything")
"""What they do is no reason not to judge them."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CriterionRuns]:
    before, standing = mounts(), ours()
    with open_launcher() as launcher:
        yield CriterionRuns(launcher, tmp_path_factory.mktemp("hostile"))
    assert set(ours()) <= set(standing), "processes of the runs outlived their launcher"
    assert mounts() == before


def mounts() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def ours() -> list[int]:
    """Processes that a launcher of this process started, wherever they are now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{LIFE}=".encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        found += [int(folder.name)] if marked and int(folder.name) in descendants(os.getpid()) else []
    return found


def hostile(folder: Path, how: str, *, limit_s: float, more: str) -> Job:
    """A job.toml for one way to be hostile."""
    folder.mkdir(parents=True, exist_ok=True)
    command = f"{TRAIN} --how {how} --batch {{per_rank_batch}} --steps {{steps}} --out {{out}}{more}"
    (folder / "job.toml").write_text(
        f'[job]\nname = "{how}"\ncommand = "{command}"\nglobal_batch = 4\nsteps = 2\ntime_limit_s = {limit_s}\nstall_s = {limit_s}\n'
    )
    return load_job(folder / "job.toml")


def judged(runs: CriterionRuns, how: str, *, limit_s: float = LIMIT_S, more: str = "") -> PartResult:
    """What a user is told: always one line that can be shown anywhere, in the time of two runs; and no process of the job is left."""
    began = time.monotonic()
    result = runs.judged(hostile(runs.folder / f"{how}-job", how, limit_s=limit_s, more=more), same_work)
    assert time.monotonic() - began < 2 * (limit_s + 2 * GRACE_S) + SLACK_S
    assert result.finding.explanation.isprintable(), result.finding.explanation
    assert len(result.finding.explanation) < 700
    pids = [int(note.read_text()) for note in runs.folder.glob(f"{how}/**/*.pid")]
    assert still_there(pids, GRACE_S) == []
    return result


@pytest.mark.parametrize("how", FAILS)
def test_a_failure_is_told_with_its_last_words_and_what_to_change(runs: CriterionRuns, how: str) -> None:
    result = judged(runs, how, limit_s=60.0, more=" --nonsense" if how == "wrong_flag" else "")

    assert result.outcome == "inconclusive"
    assert re.search(r"^the run at world size 1 did not end well: rank 0 ", result.finding.explanation)
    assert re.search(FAILS[how], result.finding.explanation), result.finding.explanation
    for log in runs.folder.glob(f"{how}/traces/*/rank*.log"):
        assert log.stat().st_size <= HEAD_BYTES + TAIL_BYTES + 100


@pytest.mark.parametrize("how", HANGS)
def test_a_hang_is_ended_told_where_it_stood_and_not_tried_again(runs: CriterionRuns, how: str) -> None:
    result = judged(runs, how)

    assert result.outcome == "inconclusive"
    assert re.search(
        rf"^run w2-\w+ reached no optimizer step in 1 s \(ranks 0, 1 still ran when the deadline of 1 s passed; .*{HANGS[how]}.*\), "
        r"so no further run is tried; see traces/w2-\w+/rank0.log, or raise \[job\] time_limit_s$",
        result.finding.explanation,
    ), result.finding.explanation
    assert len(list(runs.folder.glob(f"{how}/traces/*/ended.json"))) == 1


@pytest.mark.parametrize("how", UNSEEN)
def test_a_run_that_shows_nothing_is_not_judged(runs: CriterionRuns, how: str) -> None:
    result = judged(runs, how, limit_s=60.0)

    assert result.outcome == "inconclusive"
    assert re.search(rf"^no optimizer step was seen at world size 1: .*{UNSEEN[how]}", result.finding.explanation), (
        result.finding.explanation
    )


@pytest.mark.parametrize("how", LOST)
def test_a_job_that_takes_the_run_along_is_told_so_and_not_tried_again(runs: CriterionRuns, how: str) -> None:
    result = judged(runs, how, limit_s=60.0)

    assert result.outcome == "inconclusive"
    assert re.search(LOST[how], result.finding.explanation), result.finding.explanation
    assert "no further run is tried" in json.loads((runs.folder / how / "hung.json").read_text())["message"]


@pytest.mark.parametrize("how", HARMLESS)
def test_what_does_not_concern_its_training_does_not_keep_it_from_being_judged(runs: CriterionRuns, how: str) -> None:
    result = judged(runs, how, limit_s=60.0)

    assert result.outcome == "accepted", result.finding.explanation


def test_a_job_that_starts_itself_again_is_still_seen(runs: CriterionRuns) -> None:
    """As jobs do to set a variable that libraries read when they are loaded."""
    assert judged(runs, "starts_itself_again", limit_s=60.0).outcome == "accepted"

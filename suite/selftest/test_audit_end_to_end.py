"""Whole sessions, as a user starts them: what is written, what survives an interruption, what judging again gives."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fixtures.criterion import discover
from fixtures.environment import environment
from fixtures.plugin import ROOT
from fixtures.session import occupy
from reports import evidence

TOY = ROOT / "suite" / "selftest" / "jobs" / "toy" / "job.toml"
CHOSEN = "ranks_agree or data_order"
DEADLINE_S = 120.0


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--job", str(TOY), "--audit-dir", str(folder), *more]


def surroundings() -> dict[str, str]:
    """The environment of a session of its own: one that is started inside an xdist worker must not take itself for that worker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def session(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *more), cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=DEADLINE_S * 2, check=False
    )


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    asked = [sys.executable, "-m", "suite", "judge", str(folder)]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def verdicts(folder: Path) -> dict[str, str]:
    return {one["id"]: one["verdict"] for one in json.loads((folder / "audit.json").read_text())["criteria"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One whole session of two criteria on the toy job, world size 2."""
    folder = tmp_path_factory.mktemp("audit") / "toy"
    return folder, session(folder, "-m", "cpu", "-k", CHOSEN)


def test_a_session_ends_with_the_decision_and_the_page(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """What was selected passed, so pytest exits 0; what was not selected is not run, so the decision holds."""
    folder, done = finished

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == [f"page: {folder / 'audit.html'}", "decision: hold"]
    assert "equivalence.data_order gloo as is holds" in done.stdout
    assert "[4/4]" in done.stdout


def test_every_criterion_of_the_suite_is_in_the_ledger(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The catalogue is the suite's, not what happened to be selected; the ledger adds up to it."""
    folder, _ = finished
    found = verdicts(folder)
    coverage = json.loads((folder / "audit.json").read_text())["coverage"]

    assert set(found) == {one.id for one in discover(ROOT / "suite")}
    assert {name for name, verdict in found.items() if verdict == "passed"} == {"equivalence.data_order", "equivalence.ranks_agree"}
    assert coverage["catalogue"] == sum(count for name, count in coverage.items() if name != "catalogue") == len(found)


def test_judging_again_gives_the_same_bytes(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """A reviewer reproduces the page from the traces, with no rerun."""
    folder, _ = finished
    before = {name: (folder / name).read_bytes() for name in ("audit.json", "audit.html")}
    done = judge(folder)

    assert done.returncode == 4, done.stdout + done.stderr
    assert "same verdicts as stored" in done.stdout
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_record_that_was_taken_out_holds_the_decision(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Evidence that is gone is named; judging again does not quietly bring it back."""
    folder = tmp_path / "tampered"
    shutil.copytree(finished[0], folder)
    with closing(sqlite3.connect(folder / "evidence.sqlite")) as store:
        store.execute("DELETE FROM records WHERE id = 'equivalence.ranks_agree'")
        store.commit()
    done = judge(folder)

    assert done.returncode == 4
    assert verdicts(folder)["equivalence.ranks_agree"] == "not_run"
    assert any(
        "equivalence.ranks_agree" in json.dumps(reason) for reason in json.loads((folder / "audit.json").read_text())["decision"]["reasons"]
    )


def test_a_criterion_that_was_taken_out_of_the_catalogue_is_missed(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A ledger that was shortened is held against the suite: what is absent reads as not run."""
    folder = tmp_path / "shortened"
    shutil.copytree(finished[0], folder)
    with closing(sqlite3.connect(folder / "evidence.sqlite")) as store:
        for table in ("records", "catalogue"):
            store.execute(f"DELETE FROM {table} WHERE id = 'equivalence.data_order'")
        store.commit()
    done = judge(folder)

    assert done.returncode == 4
    assert verdicts(folder)["equivalence.data_order"] == "not_run"


def test_an_altered_trace_changes_no_verdict_and_holds(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """A record is never overwritten by what altered traces say; the decision holds and names the run."""
    folder = tmp_path / "altered"
    shutil.copytree(finished[0], folder)
    before = evidence.load(folder).records
    altered = before["equivalence.ranks_agree", "gloo", "as_is"].runs[0]
    (folder / "traces" / altered / "rank0.jsonl").write_text("{}\n")
    done = judge(folder)

    assert done.returncode == 4
    assert f"traces/{altered}/rank0.jsonl is not what was judged" in done.stdout
    assert evidence.load(folder).records == before
    assert any(altered in reason for reason in json.loads((folder / "audit.json").read_text())["decision"]["reasons"])


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two sessions in one folder would judge each other's traces: the second is refused, in one sentence."""
    handle, _ = occupy(tmp_path / "busy")
    done = session(tmp_path / "busy", "-m", "cpu", "-k", CHOSEN)
    handle.close()

    assert done.returncode == 4
    assert "an audit is running there" in done.stderr


@pytest.mark.parametrize("name", ["a file", "a folder of other things"])
def test_a_folder_that_cannot_be_had_is_refused(tmp_path: Path, name: str) -> None:
    """What is there already is never overwritten; the error says which folder and what to do."""
    target = tmp_path / "there"
    if name == "a file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    done = session(target, "-m", "cpu", "-k", CHOSEN)

    assert done.returncode == 4
    assert f"--audit-dir {target}" in done.stderr
    assert [path.read_text() for path in ([target] if name == "a file" else target.iterdir())] == ["mine"]


def test_two_workers_give_the_same_verdicts(finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Workers share the runs and the store; only the order of the lines may differ."""
    done = session(tmp_path / "parallel", "-m", "cpu", "-k", CHOSEN, "-n", "2")

    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(tmp_path / "parallel") == verdicts(finished[0])


def listen_to_ctrl_c() -> None:
    """A shell starts what runs in its background with SIGINT ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A session in the middle of its first run."""
    folder = tmp_path / "interrupted"
    started = subprocess.Popen(
        command(folder, "-m", "cpu", "-k", "recovery or equivalence"), cwd=ROOT, env=surroundings(), stdout=subprocess.PIPE, text=True,
        preexec_fn=listen_to_ctrl_c,
    )  # fmt: skip
    wait_for_ranks(folder)
    yield folder, started
    started.kill()
    started.communicate(timeout=DEADLINE_S)


def test_nothing_survives_when_pytest_is_killed(interrupted: tuple[Path, subprocess.Popen[str]]) -> None:
    """SIGKILL gives pytest no chance to clean up: the ranks end all the same, and the evidence reads as unfinished."""
    folder, started = interrupted
    started.send_signal(signal.SIGKILL)
    started.wait(timeout=DEADLINE_S)

    assert wait_for_end(processes_of(folder)) == []
    assert not (folder / "audit.json").exists()
    assert not evidence.load(folder).finished


def test_nothing_survives_ctrl_c(interrupted: tuple[Path, subprocess.Popen[str]]) -> None:
    """Ctrl-C ends with a page that holds and says that the session was interrupted."""
    folder, started = interrupted
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=DEADLINE_S)

    assert started.returncode == 2, said
    assert wait_for_end(processes_of(folder)) == []
    assert json.loads((folder / "audit.json").read_text())["decision"]["verdict"] == "hold"
    assert "decision: hold" in said


@pytest.mark.skipif(environment()["gpus"] >= 64, reason="this machine has 64 GPUs")
def test_too_few_gpus_is_never_green(tmp_path: Path) -> None:
    """One sentence, a non-zero exit and a decision to hold; nothing is started."""
    found = environment()["gpus"]
    done = session(tmp_path / "gpu", "-m", "gpu", "--world-size", "64")

    assert done.returncode != 0
    assert f"needs 64 GPUs, found {found}" in done.stdout
    assert json.loads((tmp_path / "gpu" / "audit.json").read_text())["decision"]["verdict"] == "hold"


def processes_of(folder: Path) -> list[int]:
    """Every live process that was given this audit's folder in its environment or on its command line, pytest itself excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:  # it ended while we looked
            continue
        if state != "Z" and str(folder).encode() in told and b"pytest" not in (entry / "cmdline").read_bytes():
            found.append(int(entry.name))
    return found


def wait_for_ranks(folder: Path) -> None:
    """Block until two ranks of a run are alive and recording."""
    deadline = time.monotonic() + DEADLINE_S
    while len(list(folder.glob("traces/*/rank*.jsonl"))) < 2:
        assert time.monotonic() < deadline, f"no rank began within {DEADLINE_S:g} s"
        select.select([], [], [], 0.01)


def wait_for_end(pids: Sequence[int]) -> list[int]:
    """Block on each process's end; returns those that outlive the deadline."""
    left = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([handle], [], [], 20.0)
        os.close(handle)
        if not ended:
            left.append(pid)
    return left

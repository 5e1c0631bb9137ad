"""The runbook is carried out: every command of it, in a world with the fault that it is for, and what it prints is what the runbook says."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures.faults import Fault, faults_to_json
from fixtures.job import Job, command_line, load_job, program_line
from fixtures.live import look, processes
from fixtures.plugin import ROOT
from fixtures.session import job_facts
from fixtures.trace import TraceError
from fixtures.world import Launcher, Start, open_launcher
from reports.evidence import set_meta
from reports.finish import finish
from reports.runbook import _launched
from suite.selftest.fabricated import fabricate
from suite.stragglers.watching import what_is_wrong

DEADLINE_S = 240.0
CAN_MOUNT = (
    subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0 if shutil.which("unshare") else False
)


@pytest.fixture(scope="module")
def job() -> Job:
    return load_job(ROOT / "workloads" / "flights" / "job.toml")


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as opened:
        yield opened


@pytest.fixture(scope="module")
def book(job: Job, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The runbook of the flights job, as its audit renders it."""
    folder = fabricate(tmp_path_factory.mktemp("audit"))
    set_meta(folder, "job", job_facts(job, ROOT))
    finish(folder, None, datetime(2026, 8, 22, tzinfo=UTC))
    book: dict[str, Any] = json.loads((folder / "audit.json").read_text())["runbook"]
    text = (folder / "RUNBOOK.md").read_text()
    assert all(step["command"] in text for entry in book["entries"] for step in entry["steps"])
    return book


@pytest.fixture(scope="module")
def prepared(job: Job, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An {out} with its input and nothing else."""
    out = tmp_path_factory.mktemp("prepared") / "out"
    out.mkdir()
    argv = program_line(job, str(job.prepare), out=out)
    ended = launcher.run(Start(argv=argv, folder=job.folder, world_size=1, run_dir=out.parent / "run", launcher="program", probe=False))
    assert not ended.message
    return out


@pytest.fixture
def out(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "out"))


def steps_of(book: Mapping[str, Any], id: str) -> list[dict[str, Any]]:
    return next(entry["steps"] for entry in book["entries"] if entry["id"] == id)


def shell(book: Mapping[str, Any], out: Path, *commands: str, inside: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run commands as the runbook has them, behind its first lines, with OUT set to this run's folder."""
    first = [f"export OUT={out}" if line.startswith("export OUT=") else line for line in book["start"]]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    script = "\n".join([*first, *commands])
    return subprocess.run(
        [*inside, "bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def carried_out(book: Mapping[str, Any], id: str, number: int, out: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of an entry and hold its output against what the entry says."""
    step = steps_of(book, id)[number]
    done = shell(book, out, step["command"])
    code = re.search(r"exit code (\d)", step["expect"])

    assert re.search(step["matches"], done.stdout), f"{step['command']} printed {done.stdout!r} {done.stderr!r}, expected {step['expect']}"
    assert code is None or done.returncode == int(code[1]), done.stdout + done.stderr
    return done


def start_of(job: Job, out: Path, *faults: Fault, steps: int | None = None) -> Start:
    """The job as the runbook has it started, but under faults and by the warm launcher, which takes a second where torchrun takes twenty."""
    watch = out / "watch"
    environment = {
        "RANKPROOF_TRACE": str(watch), "RANKPROOF_LEVEL": "timing", "RANKPROOF_WATCH": str(out / "checkpoints"), "RANKPROOF_FAULTS": faults_to_json(faults),
    }  # fmt: skip
    argv = command_line(job, world_size=2, out=out, steps=steps)
    return Start(argv=argv, folder=job.folder, world_size=2, run_dir=watch, environment=environment, stall_s=None, deadline_s=DEADLINE_S)


@contextmanager
def under_way(launcher: Launcher, start: Start, how: str) -> Iterator[None]:
    """The job while it runs, from the moment that its fault can be seen from outside; its ranks are killed afterwards."""
    thread = threading.Thread(target=launcher.run, args=(start,))
    thread.start()
    try:
        wait_until(lambda: seen(start.run_dir) == how)
        yield
    finally:
        for pid in processes(look(start.run_dir)).values():
            os.kill(pid, signal.SIGKILL)
        thread.join(timeout=DEADLINE_S)


def seen(run: Path) -> str:
    try:
        return what_is_wrong(look(run), bound=0.1).how
    except TraceError:
        return "nothing yet"


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, "the run did not come to the point that was waited for"
        select.select([], [], [], 0.5)  # looking is work too: more often would slow down what is looked at


def resumed(book: Mapping[str, Any], id: str, out: Path) -> str:
    """What the job prints when it is started again by the entry's own command, under torchrun; every rank is then seen to have moved."""
    again, watched = [number for number, step in enumerate(steps_of(book, id)) if "-resumed" in step["command"]]
    done = carried_out(book, id, again, out)
    carried_out(book, id, watched, out)
    return done.stdout + done.stderr


def test_slow_rank(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    """While the job trains, the rank that drags is named with the phase."""

    start = start_of(job, out, Fault("sleep", rank=1, ms=500, where="backward"), steps=2000)
    with under_way(launcher, start, "late"):
        done = carried_out(book, "slow-rank", 0, out)

    assert "rank 1 makes the others wait" in done.stdout
    assert "more than they do in backward" in done.stdout


def test_hang(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    """While the world stands still, the rank that stopped is named with the line at which it stands."""

    with under_way(launcher, start_of(job, out, Fault("hang", rank=1, step=5)), "still"):
        done = carried_out(book, "hang", 0, out)

    assert re.search(r"rank 1 stopped in step 5 at \w+\.py:\d+ \w+ before collective \d+ .*, in which rank 0 waits", done.stdout), (
        done.stdout
    )


def test_dead_rank(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    """The rank that died is named; the job comes back and moves."""
    launcher.run(start_of(job, out, Fault("kill", rank=1, step=10)))
    named = carried_out(book, "dead-rank", 0, out)

    assert named.stdout.startswith("rank 1 is gone: it ended in step 10")
    assert "resumed from step 9" in resumed(book, "dead-rank", out)
    assert "step 3 is done" in carried_out(book, "dead-rank", 2, out).stdout, "3 steps of this process, 12 in all"


def test_corrupt_checkpoint(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    """A flipped byte is found, the restart passes over it and says so."""
    launcher.run(start_of(job, out, steps=10))
    parts = sorted((out / "checkpoints").glob("step_*09/*.bin"))
    content = bytearray(parts[0].read_bytes())
    content[len(content) // 2] ^= 1
    parts[0].write_bytes(content)
    listed = carried_out(book, "corrupt-checkpoint", 0, out)

    assert "step_00000009  damaged" in listed.stdout
    assert "a restart with --resume takes step_00000006" in listed.stdout
    said = resumed(book, "corrupt-checkpoint", out)
    assert "step_00000009 is damaged" in said
    assert "resumed from step 6" in said


def test_rollback(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    """The newest whole checkpoint is set aside; the job goes on from the one before; a second time there is nothing to give up."""
    launcher.run(start_of(job, out, steps=10))
    carried_out(book, "rollback", 0, out)

    assert "resumed from step 6" in resumed(book, "rollback", out)
    assert (out / "checkpoints" / "step_00000009.set-aside" / "manifest.json").exists(), "it can be renamed back"


def test_nothing_is_set_aside_where_no_older_checkpoint_is_whole(launcher: Launcher, job: Job, book: dict[str, Any], out: Path) -> None:
    launcher.run(start_of(job, out, steps=5))
    done = shell(book, out, steps_of(book, "rollback")[0]["command"])

    assert done.returncode == 1
    assert "nothing was changed" in done.stderr
    assert [one.name for one in (out / "checkpoints").iterdir()] == ["step_00000003"]


@pytest.mark.skipif(not CAN_MOUNT, reason="no user namespaces here: a small file system cannot be mounted")
def test_full_disk(book: dict[str, Any], prepared: Path, tmp_path: Path) -> None:
    """On a file system with room for one save and a half: the job stops and says so; with room made it comes back. By torchrun, as typed."""
    disk, step = tmp_path / "disk", steps_of(book, "full-disk")
    started = next(line for line in book["start"] if "torchrun" in line).partition("started so: ")[2]
    disk.mkdir()
    commands = [
        f"mount -t tmpfs -o size=24M none {disk} && cp -r {prepared}/. {disk}",
        f"{started} > /dev/null 2> $OUT/../start.log; echo started: $?; grep -h 'No space left' $OUT/../start.log",
        *(one["command"] for one in step[:2]), "echo checked: $?", f"mount -o remount,size=200M {disk}", step[2]["command"], "echo resumed: $?",
        step[3]["command"], "echo seen: $?",
    ]  # fmt: skip
    done = shell(book, disk, *commands, inside=("unshare", "-rm"))
    said = done.stdout

    assert "started: 1" in said, said + done.stderr
    assert "No space left on device; free space" in said, said
    free = re.search(step[0]["matches"] + rf"\s*{disk}", said)
    assert free, said
    assert int(re.findall(r"\d+", free[0])[0]) < 14_000_000, "less than a save is free"
    assert re.search(r"step_00000003  complete\n(.*\n)*checked: 0", said), said
    assert "resumed from step 3" in said, said + done.stderr
    assert "resumed: 0" in said
    assert re.search(r"every rank moves, step 9 is done.*\nseen: 0", said), said


def test_every_command_is_carried_out_by_a_test_of_its_entry(book: dict[str, Any]) -> None:
    """By number: a step that is added to an entry is one that nobody has tried."""
    assert {entry["id"]: len(entry["steps"]) for entry in book["entries"]} == {
        "slow-rank": 1, "hang": 1, "dead-rank": 3, "corrupt-checkpoint": 3, "full-disk": 4, "rollback": 3,
    }  # fmt: skip
    for entry in book["entries"]:
        for step in entry["steps"]:
            assert step["matches"] or "torchrun" in step["command"], "only what the job itself prints is not foretold"
            assert re.match(r"python |\(cd |df ", step["command"]), "a command stands by itself, but for OUT, RUN and SITE"


def test_a_job_gets_its_own_variables_and_module_and_needs_no_checkpoint() -> None:
    job: dict[str, Any] = {
        "file": "jobs/a b/job.toml",
        "command": "-m train --steps {steps} --out {out}",
        "steps": 7,
        "declared": {"environment": {"NOTE": "two words"}},
    }
    command = _launched(job, {"world_size": 4}, {}, again=True)

    assert command == (
        "(cd 'jobs/a b' && NOTE='two words' PYTHONPATH=\"$SITE\" RANKPROOF_LEVEL=timing RANKPROOF_TRACE=\"$RUN-resumed\" "
        'torchrun --standalone --nproc-per-node 4 -m train --steps 7 --out "$OUT")'
    )


def test_every_entry_has_an_owner_a_bound_and_a_command(book: dict[str, Any]) -> None:
    ids = ["slow-rank", "hang", "dead-rank", "corrupt-checkpoint", "full-disk", "rollback"]

    assert [entry["id"] for entry in book["entries"]] == ids
    for entry in book["entries"]:
        assert entry["owner"] in ("infrastructure owner", "model training lead")
        assert entry["symptom"]
        assert entry["action"]
        assert all(time["provenance"] in ("measured", "calculated", "not measured") for time in entry["times"])
        assert all((time["value"] is None) == (time["provenance"] == "not measured") for time in entry["times"])

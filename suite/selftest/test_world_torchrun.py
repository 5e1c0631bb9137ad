"""torchrun is the launcher of record: the same job gives the same numbers under it as under the warm launcher."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.job import command_line, load_job
from fixtures.world import Launcher, Start, open_launcher
from suite.selftest.test_world_warm import LOOK
from suite.selftest.world_scripts import run_script

TOY = Path(__file__).parent / "jobs" / "toy" / "job.toml"


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def test_warm_and_torchrun_compute_the_same_losses_bit_for_bit(launcher: Launcher, tmp_path: Path) -> None:
    job, logs = load_job(TOY), {}
    for name in ("warm", "torchrun"):
        argv = command_line(job, world_size=2, out=tmp_path / name / "out")
        run_dir = tmp_path / name / "run"
        start = Start(argv=argv, folder=job.folder, world_size=2, run_dir=run_dir, launcher=name, deadline_s=120)
        ended = launcher.run(start)
        assert ended.message == ""
        assert [rank.exit_code for rank in ended.ranks] == [0, 0]
        logs[name] = [(run_dir / f"rank{rank}.log").read_text() for rank in (0, 1)]
    assert logs["warm"][0].count("loss 0x") == 20
    assert logs["warm"] == logs["torchrun"]


def test_a_rank_sees_the_same_under_both(launcher: Launcher, tmp_path: Path) -> None:
    seen = {}
    for name in ("warm", "torchrun"):
        done = run_script(launcher, tmp_path, LOOK, "--a", "b", world_size=2, launcher=name, deadline_s=120)
        assert done.ended.message == ""
        seen[name] = json.loads(done.logs[1])
    for key in ("argv", "path0", "path", "name", "file", "cwd", "stdin", "threads", "core"):
        assert seen["warm"][key] == seen["torchrun"][key], key
    differing = {"MASTER_PORT", "PYTHONUNBUFFERED"}
    differing |= {f"TORCHELASTIC_{name}" for name in ("USE_AGENT_STORE", "ERROR_FILE", "RUN_ID", "SIGNALS_TO_HANDLE")}
    warm, torchrun = ({k: v for k, v in seen[name]["environment"].items() if k not in differing} for name in ("warm", "torchrun"))
    assert warm == torchrun


def test_torchruns_ranks_are_each_checked(launcher: Launcher, tmp_path: Path) -> None:
    source = """
        import os, select, signal
        print("here", flush=True)
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        select.select([], [], [])
    """
    done = run_script(launcher, tmp_path, source, world_size=2, launcher="torchrun", deadline_s=60)
    assert done.ended.ended_by == "exit"
    assert done.ended.message == "rank 1 was killed by SIGKILL (its last line: here)"
    assert done.signals == [signal.SIGTERM, signal.SIGKILL]
    assert [rank.killed_by_us for rank in done.ended.ranks] == [True, False]


def test_torchrun_is_held_to_the_deadline(launcher: Launcher, tmp_path: Path) -> None:
    source = (
        "import os, select\nprint('here', flush=True)\nif os.environ['RANK'] == '0':\n    raise SystemExit(0)\nselect.select([], [], [])"
    )
    done = run_script(launcher, tmp_path, source, world_size=2, launcher="torchrun", deadline_s=20)
    assert done.ended.ended_by == "deadline"
    assert done.codes == [0, None]
    assert done.signals == [None, signal.SIGKILL]
    assert done.ended.message == "rank 1 still ran when the deadline of 20 s passed"

"""Every world ends, whatever its ranks do: on time, told apart, its logs kept and bounded, nothing left behind."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.ranklog import HEAD_BYTES, TAIL_BYTES
from fixtures.watch import STACK_SIGNAL
from fixtures.world import Launcher, WorldError, open_launcher
from suite.selftest.world_scripts import run_script, still_there

FOREVER = "import select, os\nprint('pid', os.getpid(), flush=True)\nselect.select([], [], [])\n"
TELL_STACKS = f"""
import faulthandler, os
faulthandler.register({int(STACK_SIGNAL)}, file=open(os.environ["RANKPROOF_X"] + "/rank" + os.environ["RANK"] + ".stack", "w"))
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def test_a_deadline_ends_a_hanging_rank_and_keeps_its_stack_and_log(launcher: Launcher, tmp_path: Path) -> None:
    environment = {"RANKPROOF_X": str(tmp_path / "run0")}
    source = (
        TELL_STACKS
        + "if os.environ['RANK'] == '0': raise SystemExit\ndef waits_for_rank_0():\n    "
        + FOREVER.replace("\n", "\n    ")
        + "\nwaits_for_rank_0()"
    )
    done = run_script(launcher, tmp_path, source, world_size=2, deadline_s=1.0, environment=environment)
    assert done.ended.ended_by == "deadline"
    assert done.ended.message == "rank 1 still ran when the deadline of 1 s passed"
    assert (done.codes, done.signals) == ([0, None], [None, signal.SIGKILL])
    assert done.ended.ranks[1].killed_by_us
    assert 1.0 <= done.ended.wall_s < 10
    assert "waits_for_rank_0" in (done.run_dir / "rank1.stack").read_text()
    assert done.logs[1].startswith("pid ")
    assert json.loads((done.run_dir / "ended.json").read_text())["ended_by"] == "deadline"


def test_a_rank_without_a_stack_handler_is_not_killed_by_the_question(launcher: Launcher, tmp_path: Path) -> None:
    done = run_script(launcher, tmp_path, FOREVER, deadline_s=0.5)
    assert done.signals == [signal.SIGKILL], "SIGRTMIN+7 would be deadly to a process that does not catch it"


def test_a_stall_counts_from_the_last_record_once_a_step_has_begun(launcher: Launcher, tmp_path: Path) -> None:
    start = "print('{\"kind\": \"start\", \"step\": 0}', file=open(os.environ['RANKPROOF_X'] + '/rank0.jsonl', 'w'), flush=True)\n"
    begun = {"RANKPROOF_X": str(tmp_path / "run0")}
    done = run_script(launcher, tmp_path, "import os\n" + start + FOREVER, deadline_s=30.0, stall_s=0.5, environment=begun)
    assert done.ended.ended_by == "stall"
    assert done.ended.message == "rank 0 still ran, and no rank had made a step, a collective or a record for 0.5 s"
    before = run_script(launcher, tmp_path, FOREVER, deadline_s=1.5, stall_s=0.5)
    assert before.ended.ended_by == "deadline", "before the first step only the deadline counts"


def test_the_first_failing_rank_is_named_and_the_others_are_told_to_end(launcher: Launcher, tmp_path: Path) -> None:
    source = "import os\nif os.environ['RANK'] == '1':\n    raise RuntimeError('lost the data')\n" + FOREVER
    done = run_script(launcher, tmp_path, source, world_size=3, deadline_s=30.0)
    assert done.ended.ended_by == "exit"
    assert done.ended.message == "rank 1 exited with code 1 (its last line: RuntimeError: lost the data)"
    assert done.codes == [None, 1, None]
    assert done.signals == [signal.SIGTERM, None, signal.SIGTERM]
    assert [rank.killed_by_us for rank in done.ended.ranks] == [True, False, True]


def test_a_rank_that_kills_itself_is_told_apart_from_one_that_we_killed(launcher: Launcher, tmp_path: Path) -> None:
    source = "import os, signal\nif os.environ['RANK'] == '0':\n    os.kill(os.getpid(), signal.SIGKILL)\n" + FOREVER
    done = run_script(launcher, tmp_path, source, world_size=2, deadline_s=30.0)
    assert done.ended.message == "rank 0 was killed by SIGKILL"
    assert [rank.killed_by_us for rank in done.ended.ranks] == [False, True]


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(launcher: Launcher, tmp_path: Path) -> None:
    source = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen(os.environ['RANKPROOF_X'] + os.environ['RANK'], 'w')\n"
    source += (
        "if os.environ['RANK'] == '0':\n    while not os.path.exists(os.environ['RANKPROOF_X'] + '1'): pass\n    raise SystemExit(4)\n"
        + FOREVER
    )
    done = run_script(launcher, tmp_path, source, world_size=2, deadline_s=60.0, environment={"RANKPROOF_X": str(tmp_path / "ready")})
    assert done.codes == [4, None]
    assert done.signals == [None, signal.SIGKILL]
    assert 5.0 <= done.ended.wall_s < 20


def test_endless_output_is_cut_in_the_middle_and_the_disk_is_spared(launcher: Launcher, tmp_path: Path) -> None:
    source = "import sys\nprint('first words')\nfor _ in range(48 << 4):\n    sys.stdout.write('x' * 65535 + '\\n')\nprint('last words')"
    done = run_script(launcher, tmp_path, source, deadline_s=60.0)
    size = (done.run_dir / "rank0.log").stat().st_size
    assert done.codes == [0]
    assert HEAD_BYTES < size <= HEAD_BYTES + TAIL_BYTES + 100
    assert done.logs[0].startswith("first words")
    assert done.logs[0].endswith("last words\n")
    assert "bytes left out ...]" in done.logs[0]
    without_end = run_script(launcher, tmp_path, "while True: print('y' * 1000)", deadline_s=1.0)
    assert without_end.ended.ended_by == "deadline"
    assert (without_end.run_dir / "rank0.log").stat().st_size <= HEAD_BYTES + TAIL_BYTES + 100


def test_output_need_not_be_text(launcher: Launcher, tmp_path: Path) -> None:
    done = run_script(launcher, tmp_path, "import os\nos.write(1, b'\\xff\\xfe\\x00 caf\\xe9\\n')\nraise SystemExit(3)")
    assert (done.run_dir / "rank0.log").read_bytes() == b"\xff\xfe\x00 caf\xe9\n"
    assert done.ended.message.startswith("rank 0 exited with code 3")


DAEMONS = """
import os, signal, select
out = os.environ["RANKPROOF_X"]
os.makedirs(out, exist_ok=True)
for index in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.close(0)
            with open(f"{out}/{index}.part", "w") as file: file.write(str(os.getpid()))
            os.rename(f"{out}/{index}.part", f"{out}/{index}.pid")
            select.select([], [], [])
        os._exit(0)
while len([n for n in os.listdir(out) if n.endswith(".pid")]) < 3: pass
"""


def test_daemons_of_a_job_do_not_survive_it(launcher: Launcher, tmp_path: Path) -> None:
    done = run_script(launcher, tmp_path, DAEMONS, environment={"RANKPROOF_X": str(tmp_path / "pids")})
    pids = [int(one.read_text()) for one in (tmp_path / "pids").glob("*.pid")]
    assert done.codes == [0]
    assert len(pids) == 3
    assert still_there(pids, 5.0) == []


def test_a_job_that_kills_its_launcher_is_one_error_and_the_next_world_runs(launcher: Launcher, tmp_path: Path) -> None:
    source = DAEMONS + "os.kill(os.getppid(), signal.SIGKILL)\nselect.select([], [], [])"
    with pytest.raises(WorldError, match="SIGKILL was sent to it; have the job signal no process but its own"):
        run_script(launcher, tmp_path, source, environment={"RANKPROOF_X": str(tmp_path / "pids")})
    assert still_there((int(one.read_text()) for one in (tmp_path / "pids").glob("*.pid")), 5.0) == []
    assert run_script(launcher, tmp_path, "print('again')").codes == [0]


def test_a_job_that_changes_folder_and_deletes_it_ends_as_any_other(launcher: Launcher, tmp_path: Path) -> None:
    source = "import os, shutil, tempfile\nos.chdir(tempfile.mkdtemp())\nshutil.rmtree(os.getcwd())\nprint('gone')"
    assert run_script(launcher, tmp_path, source).codes == [0]
    assert os.path.isdir(tmp_path)


def test_a_job_that_signals_its_process_group_hits_only_itself(launcher: Launcher, tmp_path: Path) -> None:
    done = run_script(launcher, tmp_path, "import os, signal\nos.killpg(0, signal.SIGKILL)")
    assert done.signals == [signal.SIGKILL]
    assert not done.ended.ranks[0].killed_by_us

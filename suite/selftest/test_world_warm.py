"""A warm rank is, to the job, a process that python started: same variables, paths, exit codes, seeds; and it always ends."""

import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.job import command_line, load_job
from fixtures.world import Launcher, Start, WorldError, open_launcher
from suite.selftest.world_scripts import run_script, run_words

TOY = Path(__file__).parent / "jobs" / "toy" / "job.toml"


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def test_the_toy_job_ends_at_1_2_and_4_ranks_and_says_so(launcher: Launcher, tmp_path: Path) -> None:
    job = load_job(TOY)
    for world_size in (1, 2, 4):
        run_dir = tmp_path / f"run{world_size}"
        argv = command_line(job, world_size=world_size, out=tmp_path / f"out{world_size}")
        ended = launcher.run(Start(argv=argv, folder=job.folder, world_size=world_size, run_dir=run_dir, deadline_s=60))
        assert ended.message == ""
        assert ended.ended_by == "exit"
        assert [rank.exit_code for rank in ended.ranks] == [0] * world_size
        assert json.loads((run_dir / "ended.json").read_text())["ranks"][0]["exit_code"] == 0
        assert "step 20 loss" in (run_dir / "rank0.log").read_text()
        assert sorted(one.name for one in (tmp_path / f"out{world_size}" / "checkpoints").iterdir())[-1] == "step-0020"


def test_twenty_worlds_of_four_all_end(launcher: Launcher, tmp_path: Path) -> None:
    """Groups torn down while gloo's threads still work used to hang one world in a few on a busy machine."""
    job, walls = load_job(TOY), []
    for index in range(20):
        argv = command_line(job, world_size=4, out=tmp_path / f"out{index}")
        start = Start(argv=argv, folder=job.folder, world_size=4, run_dir=tmp_path / f"run{index}", probe=False, deadline_s=30)
        ended = launcher.run(start)
        assert ended.message == "", f"world {index}: {ended.message}; see {tmp_path / f'run{index}'}"
        walls.append(ended.wall_s)
    print(f"20 worlds of 4 ranks, 20 steps: median {statistics.median(walls):.2f} s, slowest {max(walls):.2f} s")


def test_a_job_resumes_from_what_an_earlier_world_left(launcher: Launcher, tmp_path: Path) -> None:
    job = load_job(TOY)
    for name, steps, resume in (("first", 10, False), ("second", 20, True)):
        argv = command_line(job, world_size=2, out=tmp_path / "out", steps=steps, resume=resume)
        start = Start(argv=argv, folder=job.folder, world_size=2, run_dir=tmp_path / name, probe=False, deadline_s=60)
        assert launcher.run(start).message == ""
    whole = Start(
        argv=command_line(job, world_size=2, out=tmp_path / "o"), folder=job.folder, world_size=2, run_dir=tmp_path / "w", probe=False
    )
    assert launcher.run(whole).message == ""
    parts = (tmp_path / "first" / "rank1.log").read_text() + (tmp_path / "second" / "rank1.log").read_text()
    assert parts == (tmp_path / "w" / "rank1.log").read_text()


LOOK = """
    import json, os, sys, random
    import numpy as np, torch
    print(json.dumps({
        "argv": sys.argv, "path0": sys.path[0], "name": __name__, "file": __file__, "cwd": os.getcwd(), "stdin": sys.stdin.read(),
        "main": sys.modules["__main__"].__dict__ is globals(), "ours": sorted(m for m in sys.modules if m.split(".")[0] == "fixtures"),
        "environment": dict(os.environ), "threads": torch.get_num_threads(), "core": sorted(os.sched_getaffinity(0)),
        "drawn": [random.random(), float(np.random.random()), float(torch.rand(1))], "cuda": torch.cuda.is_initialized(),
        "tasks": len(os.listdir("/proc/self/task")), "descriptors": len(os.listdir("/proc/self/fd")), "path": sys.path[1:],
    }))
"""


def test_a_rank_sees_what_a_fresh_process_sees(launcher: Launcher, tmp_path: Path) -> None:
    done = run_script(launcher, tmp_path, LOOK, "--a", "b c", world_size=2, environment={"RANKPROOF_X": "x", "RANK_NOTE": "mine"})
    assert done.ended.message == ""
    seen = [json.loads(log) for log in done.logs]
    cores = sorted(os.sched_getaffinity(0))
    for rank, one in enumerate(seen):
        assert one["argv"] == ["script.py", "--a", "b c"]
        assert one["path0"] == one["cwd"] == str(tmp_path)
        assert one["file"] == str(tmp_path / "script.py")
        assert (one["name"], one["main"], one["stdin"], one["ours"]) == ("__main__", True, "", [])
        assert (one["threads"], one["tasks"], one["cuda"]) == (1, 1, False)
        assert one["core"] == [cores[rank % len(cores)]]
        assert one["descriptors"] <= 4, "0, 1, 2 and the one that lists them"
        variables = one["environment"]
        assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_RANK"], variables["MASTER_ADDR"]) == (
            str(rank),
            "2",
            str(rank),
            "127.0.0.1",
        )
        assert (variables["RANKPROOF_X"], variables["RANK_NOTE"]) == ("x", "mine")
        assert not [name for name in variables if name.startswith("PYTEST_")]
    assert seen[0]["environment"]["MASTER_PORT"] == seen[1]["environment"]["MASTER_PORT"]
    assert all(mine != theirs for mine, theirs in zip(seen[0]["drawn"], seen[1]["drawn"], strict=True)), (
        "ranks must not share unseeded draws"
    )
    plain = run_script(launcher, tmp_path, LOOK, launcher="program")
    assert json.loads(plain.logs[0])["path"] == seen[0]["path"]


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no such data')", 1, "no such data"),
        ("raise ValueError('bad row')", 1, "ValueError: bad row"),
        ("import os; os._exit(9)", 9, ""),
        ("import sys; sys.excepthook = lambda *a: print('theirs')\nraise ValueError", 1, "theirs"),
        ("import atexit; atexit.register(print, 'farewell')", 0, "farewell"),
        ("import threading; threading.Thread(target=lambda: print('thread done')).start()", 0, "thread done"),
        ("x: 'not evaluated' = 1\ndef f(a: undefined): pass", 1, "NameError"),
        ("def broken(:", 1, "SyntaxError"),
        ("print('a' * 10, end='')", 0, "aaaaaaaaaa"),
    ],
)
def test_the_exit_is_pythons(launcher: Launcher, tmp_path: Path, source: str, code: int, said: str) -> None:
    done = run_script(launcher, tmp_path, source)
    assert done.codes == [code], done.logs
    assert said in done.logs[0]
    assert (done.ended.message == "") == (code == 0)
    assert "fixtures/" not in done.logs[0], "no frame of ours in a job's traceback"


def test_a_missing_script_is_named(launcher: Launcher, tmp_path: Path) -> None:
    done = run_words(launcher, tmp_path, ("absent.py",))
    assert done.codes == [2]
    assert "absent.py" in done.ended.message


def test_modules_are_started_too(launcher: Launcher, tmp_path: Path) -> None:
    package = tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nfrom . import other\nprint(__name__, __package__, sys.argv, sys.path[0], other.X)")
    (package / "other.py").write_text("X = 3")
    done = run_words(launcher, tmp_path, ("-m", "parts", "--n", "1"))
    assert done.ended.message == ""
    assert done.logs[0].strip() == f"__main__ parts ['{package / '__main__.py'}', '--n', '1'] {tmp_path} 3"


def test_a_job_may_have_modules_named_like_ours(launcher: Launcher, tmp_path: Path) -> None:
    for name in ("fixtures", "suite", "reports"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = '{name} of the job'")
    done = run_script(launcher, tmp_path, "import fixtures, suite, reports\nprint(fixtures.OWN, suite.OWN, reports.OWN)")
    assert done.logs[0].strip() == "fixtures of the job suite of the job reports of the job"


def test_dataloader_workers_find_the_main_module(launcher: Launcher, tmp_path: Path) -> None:
    source = """
        import torch
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): return index
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method)
                print(method, [batch.tolist() for batch in loader])
    """
    done = run_script(launcher, tmp_path, source, pin=False)
    assert done.ended.message == "", done.logs
    assert done.logs[0].splitlines() == ["fork [[0, 1, 2, 3], [4, 5, 6, 7]]", "spawn [[0, 1, 2, 3], [4, 5, 6, 7]]"]


def test_another_environment_is_in_force_while_libraries_are_imported(launcher: Launcher, tmp_path: Path) -> None:
    """What torch reads at its import must come from the job's environment, though the import was made before the job."""
    done = run_script(
        launcher, tmp_path, "import torch; print(torch.get_num_threads())", environment={"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    )
    assert done.logs[0].strip() == "2"


def test_progress_is_reported(launcher: Launcher, tmp_path: Path) -> None:
    source = """
        import os, struct, select
        now = os.path.join(os.environ["RANKPROOF_X"], "rank0.now")
        with open(now, "wb") as file: file.write(struct.pack("<qqqq", 17, 0, 0, 0).ljust(64, b"\\0"))
        while not os.path.exists(os.path.join(os.environ["RANKPROOF_X"], "heard")): select.select([], [], [], 0.05)
    """
    run_dir, heard = tmp_path / "run0", []

    def on_progress(seen: dict[str, int]) -> None:
        heard.append(seen)
        (run_dir / "heard").touch()

    (tmp_path / "script.py").write_text("\n".join(line[8:] for line in source.splitlines()))
    environment = {"RANKPROOF_X": str(run_dir)}
    start = Start(argv=("script.py",), folder=tmp_path, world_size=1, run_dir=run_dir, environment=environment, probe=False, deadline_s=30)
    assert launcher.run(start, on_progress).message == ""
    assert heard[0] == {"step": 17}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"launcher": "slurm"}, "'slurm' is unknown"),
        ({"argv": ()}, "argv is empty"),
        ({"world_size": 0}, "a world of 0 ranks"),
        ({"world_size": 2, "launcher": "program"}, "a world of 2 ranks"),
        ({"folder": Path("/nowhere")}, "/nowhere is not there"),
        ({"deadline_s": 0.0}, "must be above 0"),
    ],
)
def test_a_start_that_cannot_be_is_refused(launcher: Launcher, tmp_path: Path, change: dict[str, object], said: str) -> None:
    asked = {"argv": ("script.py",), "folder": tmp_path, "world_size": 1, "run_dir": tmp_path / "run", **change}
    with pytest.raises(WorldError, match=said):
        launcher.run(Start(**asked))  # type: ignore[arg-type]


def test_a_program_has_no_rank(launcher: Launcher, tmp_path: Path) -> None:
    source = "import os, sys; print([n for n in os.environ if 'RANK' in n and n != 'RANKPROOF_LIFE'], 'torch' in sys.modules); sys.exit(3)"
    done = run_script(launcher, tmp_path, source, launcher="program")
    assert done.logs[0].strip() == "[] False"
    assert done.ended.message == "the program exited with code 3 (its last line: [] False)"

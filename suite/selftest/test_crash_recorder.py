"""The recorder sees every way of changing a file, in the order of its effect, and a prefix of its log is what a real kill leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.crash.attach import REFUSED, Watched
from fixtures.crash.layout import BEFORE, REPLAY, WRITTEN, check_replay, lay_out
from fixtures.crash.looks import LOOKS, read_looks
from fixtures.crash.operations import LOG, Log, read_log
from fixtures.crash.progress import requirements
from fixtures.crash.states import whole_tree
from fixtures.world import Launcher, WorldError, open_launcher
from suite.selftest.world_scripts import Done, run_script

EVERYTHING = """
    import mmap, os, signal, subprocess, sys
    out, die_before = sys.argv[1], int(sys.argv[2])
    os.chdir(out)
    done = 0
    def act(work):
        global done
        done += 1
        if done == die_before:
            os.kill(os.getpid(), signal.SIGKILL)
        work()
    def fd(name, flags, work):
        descriptor = os.open(name, flags, 0o644)
        work(descriptor)
        os.close(descriptor)
    def child():
        pid = os.fork()
        if pid == 0:
            fd("child", os.O_WRONLY | os.O_CREAT, lambda f: (os.write(f, b"c" * 5000), os.fsync(f)))
            os._exit(0)
        os.waitpid(pid, 0)
    def mapped():
        with open("mapped", "wb") as file:
            file.truncate(8192)
        with open("mapped", "r+b") as file:
            with mmap.mmap(file.fileno(), 8192) as memory:
                memory[4000:4010] = b"0123456789"
    act(lambda: os.mkdir("folder"))
    act(lambda: fd("folder/plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda f: (os.write(f, b"a" * 9000), os.writev(f, [b"b", b"cd"]))))
    act(lambda: fd("folder/plain", os.O_RDWR, lambda f: (os.pwrite(f, b"XYZ", 4095), os.ftruncate(f, 5000), os.fdatasync(f))))
    act(lambda: fd("folder/plain", os.O_WRONLY | os.O_APPEND, lambda f: os.write(f, b"more")))
    act(lambda: os.rename("folder", "moved"))
    act(lambda: os.link("moved/plain", "linked"))
    act(lambda: os.symlink("moved/plain", "pointer"))
    act(lambda: os.replace("linked", "old"))
    act(lambda: os.truncate("old", 6000))
    act(child)
    act(lambda: subprocess.run(["/bin/cp", "child", "copied"], check=True))
    act(mapped)
    act(lambda: fd("copy", os.O_WRONLY | os.O_CREAT, lambda f: fd("child", os.O_RDONLY, lambda g: os.sendfile(f, g, 0, 3000))))
    act(lambda: fd("range", os.O_WRONLY | os.O_CREAT, lambda f: fd("child", os.O_RDONLY, lambda g: os.copy_file_range(g, f, 2000))))
    act(lambda: fd("holes", os.O_WRONLY | os.O_CREAT, lambda f: (os.posix_fallocate(f, 0, 7000), os.pwrite(f, b"z", 9000))))
    act(lambda: os.unlink("pointer"))
    act(lambda: (os.mkdir("empty"), os.rmdir("empty")))
    act(lambda: fd(".", os.O_RDONLY, os.fsync))
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def recorded(launcher: Launcher, folder: Path, source: str, *arguments: str, world_size: int = 1) -> tuple[Done, Log]:
    """Run a script on folder/out under the recorder, and replay it."""
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(out, folder / BEFORE)
    watched = Watched("changes", str(out), str(folder / WRITTEN))
    done = run_script(launcher, folder, source, str(out), *arguments, world_size=world_size, watched=watched)
    assert not (done.run_dir / REFUSED).exists(), (done.run_dir / REFUSED).read_text()
    check_replay(done.run_dir, out)
    return done, read_log(done.run_dir / LOG)


def contents(folder: Path) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = str(path.readlink()) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def test_replay_of_every_kind_of_change_is_the_folder_that_was_left(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(b"o" * 10_000)

    done, log = recorded(launcher, tmp_path, EVERYTHING, "0")

    assert done.codes == [0], done.logs
    assert json.loads((done.run_dir / REPLAY).read_text()) == {"differences": []}
    assert log.trouble == ""
    seen = {one.op for one in log.operations}
    assert seen == {"open", "write", "truncate", "mkdir", "rename", "link", "symlink", "unlink", "rmdir", "sync", "sync_folder"}
    assert [one.child for one in log.operations if one.path == "child" and one.op == "write"] == [True]
    assert [one.offset for one in log.operations if one.op == "write" and one.path == "folder/plain"] == [0, 9000, 4095, 5000]


@pytest.mark.parametrize("die_before", [2, 3, 5, 8, 9, 12, 14, 17])
def test_a_prefix_of_the_log_is_what_a_real_kill_leaves(launcher: Launcher, tmp_path: Path, die_before: int) -> None:
    """The spot check: the same script, really killed, against the log of a run that ended well."""
    for name in ("whole", "killed"):
        (tmp_path / name / "out").mkdir(parents=True)
        (tmp_path / name / "out" / "old").write_bytes(b"o" * 10_000)
    _, log = recorded(launcher, tmp_path / "whole", EVERYTHING, "0")
    run_script(launcher, tmp_path / "killed", EVERYTHING, str(tmp_path / "killed" / "out"), str(die_before))
    operations, processes = {one.n: one for one in log.operations}, 1 + max(one.process for one in log.operations)
    after, matching = contents(tmp_path / "killed" / "out"), []

    for upto in range(len(log.operations) + 1):
        cut = tuple(sum(one.process == process for one in log.operations[:upto]) for process in range(processes))
        laid = tmp_path / "laid" / str(upto)
        place = tmp_path / "whole"
        lay_out(whole_tree(log, cut), laid, before=place / BEFORE, data=place / WRITTEN, operations=operations)
        if contents(laid) == after:
            matching.append(upto)

    assert matching, f"no prefix of the log is the folder that a kill before action {die_before} left: {sorted(after)}"


def test_what_a_barrier_orders_is_required_and_nothing_else(launcher: Launcher, tmp_path: Path) -> None:
    """Each rank writes, all meet, rank 0 publishes: publishing needs both writes, rank 1's write needs nothing of rank 0's."""
    source = """
        import os, sys, time
        import torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        os.makedirs(f"{sys.argv[1]}/{rank}")
        with open(f"{sys.argv[1]}/{rank}/part", "wb") as file:
            file.write(b"x" * 10)
        print("at the barrier", time.monotonic_ns(), flush=True)
        dist.barrier()
        if rank == 0:
            os.mkdir(f"{sys.argv[1]}/published")
        dist.destroy_process_group()
    """
    done, log = recorded(launcher, tmp_path, source, world_size=2)
    arrivals = {rank: [int(words.split("at the barrier ")[1].split()[0])] for rank, words in enumerate(done.logs)}
    requires = requirements(log, arrivals)
    publish = next(one for one in log.operations if one.path == "published")
    other = next(one for one in log.operations if one.path == "1/part" and one.op == "write")

    assert requires[publish.n] == {other.process: 3}
    assert publish.process not in requires[other.n]


def test_a_name_that_was_waited_for_is_required(launcher: Launcher, tmp_path: Path) -> None:
    """Ranks that meet through the file system: rank 1 waits for a file of rank 0's."""
    source = """
        import os, sys
        rank, out = int(os.environ["RANK"]), sys.argv[1]
        if rank == 0:
            open(f"{out}/flag", "w").close()
        else:
            while not os.path.exists(f"{out}/flag"):
                os.sched_yield()
            open(f"{out}/after", "w").close()
    """
    _, log = recorded(launcher, tmp_path, source, world_size=2)
    requires = requirements(log, {})
    flag, after = (next(one for one in log.operations if one.path == name) for name in ("flag", "after"))

    assert requires[after.n] == {flag.process: flag.count}


def test_what_a_run_looked_at_is_known(launcher: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "kept").mkdir(parents=True)
    for name in ("read", "sized", "ignored"):
        (out / "kept" / name).write_text(name)
    source = """
        import os, sys
        os.listdir(sys.argv[1] + "/kept")
        open(sys.argv[1] + "/kept/read").read()
        os.path.getsize(sys.argv[1] + "/kept/sized")
        os.path.exists(sys.argv[1] + "/absent")
    """
    done = run_script(launcher, tmp_path, source, str(out), watched=Watched("looks", str(out)))
    looks = read_looks(done.run_dir / LOOKS)

    assert looks is not None
    assert {path for path in looks.contents if path != "kept"} == {"kept/read"}
    assert looks.names == {"kept"}
    assert {"kept/sized", "absent"} <= looks.entries
    assert not any("ignored" in path for path in looks.contents | looks.entries)


def test_only_warm_ranks_can_be_recorded(launcher: Launcher, tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="cannot record system calls: use warm"):
        run_script(launcher, tmp_path, "pass", launcher="program", watched=Watched("looks", str(tmp_path)))

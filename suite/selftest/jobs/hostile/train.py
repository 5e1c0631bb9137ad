"""A job that trains a few steps and does one thing, named by --how, that no job should do to whoever runs it."""

import argparse
import atexit
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

HOW: dict[str, Callable[[Path], object]] = {}


def how(function: Callable[[Path], object]) -> Callable[[Path], object]:
    """Name it on the command line."""
    HOW[function.__name__] = function
    return function


def for_ever() -> None:
    """Wait for nothing."""
    select.select([], [], [])


def note_pid(out: Path, name: str) -> None:
    """Tell the test which process to look for, in one rename."""
    partial = out / f".{name}-{os.getpid()}"
    partial.write_text(str(os.getpid()))
    partial.rename(out / f"{name}-{os.getpid()}.pid")


@how
def crash_at_import(out: Path) -> None:
    import no_such_library  # noqa: F401


@how
def exit_0_at_once(out: Path) -> None:
    sys.exit(0)


@how
def hang_at_start(out: Path) -> None:
    for_ever()


@how
def endless_output(out: Path) -> None:
    while True:
        print("y" * 1000)


@how
def no_newline(out: Path) -> None:
    """100 MB in one line, then an error."""
    for _ in range(100):
        os.write(1, b"x" * (1 << 20))
    raise RuntimeError("the line was long")


@how
def much_output(out: Path) -> None:
    """A log of so many megabytes, then an error."""
    line = b"z" * 1023 + b"\n"
    for _ in range(int(os.environ.get("HOSTILE_MEGABYTES", "256"))):
        os.write(1, line * 1024)
    raise RuntimeError("the log was long")


@how
def not_text(out: Path) -> None:
    os.write(2, b"\xff\xfe\x00 caf\xe9\n")
    sys.exit(3)


@how
def control_characters(out: Path) -> None:
    os.write(2, b"\x1b[2J\x1b[31mall red\x07\r\n")
    sys.exit(3)


@how
def daemons(out: Path) -> None:
    """Three children that have left the session, ignore SIGTERM and hold the output open."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                note_pid(out, "daemon")
                for_ever()
            os._exit(0)
        os.wait()


@how
def thread_that_never_ends(out: Path) -> None:
    threading.Thread(target=for_ever).start()
    sys.exit(0)


@how
def changes_folder(out: Path) -> None:
    folder = tempfile.mkdtemp(dir=out)
    os.chdir(folder)
    shutil.rmtree(folder)


@how
def deletes_its_output(out: Path) -> None:
    shutil.rmtree(out.parent, ignore_errors=True)


@how
def deletes_the_trace(out: Path) -> None:
    shutil.rmtree(os.environ.get("RANKPROOF_TRACE", "nowhere"), ignore_errors=True)


@how
def no_optimizer(out: Path) -> None:
    """Train by hand: see main."""


@how
def ignores_sigterm(out: Path) -> None:
    """Rank 0 fails, the others do not let themselves be ended by it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note_pid(out, "rank")
    if os.environ["RANK"] != "0":
        for_ever()
    while len(list(out.glob("rank-*.pid"))) < int(os.environ["WORLD_SIZE"]):
        pass
    sys.exit(4)


@how
def needs_a_terminal(out: Path) -> None:
    os.get_terminal_size(0)


@how
def asks(out: Path) -> None:
    input("go on? [y/n] ")


@how
def segfault(out: Path) -> None:
    ctypes.string_at(0)


@how
def out_of_memory(out: Path) -> None:
    held = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 34, held[1]))
    bytearray(1 << 35)


@how
def no_memory_for_a_tensor(out: Path) -> None:
    import torch

    resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))
    torch.zeros(1 << 33)


@how
def killed_by_the_kernel(out: Path) -> None:
    """As the kernel does to a process for which there is no memory."""
    os.kill(os.getpid(), signal.SIGKILL)


@how
def no_output(out: Path) -> None:
    """Standard output is closed, then written to."""
    sys.stdout.close()
    os.close(1)
    print("into nothing")


@how
def exit_with_words(out: Path) -> None:
    sys.exit("the data is not there")


@how
def kills_its_parent(out: Path) -> None:
    os.kill(os.getppid(), signal.SIGTERM)


@how
def kills_its_group(out: Path) -> None:
    os.killpg(0, signal.SIGINT)
    for_ever()


@how
def full_disk(out: Path) -> None:
    with (out / "checkpoint.pt").open("wb") as file:
        file.write(b"0" * 4096)
        raise OSError(28, "No space left on device", str(file.name))


@how
def fills_the_temp_folder(out: Path) -> None:
    folder = tempfile.mkdtemp()
    note = Path(folder) / "large"
    with note.open("wb") as file:
        file.write(b"0" * (64 << 20))
    (out / "temp").write_text(folder)
    sys.exit(5)


@how
def exit_in_atexit(out: Path) -> None:
    atexit.register(os._exit, 6)


@how
def own_ranks(out: Path) -> None:
    import torch.multiprocessing as mp

    mp.start_processes(_own_rank, args=(str(out),), nprocs=2, start_method="fork")
    sys.exit(0)


@how
def own_torchrun(out: Path) -> None:
    """A script that calls the launcher itself, as many a run.py does."""
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 1.2: pass"], check=True)
    sys.exit(0)


@how
def starts_itself_again(out: Path) -> None:
    if not os.environ.get("HOSTILE_AGAIN"):
        os.environ["HOSTILE_AGAIN"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


@how
def starts_itself_for_ever(out: Path) -> None:
    os.execv(sys.executable, [sys.executable, "-S", *sys.argv])


@how
def closes_everything(out: Path) -> None:
    """As daemonising code does: no descriptor stays open, the probe's neither."""
    os.closerange(0, 1 << 12)


@how
def forks_without_end(out: Path) -> None:
    """A chain of processes, each of which starts the next and waits for it."""
    for _ in range(40):
        if os.fork():
            break
    note_pid(out, "chain")
    for_ever()


@how
def stops_itself(out: Path) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@how
def recursion(out: Path) -> None:
    def deeper(level: int) -> int:
        return deeper(level + 1) + 1

    deeper(0)


@how
def long_message(out: Path) -> None:
    raise RuntimeError("a word " * 100_000)


def _own_rank(rank: int, out: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    note_pid(Path(out), "own")


def train(steps: int, batch: int, by_hand: bool) -> None:
    """A plain loop."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = None if by_hand else torch.optim.SGD(model.parameters(), lr=0.1)
    samples = torch.Generator().manual_seed(1)
    for _ in range(steps):
        inputs = torch.randn(batch * world_size, 4, generator=samples).chunk(world_size)[rank]
        loss = model(inputs).square().mean()
        model.zero_grad()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=["wrong_flag", *HOW], required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.how in HOW:
        HOW[given.how](given.out)
    train(given.steps, given.batch, by_hand=given.how == "no_optimizer")


if __name__ == "__main__":
    main()

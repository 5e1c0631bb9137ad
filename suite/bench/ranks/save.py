"""save.py FOLDER MEGABYTES REPEATS: save and restore a replicated state, by workloads/checkpoint.py, by torch.distributed.checkpoint, and by nothing at all.

All take turns in one run, in rotating order, so that a change of the disk's pace falls on all alike: durable save, then restore into tensors that are there already. "raw" is
one rank's plain write and sync of the same bytes as one file, and every rank's plain read of it. What is restored is not in the page cache: a machine that takes over has
to read it from the disk. Every rank holds the state; what was removed is removed outside the
time taken. Prints {"save": [s], "stall": [s], "dcp_save": [s], "raw_write": [s], "restore": [s], "dcp_restore": [s], "raw_read": [s], "bytes": n}: "save" is the
time until the checkpoint is published and durable, "stall" how long this rank's training stood still for it.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from workloads import checkpoint

SIDE = 1024  # a layer of float32 takes 4 MiB, and its two Adam moments as much again
State = dict[str, dict[str, torch.Tensor]]


def timed(work: Callable[[], object]) -> float:
    """Seconds from the moment when all ranks are ready to the moment when all are done."""
    dist.barrier()
    began = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - began


def timed_tidying() -> list[float]:
    """Seconds that each later save takes after it is durable, to remove the one before."""
    seconds: list[float] = []
    original = checkpoint._tidy

    def tidy(directory: Path, keep: int) -> None:
        began = time.perf_counter()
        original(directory, keep)
        seconds.append(time.perf_counter() - began)

    checkpoint._tidy = tidy
    return seconds


def replicated_state(megabytes: int) -> State:
    """Weights and two Adam moments, the same on every rank."""
    layers = max(1, megabytes * 10**6 // (3 * SIDE * SIDE * 4))
    torch.manual_seed(0)
    parts = {part: {f"layer{index}": torch.rand(SIDE, SIDE) for index in range(layers)} for part in ("model", "first", "second")}
    return {
        "model": parts["model"],
        "optimizer": {**{f"first.{k}": v for k, v in parts["first"].items()}, **{f"second.{k}": v for k, v in parts["second"].items()}},
    }


def write_raw(path: Path, content: memoryview) -> None:
    """One file, written and synced, and its folder."""
    with open(path, "wb", buffering=0) as file:
        at = 0
        while at < len(content):
            at += file.write(content[at:])
        os.fsync(file.fileno())
    descriptor = os.open(path.parent, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read_raw(path: Path, into: memoryview) -> None:
    with open(path, "rb", buffering=0) as file:
        at = 0
        while at < len(into):
            at += file.readinto(into[at:])


def restore(folder: Path, state: State) -> None:
    """The newest checkpoint, into tensors that are there already."""
    found = checkpoint.restore(folder, say=lambda words: None, into=state)
    assert found is not None
    assert found.shared["model"]["layer0"].data_ptr() == state["model"]["layer0"].data_ptr()


def forget(folder: Path) -> None:
    """Drop every file from the page cache, as on a machine that takes over."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main(folder: Path, megabytes: int, repeats: int) -> None:
    dist.init_process_group("gloo")
    leads = dist.get_rank() == 0
    state = replicated_state(megabytes)
    size = sum(tensor.nbytes for part in state.values() for tensor in part.values())
    content = memoryview(bytearray(os.urandom(1 << 20) * (-(-size // (1 << 20))))[:size])
    into = memoryview(bytearray(size))
    found: dict[str, list[float]] = {name: [] for name in ("save", "dcp_save", "raw_write", "restore", "dcp_restore", "raw_read")}
    tidying = timed_tidying()
    for step in range(1, repeats + 1):
        turns: list[tuple[str, Callable[[], object]]] = [
            ("save", lambda step=step: checkpoint.save(folder / "ours", step, state, {"rank": dist.get_rank()}, identity={}, keep=1)),  # type: ignore[misc]
            ("dcp_save", lambda step=step: dcp_save(state, checkpoint_id=folder / f"dcp{step}")),  # type: ignore[misc]
            ("raw_write", lambda step=step: write_raw(folder / f"raw{step}", content) if leads else None),  # type: ignore[misc]
            ("restore", lambda: restore(folder / "ours", state)),
            ("dcp_restore", lambda step=step: dcp_load(state, checkpoint_id=folder / f"dcp{step}")),  # type: ignore[misc]
            ("raw_read", lambda step=step: read_raw(folder / f"raw{step}", into)),  # type: ignore[misc]
        ]
        turn = step % 3  # a disk that was written to just now is slower: each comes first, second and last equally often
        saves, restores = turns[turn:3] + turns[:turn], turns[3 + turn :] + turns[3 : 3 + turn]
        for name, work in saves + restores:
            if leads:
                forget(folder) if (name, work) in restores else os.sync()
            found[name].append(timed(work))
        if leads:
            shutil.rmtree(folder / f"dcp{step}")
            (folder / f"raw{step}").unlink()
            os.sync()  # what removing leaves to do is not the next turn's
    dist.destroy_process_group()
    durable = [whole - after for whole, after in zip(found["save"], tidying or [0.0] * repeats, strict=True)]
    print(json.dumps({**found, "save": durable, "stall": found["save"], "bytes": size}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

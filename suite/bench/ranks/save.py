"""save.py FOLDER MEBIBYTES REPEATS: save and restore a replicated state, and write and sync the same bytes with nothing around them.

The three take turns, so that a change of the disk's pace falls on all alike. Prints {"save": [seconds], "restore": [...], "raw": [...], "bytes": n}.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
import torch.distributed as dist

from workloads import checkpoint


def timed(work: Callable[[], object]) -> float:
    """Seconds from the moment when all ranks are ready to the moment when this one is done."""
    dist.barrier()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def write_raw(folder: Path, files: dict[str, bytes]) -> None:
    """Each file written at once and synced, then the directory."""
    for name, data in files.items():
        with open(folder / name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def main(folder: Path, mebibytes: int, repeats: int) -> None:
    dist.init_process_group("gloo")
    leads = dist.get_rank() == 0
    values = (mebibytes << 20) // 4
    shared = {"model": {"weight": torch.ones(values // 3)}, "optimizer": {"moments": torch.ones(2, values // 3)}}
    own = {"rank": dist.get_rank()}
    raw = folder / "raw"
    found: dict[str, list[float]] = {"save": [], "restore": [], "raw": []}
    files: dict[str, bytes] = {}
    for step in range(1, repeats + 1):
        found["save"].append(timed(lambda step=step: checkpoint.save(folder / "saved", step, shared, own, identity={}, keep=1)))  # type: ignore[misc]
        found["restore"].append(timed(lambda: checkpoint.restore(folder / "saved", say=lambda words: None)))
        if leads:
            raw.mkdir(exist_ok=True)
            files = {path.name: path.read_bytes() for path in (folder / "saved" / f"step_{step:08d}").iterdir()}
        found["raw"].append(timed(lambda: write_raw(raw, files) if leads else None))  # noqa: B023 - called at once
    dist.destroy_process_group()
    print(json.dumps({**found, "bytes": sum(map(len, files.values()))}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

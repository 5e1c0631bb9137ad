"""Whatever ends the process that opened a launcher, nothing of its worlds outlives it."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.reap import descendants
from suite.selftest.world_scripts import still_there

ROOT = Path(__file__).resolve().parents[2]
OPENER = """
import signal, sys
from pathlib import Path
from fixtures.world import Start, open_launcher
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in its background has it ignored
folder = Path(sys.argv[1])
with open_launcher() as launcher:
    launcher.run(Start(argv=("job.py",), folder=folder, world_size=2, run_dir=folder / "run", launcher=sys.argv[2], probe=False, deadline_s=300))
"""
JOB = """
import os, select, signal, sys
import torch
from pathlib import Path
class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True: yield 1
if __name__ == "__main__":
    os.setpgid(0, 0) if os.getpid() != os.getsid(0) else None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    batches = iter(torch.utils.data.DataLoader(Endless(), num_workers=1))
    next(batches)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.write(writing, b"x")
            select.select([], [], [])
        os._exit(0)
    os.read(reading, 1)
    fifo = os.open("ready", os.O_WRONLY)
    os.write(fifo, b"x")
    select.select([], [], [])
"""


def _open_world(folder: Path, launcher: str) -> subprocess.Popen[bytes]:
    """Start the opener and return once both ranks have their workers and daemons."""
    (folder / "job.py").write_text(JOB)
    os.mkfifo(folder / "ready")
    ready = os.open(folder / "ready", os.O_RDWR)
    opener = subprocess.Popen([sys.executable, "-c", OPENER, str(folder), launcher], cwd=ROOT, stderr=subprocess.DEVNULL)
    seen = b""
    while len(seen) < 2:
        if not select.select([ready], [], [], 120)[0]:
            opener.kill()
            pytest.fail(f"the ranks never got ready; opener {opener.poll()}; logs in {folder / 'run'}")
        seen += os.read(ready, 2)
    os.close(ready)
    return opener


@pytest.mark.parametrize(
    ("launcher", "number"), [("warm", signal.SIGKILL), ("warm", signal.SIGINT), ("torchrun", signal.SIGKILL), ("torchrun", signal.SIGINT)]
)
def test_nothing_survives_the_opener(tmp_path: Path, launcher: str, number: signal.Signals) -> None:
    opener = _open_world(tmp_path, launcher)
    below = descendants(opener.pid)
    assert len(below) >= 1 + 2 * 3, f"expected the supervisor and, for 2 ranks, rank, loader worker and daemon; saw {len(below)}"
    opener.send_signal(number)
    assert opener.wait(timeout=60) != 0
    left = still_there(below, 20.0)
    assert left == [], [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
    assert not (tmp_path / "run" / "ended.json").exists(), "a run that was interrupted must not count as one that ended"


def test_a_launcher_closed_while_torch_is_being_imported_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("print('never')")
    opener = subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path), "warm"], cwd=ROOT, stderr=subprocess.DEVNULL)
    below: list[int] = []
    while not below and opener.poll() is None:
        below = descendants(opener.pid)
    opener.kill()
    opener.wait()
    assert below
    assert still_there(below, 20.0) == []

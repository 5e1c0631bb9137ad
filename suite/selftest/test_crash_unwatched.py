"""Where the kernel really refuses ptrace, crash states are made of what Python shows: a broken saver is found all the same, a sound one is not passed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = """
import ctypes, json, struct, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fixtures.crash.calls import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, _MACHINES
import platform
number = {"x86_64": 101, "aarch64": 117}[platform.machine()]
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]  # ptrace fails with EPERM
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rows), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) == 0
assert libc.ptrace(16, 1, 0, 0) == -1 and ctypes.get_errno() == 1
from fixtures.world import open_launcher
from suite.recovery.savers import judged
with open_launcher() as launcher:
    result = judged(launcher, Path(sys.argv[2]), sys.argv[3], sound=sys.argv[4] == "sound", world_size=int(sys.argv[5])).result
finding = result.finding
print(json.dumps({"outcome": result.outcome, "said": finding.explanation, "details": finding.details}))
"""


def unwatched(folder: Path, name: str, kind: str, world_size: int = 1) -> dict[str, Any]:
    """The criterion on one saver, in a process whose descendants may not use ptrace."""
    arguments = [str(ROOT), str(folder), name, kind, str(world_size)]
    done = subprocess.run([sys.executable, "-c", FORBIDDEN, *arguments], capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_torn_checkpoint_is_found_with_the_operation_to_blame(tmp_path: Path) -> None:
    found = unwatched(tmp_path, "in_place", "broken")

    assert found["outcome"] == "rejected", found["said"]
    worst = found["details"]["bad"][0]
    assert (worst["crash"], worst["outcome"]) == ("process death", "loud_failure")
    assert "checkpoints/latest.pt" in worst["operation"]
    assert found["details"]["seen_by"] == "python"


def test_a_sound_saver_is_not_passed_and_the_reason_is_said(tmp_path: Path) -> None:
    found = unwatched(tmp_path, "two_files", "sound", world_size=2)

    assert found["outcome"] == "inconclusive", found["said"]
    for words in (
        "recorded at Python level",
        "C++ writers, child processes and mmap",
        "a loss of power",
        "all equal to the uninterrupted run",
    ):
        assert words in found["said"]
    assert found["details"]["table"]["rows"][1][3] == 0, "no loss of power may be claimed"


def test_a_saver_that_only_power_loss_breaks_is_not_passed(tmp_path: Path) -> None:
    assert unwatched(tmp_path, "rename_without_sync", "broken")["outcome"] == "inconclusive"


def test_a_child_that_python_does_not_show_is_never_passed(tmp_path: Path) -> None:
    assert unwatched(tmp_path, "child_process", "broken")["outcome"] != "accepted"

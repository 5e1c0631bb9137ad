"""`python -m suite.selftest.no_ptrace FOLDER NAME[:sound]...`: judges savers where ptrace is really forbidden, each finding a line of JSON.

A system call filter answers EPERM to every ptrace of this process and of all that it starts, as a container's does.
"""

from __future__ import annotations

import ctypes
import json
import platform
import struct
import sys
from pathlib import Path

from fixtures.crash.calls import PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
from fixtures.world import open_launcher
from suite.recovery.savers import judged

_PTRACE = {"x86_64": 101, "aarch64": 117}
_LOAD, _EQUAL, _RETURN, _ALLOW, _EPERM = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001


def forbid_ptrace() -> None:
    """From here on ptrace fails with EPERM. Raises OSError where the kernel refuses the filter."""
    rows = [(_LOAD, 0, 0, 0), (_EQUAL, 0, 1, _PTRACE[platform.machine()]), (_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rows), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a system call filter")


def main() -> None:
    """Judge and print."""
    folder, *asked = sys.argv[1:]
    forbid_ptrace()
    with open_launcher() as launcher:
        for one in asked:
            name, _, sound = one.partition(":")
            result = judged(launcher, Path(folder), name, sound=bool(sound), world_size=1).result
            found = {"outcome": result.outcome, "explanation": result.finding.explanation, "details": result.finding.details}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

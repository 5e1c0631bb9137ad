"""`python -m suite.bench.saver [--megabytes N]... [--repeats N]`: what the reference saver costs, beside DCP and beside the disk itself.

One run times all of them in turns (ranks/save.py). Its seconds are added to what earlier runs left in a JSON file, from which the page is rendered:
several short runs at quiet moments say more of a disk whose pace changes than one long run. pytest-benchmark and DCP's own benchmarks time one of
them after the other, so that such a change reads as a difference between them; here it falls on all alike, and what stays open is said to be open.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fixtures.world import open_launcher
from suite.bench.saver_page import page
from suite.bench.started import printed

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 900.0
PAGE = ROOT / "docs" / "saver_speed.md"


def waited_percent(window_s: float = 2.0) -> float | None:
    """Of a look at the machine, the part of the time in which something waited for a CPU; None where the kernel does not tell (no PSI)."""
    source = Path("/proc/pressure/cpu")
    if not source.exists():
        return None

    def total_us() -> int:
        return int(source.read_text().splitlines()[0].rpartition("total=")[2])

    before = total_us()
    time.sleep(window_s)
    return round((total_us() - before) / window_s / 1e4, 1)


def taken(megabytes: int, repeats: int, scratch: Path | None) -> dict[str, Any]:
    """One run: its seconds by what was done, and where and when it was."""
    began, waited = datetime.now(UTC), waited_percent()
    with tempfile.TemporaryDirectory(prefix="rankproof-saver-", dir=scratch) as folder, open_launcher() as launcher:
        store = Path(folder) / "checkpoints"
        store.mkdir()
        found = printed(launcher, Path(folder) / "run", "save.py", store, megabytes, repeats, ranks=2, deadline_s=DEADLINE_S)[0]
        file_system = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    size = found.pop("bytes")
    return {
        "megabytes": megabytes, "bytes": size, "repeats": repeats, "taken_utc": began.isoformat(timespec="seconds"), "waited_percent_before": waited,
        "cores": os.cpu_count(), "kernel": platform.release(), "file_system": file_system,
        "seconds": {name: [round(one, 4) for one in every] for name, every in sorted(found.items())},
    }  # fmt: skip


def main() -> int:
    """Time, store, render; prints the page's tables."""
    parser = argparse.ArgumentParser(prog="python -m suite.bench.saver", description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, nargs="*", default=[200, 1000], help="sizes to time now (default 200 1000; none: render only)"
    )
    parser.add_argument("--repeats", type=int, default=8, help="turns in the run, the first a warm-up (default 8)")
    parser.add_argument("--anew", action="store_true", help="forget what earlier runs left")
    parser.add_argument("--scratch", type=Path, help="where to save to: a folder on the disk in question (default: the temporary folder)")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page (default docs/saver_speed.md); .json beside it")
    asked = parser.parse_args()
    if asked.repeats < 2:
        parser.error(f"--repeats {asked.repeats} leaves nothing behind the warm-up: give 2 or more")
    store: Path = asked.page.with_suffix(".json")
    runs: list[dict[str, Any]] = json.loads(store.read_text()) if store.exists() and not asked.anew else []
    for megabytes in asked.megabytes:
        runs.append(taken(megabytes, asked.repeats, asked.scratch))
        store.write_text(json.dumps(runs, indent=1, sort_keys=True) + "\n")
    asked.page.write_text(page(runs))
    print(asked.page.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

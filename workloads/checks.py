"""What is on disk: `checks.py DIRECTORY` lists every checkpoint, whole or not, and why; `--set-aside` takes the newest whole one out of use.

Exit codes: 0 there is a whole checkpoint and nothing newer is damaged, 1 otherwise, 2 wrong use. Nothing is ever deleted: a checkpoint set aside keeps
its content under a name that no restore looks at, so that going back can itself be undone by renaming it again.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workloads import checkpoint

ASIDE = ".set-aside"


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of the directory; `fault` is None where it is whole. Entries that were never published count as incomplete."""

    path: Path
    published: bool
    fault: str | None

    @property
    def words(self) -> str:
        if self.path.name.endswith(ASIDE):
            return "set aside: no restore looks at it"
        if not self.published:
            return "incomplete: a save was cut short; it is never read, and the next save removes it"
        return "complete" if self.fault is None else f"damaged: {self.fault}"


def main() -> int:
    """List, or set aside and list; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="the job's checkpoint directory")
    parser.add_argument(
        "--set-aside", action="store_true", help="take the newest whole checkpoint, and every damaged one above it, out of use"
    )
    asked = parser.parse_args()
    if not asked.directory.is_dir():
        print(f"checks.py: {asked.directory} is no directory: give the job's checkpoint directory", file=sys.stderr)
        return 2
    if asked.set_aside and not set_aside(asked.directory):
        return 1
    return listed(asked.directory)


def look(directory: Path) -> list[Found]:
    """Every entry, newest first; wholeness is read from disk, hash by hash."""
    whole = checkpoint.faults(directory)
    entries = sorted((entry for entry in directory.iterdir() if entry.is_dir()), key=lambda entry: entry.name, reverse=True)
    return [Found(entry, entry.name in whole, whole.get(entry.name)) for entry in entries]


def listed(directory: Path) -> int:
    """Print a line per entry and what a restart with --resume would take."""
    found = look(directory)
    for one in found:
        print(f"{one.path.name}  {one.words}")
    published = [one for one in found if one.published]
    newest = next((one for one in published if one.fault is None), None)
    print(
        f"a restart with --resume takes {newest.path.name}"
        if newest
        else "no complete checkpoint: a restart with --resume " + _without(published)
    )
    return 0 if newest is not None and published[0] is newest else 1


def _without(published: list[Found]) -> str:
    return "stops and says so" if published else "starts from step 0"


def set_aside(directory: Path) -> bool:
    """Rename the newest whole checkpoint, and damaged ones above it; False, and nothing is touched, where no older whole one is left."""
    published = [one for one in look(directory) if one.published]
    whole = [one for one in published if one.fault is None]
    if len(whole) < 2:
        print(f"checks.py: {len(whole)} complete checkpoints are there, so none can be given up; nothing was changed", file=sys.stderr)
        return False
    for one in published[: published.index(whole[0]) + 1]:
        os.rename(one.path, one.path.with_name(one.path.name + ASIDE))
        print(f"set aside: {one.path.name}")
    return True


if __name__ == "__main__":
    sys.exit(main())

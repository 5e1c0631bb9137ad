"""Runs a script, written on the spot, as a world; for the tests of worlds."""

from __future__ import annotations

import os
import select
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.world import Ended, Launcher, Start


@dataclass(frozen=True, slots=True)
class Done:
    """A world that ran: how it ended and what every rank printed."""

    ended: Ended
    logs: tuple[str, ...]
    run_dir: Path

    @property
    def codes(self) -> list[int | None]:
        return [rank.exit_code for rank in self.ended.ranks]

    @property
    def signals(self) -> list[int | None]:
        return [rank.signal for rank in self.ended.ranks]


def run_script(through: Launcher, folder: Path, source: str, *arguments: str, world_size: int = 1, **options: Any) -> Done:
    """Write `source` to folder/script.py and run it there; the probe stays out unless asked for."""
    (folder / "script.py").write_text(textwrap.dedent(source))
    return run_words(through, folder, ("script.py", *arguments), world_size=world_size, **options)


def run_words(through: Launcher, folder: Path, words: tuple[str, ...], *, world_size: int = 1, **options: Any) -> Done:
    """Run a command line in `folder`, its trace in a fresh folder below it."""
    run_dir = folder / f"run{len(list(folder.glob('run*')))}"
    settings = {"probe": False, "deadline_s": 60.0, **options}
    ended = through.run(Start(argv=words, folder=folder, world_size=world_size, run_dir=run_dir, **settings))
    logs = tuple((run_dir / f"rank{rank}.log").read_text("utf-8", "replace") for rank in range(world_size))
    return Done(ended, logs, run_dir)


def still_there(pids: Iterable[int], deadline_s: float) -> list[int]:
    """Wait for the processes to end; those that had not when the deadline passed."""
    left: dict[int, int] = {}
    ends = select.poll()
    for pid in pids:
        with suppress(ProcessLookupError):
            left[os.pidfd_open(pid)] = pid
    for descriptor in left:
        ends.register(descriptor, select.POLLIN)
    while left and (ended := ends.poll(deadline_s * 1000)):
        for descriptor, _ in ended:
            ends.unregister(descriptor)
            os.close(descriptor)
            del left[descriptor]
    return sorted(left.values())

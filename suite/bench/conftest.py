"""What the benchmarks share: one warm launcher, and runs of ranks and of the flights job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fixtures.job import load_job
from fixtures.plugin import DEFAULT_JOB
from fixtures.runs import RunRoom
from fixtures.world import Launcher, open_launcher
from suite.bench.started import printed

RunRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


@pytest.fixture(scope="session")
def room(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> RunRoom:
    """Runs of the flights job, each executed once."""
    folder = tmp_path_factory.mktemp("flights")
    return RunRoom(load_job(DEFAULT_JOB), folder, lambda: launcher, lambda *_: None, lambda *_: None)


@pytest.fixture(scope="session")
def run_ranks(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> RunRanks:
    """run_ranks(script, *arguments, ranks=2, level=None): run a script of ranks/ in a world; what each rank printed last, from JSON.

    level: the probe's, None without the probe.
    """
    folder = tmp_path_factory.mktemp("worlds")

    def run(script: str, *arguments: object, ranks: int = 2, level: str | None = None) -> list[Any]:
        return printed(launcher, folder / str(len(list(folder.iterdir()))), script, *arguments, ranks=ranks, level=level)

    return run

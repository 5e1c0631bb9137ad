"""On every stack the warm launcher and torchrun, the launcher of record, give equal traces. Needs the extra [stacks]: `pytest -m stacks`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fixtures.audit import RunSpec
from fixtures.job import job_hash, load_job
from fixtures.runs import RunRoom, obtain
from fixtures.trace import Trace, load_trace
from fixtures.world import Launcher, open_launcher
from suite.stacks.command import STACKS
from suite.stacks.entries import Stack, read_stacks

pytestmark = pytest.mark.stacks
COMPUTED = ("losses", "lr", "schedule", "clip_norm", "grad_norm", "grad_digest", "param_digest", "optimizer_digest", "buffer_digest", "rng")
WORLD_SIZE = 2


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


@pytest.mark.parametrize("stack", read_stacks(STACKS), ids=lambda stack: stack.name)
def test_warm_launcher_and_torchrun_give_equal_traces(stack: Stack, launcher: Launcher, tmp_path: Path) -> None:
    """The second warm run is forked with the libraries that the first one imported; neither differs from torchrun's."""
    record = _ran(stack, launcher, "torchrun", 0, tmp_path / "torchrun")
    steps = load_job(stack.job).steps

    for repeat in (0, 1):
        warm = _ran(stack, launcher, "warm", repeat, tmp_path / "warm")
        assert (warm.ended["message"], record.ended["message"]) == ("", "")
        assert warm.errors() == record.errors() == []
        assert len(warm.steps) == len(record.steps) == WORLD_SIZE * steps
        for column in COMPUTED:
            assert _told(warm, column) == _told(record, column), column
        assert _samples(warm) == _samples(record)
        assert _exchanged(warm) == _exchanged(record)
        assert warm.not_seen() == record.not_seen()


def test_every_library_that_a_stack_is_about_is_installed() -> None:
    """Else the results would be about something else, or about nothing."""
    for stack in read_stacks(STACKS):
        for name in stack.distributions:
            assert metadata.version(name)


def _ran(stack: Stack, launcher: Launcher, name: str, repeat: int, folder: Path) -> Trace:
    job = load_job(stack.job)
    room = RunRoom(job, folder, lambda: launcher, lambda run_id, step, steps: None, lambda *kept: None)
    spec = RunSpec(WORLD_SIZE, "gloo", name, job.steps, job.seed, job_hash(job), level="full", repeat=repeat)
    return load_trace(obtain(room, spec))


def _told(trace: Trace, column: str) -> list[str]:
    """By rank and step, what was recorded, to the last bit."""
    ordered = trace.steps.sort_values(["rank", "step"])
    return [repr(value) for value in ordered[column]]


def _samples(trace: Trace) -> list[tuple[Any, ...]]:
    return list(trace.samples[["rank", "step", "position", "sample"]].itertuples(index=False, name=None))


def _exchanged(trace: Trace) -> list[tuple[Any, ...]]:
    return list(trace.collectives[["rank", "step", "index", "op", "bytes"]].itertuples(index=False, name=None))

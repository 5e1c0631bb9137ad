"""One trial: a program of the catalogue through the criteria as they are, without twins, and what each of them said."""

from __future__ import annotations

import fnmatch
import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fixtures.audit import Audit
from fixtures.criterion import Criterion, PartResult, run_part
from fixtures.job import Job, job_hash, load_job
from fixtures.runs import RunRoom, machine, obtain
from fixtures.world import Launcher
from suite.matrix.entries import Entry, broken_source, clean_source, write_job

SAID_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all trials share. `folder` holds their runs, each for as long as it lasts; `bounds` are the policy's."""

    criteria: Mapping[str, Criterion]
    folder: Path
    launcher: Launcher
    environment: Mapping[str, Any]
    bounds: Mapping[str, float]
    timed: bool


@dataclass(frozen=True, slots=True)
class Said:
    """What one criterion said of one program. outcome: accepted, rejected, inconclusive, not_applicable or crashed."""

    criterion: str
    outcome: str
    explanation: str


@dataclass(frozen=True, slots=True)
class Row:
    """An entry's results: what the criteria said of the broken program (one seed) and, seed by seed, of its clean twin. `sha256` is of its file."""

    name: str
    sha256: str
    broken: tuple[Said, ...]
    clean: tuple[tuple[Said, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Row:
        clean = tuple(tuple(Said(**said) for said in seed) for seed in stored["clean"])
        return cls(stored["name"], stored["sha256"], tuple(Said(**said) for said in stored["broken"]), clean)


def try_entry(entry: Entry, around: Surroundings, seeds: int, known: Row | None = None) -> Row:
    """The broken program once, then its clean twin with seeds 0 to `seeds` - 1.

    known: an earlier row, of which everything stays that is about the same file; only what it lacks is run.
    """
    text = entry.file.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = known if known is not None and known.sha256 == digest else None
    broken = kept.broken if kept and kept.broken else try_program(entry, broken_source(text), around, seed=0)
    clean = tuple(filter(None, kept.clean)) if kept else ()  # a seed by which nothing was said was not tried
    further = [try_program(entry, clean_source(text), around, seed=seed) for seed in range(len(clean), seeds)]
    return Row(entry.name, digest, broken, (*clean, *further))


def try_program(entry: Entry, source: str, around: Surroundings, *, seed: int) -> tuple[Said, ...]:
    """What every criterion that concerns the entry says of one program; its runs are shared by them and then dropped."""
    folder = around.folder / entry.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        job = replace(load_job(write_job(entry, source, folder / "job")), seed=seed)
        audited = partial(as_it_is, job, folder / "audit", around, entry.world_size)
        return tuple(said_of(declared, around, audited) for declared in concerning(entry, around))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def concerning(entry: Entry, around: Surroundings) -> list[Criterion]:
    """The criteria to apply, in the order of the catalogue: those that match a pattern of the entry; a timed one only where times are asked for."""
    named = [one for one in around.criteria.values() if any(fnmatch.fnmatchcase(one.id, pattern) for pattern in entry.criteria)]
    return [one for one in named if around.timed or not one.timed]


def said_of(declared: Criterion, around: Surroundings, audited: Callable[[Criterion], Audit]) -> Said:
    """What a criterion says of the job that `audited` makes an audit of."""
    with machine(around.folder, alone=declared.timed):
        result: PartResult = run_part(declared, audited(declared))
    return Said(declared.id, result.outcome, result.finding.explanation.replace(f"{around.folder}/", "")[:SAID_CHARACTERS])


def as_it_is(job: Job, folder: Path, around: Surroundings, world_size: int, declared: Criterion) -> Audit:
    """An audit of the job without any planted fault, whose runs are kept in `folder` and shared by all criteria."""
    room = RunRoom(job, folder, lambda: around.launcher, lambda run_id, step, steps: None, lambda *kept: None)
    return Audit(
        job=job, criterion=declared, part="as_is", backend="gloo", launcher="warm", world_size=world_size,
        environment=around.environment, bounds=around.bounds, obtain=partial(obtain, room), job_hash=job_hash(job), folder=None,
    )  # fmt: skip


def cell(entry: Entry, said: Said) -> str:
    """What a criterion's word on the broken program is worth: found, wrong cause, missed or undecided by the criterion that has to find it;
    also found, quiet or undecided by any other.
    """
    expected = said.criterion == entry.criterion
    if said.outcome == "rejected":
        if not expected:
            return "also found"
        return "found" if re.search(entry.cause, said.explanation) else "wrong cause"
    if said.outcome == "accepted":
        return "missed" if expected else "quiet"
    return "undecided"

"""Runs a criterion's two parts on a job in real worlds without a pytest session around it, for the tests of the judges."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fixtures.audit import Audit
from fixtures.criterion import Part, PartResult, criterion_of, run_part
from fixtures.job import Job
from fixtures.runs import RunRoom, obtain
from fixtures.world import Launcher

JOBS = Path(__file__).resolve().parent / "jobs"


@dataclass(frozen=True, slots=True)
class CriterionRuns:
    """`judged(job, test, part)` runs one part of the criterion that a test function declares; runs are shared within `folder` and job name."""

    launcher: Launcher
    folder: Path

    def judged(self, job: Job, test: object, part: Part = "as_is", world_size: int = 2) -> PartResult:
        declared = criterion_of(test)
        if declared is None:
            raise ValueError(f"{test!r} declares no criterion")
        return run_part(declared, self.audit(job, test, part, world_size))

    def audit(self, job: Job, test: object, part: Part = "as_is", world_size: int = 2) -> Audit:
        room = RunRoom(job, self.folder / job.name, lambda: self.launcher, lambda run_id, step, steps: None, lambda *kept: None)
        declared = criterion_of(test)
        if declared is None:
            raise ValueError(f"{test!r} declares no criterion")
        environment = {"cores": os.cpu_count() or 1}
        return Audit(job, declared, part, "gloo", "warm", world_size, environment, {}, lambda spec: obtain(room, spec))


def written_job(folder: Path, name: str, command: str, *, steps: int, every: int, global_batch: int = 16) -> Job:
    """A job.toml written to `folder`, for a script among the selftest's jobs (`command` begins with its path)."""
    from fixtures.job import load_job

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    path.write_text(
        f'[job]\nname = "{name}"\ncommand = "{command}"\nglobal_batch = {global_batch}\nsteps = {steps}\ntime_limit_s = 30\n'
        f'[checkpoint]\nevery = {every}\nresume = "--resume"\ndirectory = "{{out}}/checkpoints"\n'
    )
    return load_job(path)

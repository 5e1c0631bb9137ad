"""`python -m suite stacks`: every job of `workloads/stacks/` through the criteria of equivalence and recovery, and the page of results that comes of it.

Libraries test themselves on their own promises; nobody runs the same claims over several of them. Here each job is audited as any user's job is, by the same
command, planted faults included, in a process of its own; further seeds are judged as they are, since a fault proves nothing new with another seed.
Results are kept as JSON beside the page (`stacks.json`), so that `--only` renews some and leaves the others. With `--audits DIR` the audits themselves are kept,
one for each area; one that is there already, of the very same job, is judged again from its traces and not run again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

from fixtures.job import job_hash, load_job
from suite.matrix.command import surroundings
from suite.matrix.trial import as_it_is, said_of
from suite.stacks.entries import Stack, StacksError, read_stacks
from suite.stacks.results import AREAS, Result, read_results, result_of, write_results
from suite.stacks.sheet import page, problems

ROOT = Path(__file__).resolve().parents[2]
STACKS = ROOT / "workloads" / "stacks"
AUDITED, JUDGED = {0, 1}, {0, 1, 4}
"""What pytest and `suite judge` exit with when everything was judged, whatever came of it."""


def run_stacks(only: Sequence[str], *, world_size: int, seeds: int, out: Path, audits: Path | None, kept_only: bool = False) -> int:
    """Audit the chosen jobs, renew their results, write the page; the number of jobs with a finding that nothing explains, or a stale one.

    audits: where they are kept, None for a temporary folder. kept_only: run nothing; an area that was not audited is not run, a job without any stays as it was.
    """
    chosen, everything, store = read_stacks(STACKS, only), read_stacks(STACKS), out.with_suffix(".json")
    results = read_results(store)
    for number, stack in enumerate(chosen, 1):
        began = time.monotonic()
        folders = kept_of(stack, world_size, audits) if kept_only else None
        if folders == []:
            print(f"[{number}/{len(chosen)}] {stack.name}: no audit of it is kept", flush=True)
            continue
        result = results[stack.name] = audited(stack, world_size, seeds, audits, folders)
        kept = [results[one.name] for one in everything if one.name in results]
        write_results(store, kept)
        out.write_text(page(everything, results))
        failed = sum(one.verdict == "failed" for one in result.verdicts)
        said = f"{len(result.verdicts)} verdicts, {failed} failed"
        print(f"[{number}/{len(chosen)}] {stack.name} {time.monotonic() - began:.0f} s  {said}", flush=True)
        for line in problems(stack, result):
            print(f"    {line}", flush=True)
    return sum(bool(problems(stack, results[stack.name])) for stack in chosen if stack.name in results)


def audited(stack: Stack, world_size: int, seeds: int, audits: Path | None, folders: Sequence[Path] | None = None) -> Result:
    """The audits of one job (`folders`, where they are there), then its further seeds as they are.

    Raises StacksError where a library is missing or an audit did not come about.
    """
    versions = _versions(stack)
    folder = Path(tempfile.mkdtemp(prefix="rankproof-stacks-"))
    try:
        kept = audits.absolute() if audits else folder
        result = result_of(stack.name, folders or [_audit(stack, area, world_size, kept) for area in AREAS], versions)
        further = {seed: _as_it_is(stack.job, seed, world_size, folder / f"seed-{seed}") for seed in range(1, seeds)}
        return replace(result, seeds=further)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _versions(stack: Stack) -> dict[str, str]:
    try:
        return {name: metadata.version(name) for name in stack.distributions}
    except metadata.PackageNotFoundError as missing:
        raise StacksError(f"{stack.name} needs {missing.name}: pip install -c constraints.txt -e '.[stacks]'") from None


def kept_of(stack: Stack, world_size: int, audits: Path | None) -> list[Path]:
    """The audits of a job that are kept below `audits`, judged again."""
    wanted = job_hash(load_job(stack.job))
    there = [area for area in AREAS if audits is not None and is_of(_place(audits.absolute(), stack, area), wanted, world_size)]
    return [_audit(stack, area, world_size, audits.absolute()) for area in there] if audits is not None else []


def _place(kept: Path, stack: Stack, area: str) -> Path:
    return kept / f"{stack.name.replace('/', '-')}-{area}"


def _audit(stack: Stack, area: str, world_size: int, kept: Path) -> Path:
    """The folder of a finished audit of one area; judged again where it is there already."""
    folder = _place(kept, stack, area)
    if is_of(folder, job_hash(load_job(stack.job)), world_size):
        _call([sys.executable, "-m", "suite", "judge", str(folder)], JUDGED, f"judging {folder.name} again")
        return folder
    asked = ["-q", "-m", "cpu", "-p", "no:cacheprovider", "--job", str(stack.job), f"--world-size={world_size}", f"--audit-dir={folder}"]
    _call([sys.executable, "-m", "pytest", *asked, str(ROOT / "suite" / area)], AUDITED, f"the {area} audit of {stack.name}")
    return folder


def is_of(folder: Path, wanted: str, world_size: int) -> bool:
    """Whether a whole audit of this job lies there."""
    if not (folder / "audit.json").exists():
        return False
    audit = json.loads((folder / "audit.json").read_text())
    return bool(audit["identity"]["job_hash"] == wanted and audit["world"]["world_size"] == world_size)


def _call(command: Sequence[str], wanted: set[int], what: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in wanted:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing"]
        raise StacksError(f"{what} ended with exit code {done.returncode}; it said last: {last[0]}")


def _as_it_is(path: Path, seed: int, world_size: int, folder: Path) -> tuple[tuple[str, str, str], ...]:
    """What each criterion says of the job with another seed, without its twins: criterion, outcome, explanation."""
    job = replace(load_job(path), seed=seed)
    with surroundings(folder) as around:
        audited = partial(as_it_is, job, folder / "audit", around, world_size)
        chosen = [one for one in around.criteria.values() if one.area in AREAS and not one.timed]
        said = [said_of(one, around, audited) for one in chosen]
    return tuple((one.criterion, one.outcome, one.explanation) for one in said)

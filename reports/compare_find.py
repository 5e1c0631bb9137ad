"""From what the command line calls a side to the directory of an audit: a path, a saved name below audits/, or a commit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.compare_benchmarks import FILE, Benchmarks, read_benchmarks
from reports.compare_model import Title
from reports.evidence import Evidence, EvidenceError, load

SHORTEST_COMMIT = 4
HEXADECIMAL = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison, loaded. note: how it was chosen where that was not plain; "" else."""

    title: Title
    evidence: Evidence
    benchmarks: Benchmarks
    note: str = ""

    @property
    def measured(self) -> bool:
        return bool(self.evidence.records) or bool(self.benchmarks.seconds)


def find(asked: str, audits: Path, job: str = "") -> Side:
    """The side that `asked` names. audits: the folder of audits that names and commits are looked up in; job: only of this job.

    Raises EvidenceError, one sentence, where there is none or more than one job.
    """
    for folder in (Path(asked), audits / asked):
        if folder.is_dir():
            return open_side(folder)
    if Path(asked).exists():
        raise EvidenceError(f"{asked} is a file; give the directory of an audit, its name below {audits}, or a commit.")
    return _by_commit(asked, audits, job)


def open_side(folder: Path, note: str = "") -> Side:
    """The audit in `folder`. An empty folder measured nothing; one that holds other things is no audit. Raises EvidenceError."""
    benchmarks = read_benchmarks(folder)
    if (folder / "evidence.sqlite").is_file():
        evidence = load(folder)
    elif (folder / FILE).is_file():
        evidence = Evidence({"environment": benchmarks.machine}, (), {}, {})
    elif not any(folder.iterdir()):
        evidence = Evidence({}, (), {}, {})
    else:
        raise EvidenceError(f"{folder} holds neither evidence.sqlite nor {FILE}; give the directory of an audit.")
    return Side(_title(folder, evidence), evidence, benchmarks, note)


def _title(folder: Path, evidence: Evidence) -> Title:
    identity, session = evidence.meta.get("identity") or {}, evidence.meta.get("session") or {}
    return Title(
        folder=folder.as_posix(), commit=str(identity.get("code_commit") or ""), dirty=bool(identity.get("dirty")),
        job=str((evidence.meta.get("job") or {}).get("name") or ""), started_utc=str(session.get("started_utc") or ""),
    )  # fmt: skip


def _by_commit(asked: str, audits: Path, job: str) -> Side:
    """The newest finished audit of a commit; one of a clean checkout before one with changes."""
    commit = _resolved(asked)
    if not commit:
        raise EvidenceError(f"{asked} is no directory, no audit below {audits} and no commit; give one of these.")
    known = [side for side in audits_below(audits) if side.title.commit.startswith(commit)]
    found = [side for side in known if job in ("", side.title.job)]
    if not found:
        jobs = f" of job {job}; there are audits of {_jobs(known)}" if job and known else ""
        raise EvidenceError(
            f"no audit below {audits} is of commit {commit[:12]}{jobs}; run pytest there first, or name another folder with --audits."
        )
    if not job and len({side.title.job for side in found}) > 1:
        raise EvidenceError(f"commit {commit[:12]} has audits of several jobs ({_jobs(found)}); choose one with --job.")
    chosen = max(found, key=lambda side: (side.evidence.finished, not side.title.dirty, side.title.started_utc, side.title.folder))
    note = f"Of {len(found)} audits of commit {commit[:12]}, {chosen.title.folder} was taken." if len(found) > 1 else ""
    return Side(chosen.title, chosen.evidence, chosen.benchmarks, note)


def _jobs(sides: Sequence[Side]) -> str:
    return ", ".join(sorted({side.title.job or "an unnamed job" for side in sides}))


def audits_below(audits: Path) -> list[Side]:
    """Every audit that can be read; one that cannot is not the one that was asked for by its commit."""
    found = []
    for file in sorted(audits.glob("*/evidence.sqlite")):
        try:
            found.append(open_side(file.parent))
        except EvidenceError:
            continue
    return found


def _resolved(asked: str) -> str:
    """The full commit where git knows it (main, HEAD~1, a tag), else the beginning of one as given; "" where it can be neither."""
    try:
        command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{asked}^{{commit}}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        done = None
    if done is not None and done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip()
    lower = asked.lower()
    return lower if len(lower) >= SHORTEST_COMMIT and set(lower) <= HEXADECIMAL else ""

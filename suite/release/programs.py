"""The programs of a release, each run once per audit and shared by all criteria: candidate, publish, score, evaluate."""

from __future__ import annotations

from fixtures.audit import Audit, Program
from fixtures.faults import Fault
from fixtures.inputs import InputDamage
from fixtures.job import Release

BUILD_LIMIT_S = 600.0


def release_of(audit: Audit) -> Release:
    """The [release] table; a criterion that needs it is never run without."""
    release = audit.job.release
    return release if release is not None else audit.inconclusive("job.toml has no [release]")


def candidate(audit: Audit) -> Program:
    """What was trained for release; its {out} is kept for the programs that follow."""
    release = release_of(audit)
    built = audit.program(release.build, files=(release.reference,), keep=True, deadline_s=BUILD_LIMIT_S)
    return _sound(audit, built, "build")


def published(audit: Audit) -> Program:
    """The candidate after it was published, undisturbed; watched at every file operation."""
    release = release_of(audit)
    done = audit.program(release.publish, after=candidate(audit), watch=release.registry, files=pointers(release), keep=True)
    return _sound(audit, done, "publish")


def scored(audit: Audit, damage: InputDamage | None = None) -> Program:
    """The raw events of the audit, scored from the registered artifact in a fresh process that prints what it imports."""
    release = release_of(audit)
    return audit.program(release.score, after=published(audit), files=(release.scores, release.served), imports=True, damage=damage)


def evaluated(audit: Audit, faults: tuple[Fault, ...] = ()) -> Program:
    """The evaluation of the candidate on held-out rows: its report, and the table it was made from."""
    release = release_of(audit)
    return audit.program(release.evaluate, after=candidate(audit), files=(release.report, release.held_out), faults=faults)


def pointers(release: Release) -> tuple[str, ...]:
    """Paths of the registry's entries that have a fixed name: they say what is in service."""
    return tuple(f"{release.registry}/{name}" for name in release.published if "*" not in name)


def _sound(audit: Audit, program: Program, what: str) -> Program:
    if program.exit_code != 0:
        audit.inconclusive(f"[release] {what} exited with code {program.exit_code}: {program.said()}")
    return program

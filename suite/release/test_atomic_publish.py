"""Kill the publish before every single file operation; look at the registry as a reader would; then publish again."""

from __future__ import annotations

from fixtures.audit import Audit, Program
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.release.programs import candidate, pointers, release_of
from suite.release.publication import Attempt, Operation, operations_of, partial, publishes_whole


@criterion(
    "release.atomic_publish",
    claim="A publish that is killed at any file operation shows readers all of the artifact or nothing, and publishing again ends as if nothing had happened.",
    twin=Fault("copy_rename"),
    because=r"is advertised with \d+ of \d+ files whole",
    threshold="0 kills after which an entry of the registry is partial; 0 retries that end otherwise; a second publish changes 0 files",
    needs=("release",),
    min_world=1,
    assumptions=(
        "the death of the process (SIGKILL), not of the machine: what was written reaches the disk",
        "readers use only the entries that [release] published names",
    ),
    limitations=(
        "file operations that Python shows; a write inside one of them is not cut in two",
        "one publisher at a time",
        "the first publish into an empty registry",
    ),
    overturned_by="a kill, a power cut or a second publisher after which a reader finds a part of an artifact",
)
def test_atomic_publish(audit: Audit) -> None:
    """Whatever file operation the publish dies before, nothing partial is advertised, and a retry is idempotent."""
    release, start = release_of(audit), candidate(audit)
    control = _publish(audit, start, planted=True)
    again = _publish(audit, control)
    attempts: list[Attempt] = []
    for operation in reversed(operations_of(control)):
        attempts.append(_attempt(audit, start, operation))
        if audit.part == "twin" and partial(attempts[-1].killed.left, control.left, release.published):
            break
    audit.judge(publishes_whole, control, again, attempts, published=release.published)


def _publish(audit: Audit, after: Program, *, planted: bool = False, faults: tuple[Fault, ...] = ()) -> Program:
    release = release_of(audit)
    return audit.program(
        release.publish, after=after, watch=release.registry, files=pointers(release), keep=True, planted=planted, faults=faults
    )


def _attempt(audit: Audit, start: Program, operation: Operation) -> Attempt:
    """The last operations are tried first: a publish is in view only from its rename on. The twin is not asked for retries."""
    killed = _publish(audit, start, planted=True, faults=(Fault("kill", rank=0, operation=operation.n),))
    return Attempt(operation, killed, _publish(audit, killed) if audit.part == "as_is" else None)

"""The store that checkpoints are written to fills up, turns read-only, or is gone."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.cases import unproven_kill
from suite.recovery.kills import cadence, control_run, resumed_from, steps_of, without_store
from suite.recovery.store_failure import survives_failing_store, tells_missing_store

MUTE = Fault("mute")
ASSUMED = ("what a scheduler keeps of a job is its output and its exit code",)
SEEN = (
    "where mounting is not allowed the probe refuses the operations that it sees; writes from C++ other than torch.save and by child processes then go through",
)


@criterion(
    "recovery.disk_full",
    claim="When the disk fills up in the middle of a save, the job says so, no checkpoint that was complete is lost, and it continues when there is room again.",
    twin=MUTE,
    because=r"without a word",
    threshold="0 failures that are not told, 0 restarts that differ from the uninterrupted run",
    needs=("checkpoint",),
    min_world=1,
    assumptions=ASSUMED,
    limitations=(*SEEN, "the disk has room for half of one save from the second one on"),
    overturned_by="a full disk after which the job goes on in silence, or cannot be started again",
)
def test_disk_full(audit: Audit) -> None:
    """A full disk is told, and costs nothing but the save that it stopped."""
    _failing(audit, "store_full")


@criterion(
    "recovery.read_only",
    claim="When the store turns read-only, the job says so, no checkpoint that was complete is lost, and it continues when it can write again.",
    twin=MUTE,
    because=r"without a word",
    threshold="0 failures that are not told, 0 restarts that differ from the uninterrupted run",
    needs=("checkpoint",),
    min_world=1,
    assumptions=ASSUMED,
    limitations=SEEN,
    overturned_by="a read-only store on which the job goes on in silence, or after which it cannot be started again",
)
def test_read_only(audit: Audit) -> None:
    """A store that takes no more writes is told, and costs nothing but the saves that it stopped."""
    _failing(audit, "store_read_only")


@criterion(
    "recovery.store_missing",
    claim="Started again without its checkpoint store, the job stops, or begins anew and says so; it does not start over in silence.",
    twin=MUTE,
    because=r"says nothing of it",
    threshold="0 restarts in silence",
    needs=("checkpoint",),
    min_world=1,
    assumptions=ASSUMED,
    limitations=("the directory is gone; a store that answers, but slowly or with errors, is not tried",),
    overturned_by="a missing store after which the job starts over and says nothing",
)
def test_store_missing(audit: Audit) -> None:
    """Nobody believes that a job resumed when it began again."""
    killed, resumed = without_store(audit)
    audit.judge(tells_missing_store, control_run(audit), resumed, unproven=unproven_kill(killed))


def _failing(audit: Audit, kind: str) -> None:
    every, control = cadence(audit), control_run(audit)
    failing = audit.run(world_size=audit.world_size, steps=steps_of(audit), level="full", faults=(Fault(kind, step=2 * every),))
    audit.judge(survives_failing_store, control, failing, resumed_from(audit, failing, planted=False), kind=kind, every=every)

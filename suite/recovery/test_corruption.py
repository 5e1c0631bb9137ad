"""Damage the newest checkpoint as disks, copies and mixed-up shards do, and start the job on it."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.cases import unproven_kill
from suite.recovery.corruption import DAMAGE, never_loaded_silently
from suite.recovery.kills import control_run, killed_after, resumed_from, saved_steps


@criterion(
    "recovery.corruption",
    claim="A damaged checkpoint (a flipped bit, a file cut short, two files exchanged, a stale one) is refused or passed over, never loaded in silence.",
    twin=Fault("damage_restored"),
    because=r"weights that the uninterrupted run never had",
    threshold="0 of the damages after which the job trains on from anything but a state that was saved",
    needs=("checkpoint",),
    min_world=1,
    assumptions=("the newest checkpoint is the entry written last among those that hold most bytes",),
    limitations=(
        "one place of each damage: the middle of the largest file, the two files of a kind nearest in size",
        "damage that its author took care to hide (a recomputed checksum) is not tried",
    ),
    overturned_by="a damaged checkpoint from which the job trains on as if it were whole",
)
def test_corruption(audit: Audit) -> None:
    """Whatever damage the newest checkpoint has, the job stops and says so or goes back to one that is whole."""
    newest = saved_steps(audit)[-1]
    control, killed = control_run(audit), killed_after(audit, newest)
    intact = resumed_from(audit, killed)  # the twin's flipped bit is what silent loading would be
    kinds = DAMAGE if audit.twin is None else ()
    damaged = {kind: resumed_from(audit, killed, Fault(kind), planted=False) for kind in kinds}
    audit.judge(never_loaded_silently, control, intact, damaged, newest=newest, unproven=unproven_kill(killed))

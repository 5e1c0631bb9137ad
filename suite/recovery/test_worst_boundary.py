"""Kill a rank before file operations of a save, from the first to the last, start the job again each time, and see what it comes back as."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.recovery.alignment import states_of
from suite.recovery.boundaries import Attempt, Boundary, attempted, boundaries_of, spread, survives_every_boundary
from suite.recovery.returns import GOOD

MOST_HANGS = 2
MOST_BOUNDARIES = 8  # recovery.crash_states tries every state; this one shows with real kills that its folders are what kills leave
STEPS_AFTER_SAVE = 2


@criterion(
    "recovery.worst_boundary",
    claim="Really killed before file operations spread over a save, on every rank, the job comes back from the newest or the previous checkpoint and goes on unchanged.",
    twin=Fault("rotate_first"),
    because=r"fresh start|loud failure|exit 0 without resuming|divergence",
    threshold="0 boundaries from which the job comes back as anything else, of 8 spread over the save ([targets] most_boundaries)",
    needs=("checkpoint",),
    min_world=1,
    assumptions=(
        "the death of a process (SIGKILL), not of the machine: what was written reaches the disk",
        "the second save is like every other one that has a predecessor",
    ),
    limitations=(
        "boundaries are the file operations that Python and torch show; a write inside one of them is not cut in two",
        "power loss, ranks that die at different points, and the operations between those tried are recovery.crash_states'",
    ),
    version=2,
    overturned_by="a kill inside a save after which a restart fails, starts afresh, mixes two checkpoints or trains on differently",
)
def test_worst_boundary(audit: Audit) -> None:
    """Whatever file operation of a save a rank dies before, the restarted job resumes the newest complete checkpoint or the one before."""
    every = audit.job.checkpoint.every if audit.job.checkpoint else 1
    steps = 2 * every + STEPS_AFTER_SAVE
    control = audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False)
    boundaries = boundaries_of(control, every=every)
    chosen = spread(boundaries, int(audit.job.targets.get("most_boundaries", MOST_BOUNDARIES)))
    expected, attempts, hangs = states_of(control), [], 0
    for boundary in chosen:
        attempt = _attempt(audit, boundary, steps)
        attempts.append(attempt)
        back = attempted(control, attempt, every=every, expected=expected)
        hangs += back.outcome == "hang"
        if hangs >= MOST_HANGS or (audit.part == "twin" and back.outcome not in GOOD):
            break
    audit.judge(survives_every_boundary, control, attempts, every=every, existing=len(boundaries), chosen=len(chosen))


def _attempt(audit: Audit, boundary: Boundary, steps: int) -> Attempt:
    """Kill there, then resume; the twin's fault comes along in the run that saves and dies, not in the one that resumes."""
    at = {"operation": boundary.turn, "after": boundary.step} if boundary.n else {"step": boundary.step}
    kill = Fault("kill", rank=boundary.rank, **at)
    killed = audit.run(world_size=audit.world_size, steps=steps, level="full", faults=(kill,))
    return Attempt(boundary, killed, audit.run(world_size=audit.world_size, steps=steps, level="full", planted=False, resume_from=killed))

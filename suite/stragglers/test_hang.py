"""Every rank gets through; a rank that stops is found in bounded time, named, and taken down with the rest."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.stragglers.hang import gets_through, stall_bound_s

HANG_STEP = 5


@criterion(
    "stragglers.hang",
    claim="Every rank finishes and issues the same collectives in the same order; a rank that stops is named, with the place where it stands.",
    twin=Fault("hang", rank=1, step=HANG_STEP),
    because=rf"rank 1 stopped in step {HANG_STEP}\b",
    threshold="0 ranks that stop, 0 steps whose collectives differ between ranks",
    assumptions=("a run whose ranks show no sign of life for twice the longest silence of a healthy run, and at least 5 s, stands still",),
    limitations=("a hang that needs more steps, a longer epoch or another world size is not provoked",),
    overturned_by="a longer run in which ranks part ways, such as a last batch that only some ranks have",
)
def test_hang(audit: Audit) -> None:
    """All ranks come to the end, in step with each other."""
    steps = max(audit.job.steps, HANG_STEP + 1)
    control = audit.run(world_size=audit.world_size, steps=steps, planted=False)
    if control.crashed:
        audit.judge(gets_through, control, job_folder=audit.job.folder)
        return
    run = audit.run(world_size=audit.world_size, steps=steps, stall_s=stall_bound_s(control))
    audit.judge(gets_through, run, job_folder=audit.job.folder)

"""Criterion on devices: where each rank computes, and what its steps copy between devices."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from suite.efficiency.transfers import stays_on_its_device

STEPS = 6


@criterion(
    "efficiency.transfers",
    claim="Every rank computes on a device of its own, and a step copies nothing between devices but the batch on its way in.",
    twin=Fault("carry_away"),
    because=r"copies parameter .* from \w+ to \w+ in optimizer .*bytes in every step",
    threshold="0 bytes a step, single numbers and the batch before the forward left out",
    min_world=1,
    assumptions=("What is copied to the device before the forward is the batch, unless it is a parameter or a gradient.",),
    limitations=(
        "What happens in fewer than half of the steps (saving, evaluating) is not counted.",
        "Not seen: copies inside a compiled graph, by NCCL or by the job's own kernels, and tensors that are built on the device from Python numbers.",
    ),
    overturned_by="A profile of the same step that shows a copy between devices which is neither the batch nor a single number.",
)
def test_transfers(audit: Audit) -> None:
    """Nothing travels that need not."""
    trace = audit.run(world_size=audit.world_size, level="transfers", steps=min(audit.job.steps, STEPS))
    audit.judge(stays_on_its_device, trace, accelerated=audit.backend == "nccl")

"""Name the rank that the others wait for, or nobody."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.criterion import criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.stragglers.slow_rank import nobody_is_slow

BOUND = 0.10
FEWEST_RUNS, MOST_RUNS = 3, 8


@criterion(
    "stragglers.slow_rank",
    claim="No rank makes the others wait: none enters its collectives later than the rest by a tenth of a step, steadily, now and then, or in turns.",
    twin=Fault("sleep", rank=1, ms=60, where="backward"),
    because=r"rank 1 makes the others wait",
    threshold="median lateness at the collectives <= 10 % of a step (or [targets] rank_lateness), and no rank late beyond luck",
    timed=True,
    assumptions=("all ranks run on one machine, so their clocks are one clock",),
    limitations=(
        "a slowdown that all ranks share is nobody's lateness; efficiency.scaling sees that one",
        "a rank that is late in fewer than a few steps of the run cannot be told from a hiccup of the machine",
    ),
    overturned_by="arrival times of a longer run, or of a machine with other work on it, in which one rank is late beyond the bound",
)
def test_slow_rank(audit: Audit) -> None:
    """Judged by when each rank arrives at the collectives, nobody is late; while the interval straddles the bound, further runs are made."""
    steps = max(audit.job.steps, 20)
    bound, cores = float(audit.job.targets.get("rank_lateness", BOUND)), int(audit.environment.get("cores") or 1)
    traces: list[Trace] = []
    while len(traces) < MOST_RUNS:
        traces.append(audit.run(world_size=audit.world_size, steps=steps, level="timing", timed=True, repeat=len(traces)))
        if len(traces) >= FEWEST_RUNS and nobody_is_slow(traces, bound=bound, cores=cores).accepted is not None:
            break
    audit.judge(nobody_is_slow, traces, bound=bound, cores=cores)

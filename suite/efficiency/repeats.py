"""Timed repeats of the worlds that an audit compares, and where they took place: asked for once, shared by every criterion on speed."""

from __future__ import annotations

from fixtures.audit import Audit
from fixtures.trace import Trace
from suite.efficiency.scaling import Room

REPEATS = 6  # the fewest runs whose range covers a median in 97 % of cases
TIMED_STEPS = 12  # only runs are independent observations, so many short ones tell more than few long ones
SLOWED_STEPS = 8  # a planted delay shows in every step


def timed(audit: Audit, planted: tuple[int, ...], repeats: int = REPEATS) -> list[list[Trace]]:
    """Repeats by world size, run in the order A B B A A B ... so that a drift of the machine falls on all alike.

    planted: the world sizes that the twin's fault concerns; the others are controls.
    """
    sizes = audit.worlds
    found: dict[int, list[Trace]] = {count: [] for count in sizes}
    for repeat in range(repeats):
        for count in sizes if repeat % 2 == 0 else sizes[::-1]:
            steps = steps_of(audit, hit=count in planted and audit.hits(count))
            found[count].append(
                audit.run(world_size=count, level="timing", steps=steps, timed=True, repeat=repeat, planted=count in planted)
            )
    return list(found.values())


def steps_of(audit: Audit, *, hit: bool) -> int:
    """Steps of a timed run; fewer where a planted fault makes each of them long."""
    return min(audit.job.steps, SLOWED_STEPS if hit else TIMED_STEPS)


def room_of(audit: Audit) -> Room:
    places, what = ("gpus", "GPUs") if audit.backend == "nccl" else ("cores", "cores")
    return Room(int(audit.environment.get(places, 0)), what)

"""What is the matter with a run right now: a rank that is gone, that stands still, or that the others wait for.

py-spy and the flight recorder show every stack and every collective and leave the reader to compare ranks; this says one name first, by the
same rules as the criteria stragglers.hang and stragglers.slow_rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fixtures.lateness import Lateness, lateness_of
from fixtures.live import Live
from suite.recovery.ends import hung
from suite.stragglers.hang import FRAME, NANOSECONDS_PER_S, Standing, culprit, next_collective, standings
from suite.stragglers.slow_rank import FEWEST_STEPS, occasionally_late, steadily_late, where_late

LAST_STEPS = 60
SHORTEST_STALL_S = 5.0
OF_PYTHON = re.compile(r"/lib/python3|site-packages|rankproof_probe|<frozen")


@dataclass(frozen=True, slots=True)
class Seen:
    """`ranks` that are named (none where all is well), in which way, and one sentence."""

    ranks: tuple[int, ...]
    how: str
    words: str


def what_is_wrong(live: Live, *, bound: float, stall_s: float | None = None) -> Seen:
    """The first of: a rank is lost, the world stands still, a rank is late, nothing. bound: lateness as a share of a step."""
    lost = [rank for rank, state in live.states.items() if state == "lost"]
    silence_s, limit_s = live.silence_s(), longest_allowed_s(live) if stall_s is None else stall_s
    if hung(live.trace):
        return _still(live, silence_s, limit_s)
    if lost:
        return _lost(live, lost)
    if silence_s > limit_s:
        return _still(live, silence_s, limit_s)
    return _late(live, bound)


def longest_allowed_s(live: Live) -> float:
    """A silence that this run never showed while it moved: twice its longest step, and at least 5 s."""
    longest_ms = live.trace.steps["step_ms"].max() if len(live.trace.steps) else 0.0
    return max(SHORTEST_STALL_S, 2.0 * float(longest_ms) / 1e3)


def _lost(live: Live, lost: list[int]) -> Seen:
    """The rank that went first: the one whose last sign of life is oldest."""
    first = min(lost, key=live.last_sign_ns)
    ago_s = max(0.0, (live.now_ns - live.last_sign_ns(first)) / NANOSECONDS_PER_S)
    place = next((one for one in standings(live.trace, Path("/nowhere")) if one.rank == first), None)
    where = f" in step {place.step}, in {place.phase}" if place else ""
    reasons = [record["reason"] for record in live.trace.records if record["kind"] == "exit" and record["rank"] == first]
    why = f" ({reasons[-1]})" if reasons and reasons[-1] != "end" else ", without a word"
    others = ", ".join(str(rank) for rank in lost if rank != first)
    more = f"; rank {others} ended after it" if others else ""
    return Seen((first,), "lost", f"rank {first} is gone: it ended{where}{why}, {ago_s:.0f} s ago{more}")


def _still(live: Live, silence_s: float, limit_s: float) -> Seen:
    standing = [_with_frames(live, one) for one in standings(live.trace, Path("/nowhere"))]
    guilty = culprit(standing)
    ahead = [one.rank for one in standing if one.rank != guilty.rank and (one.step, one.collective) >= (guilty.step, guilty.collective)]
    waiting = ", ".join(map(str, ahead)) or "nobody"
    at = f" at {guilty.frames[0]}" if guilty.frames else ""
    words = (
        f"the world stands still for {silence_s:.0f} s (at most {limit_s:.0f} s are usual): rank {guilty.rank} stopped in step {guilty.step}{at} "
        f"before {next_collective(live.trace, guilty, standing)}, in which rank {waiting} waits"
    )
    return Seen((guilty.rank,), "still", words)


def _with_frames(live: Live, one: Standing) -> Standing:
    """The job's own frames of its stack, if it was asked for one: whatever is neither Python's, a package's nor the probe's."""
    own = [match for match in FRAME.finditer(live.trace.stack(one.rank)) if not OF_PYTHON.search(match["file"])]
    frames = tuple(f"{Path(match['file']).name}:{match['line']} {match['function']}" for match in own)
    return Standing(one.rank, one.step, one.collective, one.phase, frames)


def _late(live: Live, bound: float) -> Seen:
    whole = lateness_of([live.trace])
    late = Lateness(whole.ranks, whole.late_ms[-LAST_STEPS:], whole.step_ms[-LAST_STEPS:])
    done = int(live.trace.steps["step"].max()) if len(live.trace.steps) else 0
    if len(late.ranks) < 2 or late.steps < FEWEST_STEPS:
        text = f"every rank moves, step {done} is done; {late.steps} steps are too few to say who is late ({FEWEST_STEPS} are needed)"
        return Seen((), "moves", text)
    blame = steadily_late(late, bound) or occasionally_late(late, bound)
    if blame is not None:
        return Seen(blame.ranks, "late", blame.words + where_late([live.trace], blame.ranks[0]))
    medians = np.median(late.late_ms, axis=0)
    latest = int(np.argmax(medians))
    words = (
        f"every rank moves, step {done} is done, {np.median(late.step_ms):.1f} ms a step; nobody is late "
        f"(the latest, rank {late.ranks[latest]}, by {max(0.0, float(medians[latest])):.2f} ms)"
    )
    return Seen((), "moves", words)

"""What the probe costs a step: levels take turns with no probe at all, and one more turn without it says what the same comparison finds where there is nothing.

Overheads are mostly given as one ratio of wall clocks, which on a shared machine is noise of several percent. Here the main figure is the time that
ranks spent inside the probe, by their own clocks, as a share of the step; the ratio of wall clocks stands beside it with its control, so that a reader
sees whether anything that the first figure misses could have been told from noise.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fixtures.trace import load_trace
from fixtures.world import Launcher, Start
from reports.statistics import Interval, median_interval, ratio_interval

RANKS = Path(__file__).resolve().parents[1] / "bench" / "ranks"
LEVELS = {"off": None, "off again": None, "timing": "timing", "default": "default", "full": "full"}
SETTLED = 4
"""Steps at the beginning of a run that are left out: the probe looks at more in the first ones, and so does everything else."""
WORLD_SIZE = 2


@dataclass(frozen=True, slots=True)
class Cost:
    """One level at one size. Ratios are to the same step of the run without the probe that was its neighbour; shares are of a step.

    `inside` is None where there is no probe. `instructions` is None where they could not be counted, and `not_counted` says why.
    """

    level: str
    steps: int
    step_ms: float
    wall: dict[str, float]
    cpu: dict[str, float]
    inside: dict[str, float] | None
    probe_ms: float | None
    first_ms: float | None
    instructions: dict[str, float] | None
    not_counted: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: by step, and where there was a probe its own account of the settled steps."""

    seen: dict[str, list[float | None]]
    not_counted: str
    shares: tuple[float, ...] = ()
    probe_ms: tuple[float, ...] = ()
    first_ms: float | None = None


def measure(launcher: Launcher, folder: Path, million: int, *, pairs: int, steps: int, say: Callable[[str], None]) -> list[Cost]:
    """All levels at one size, `pairs` turns each, forwards and backwards so that a drift falls on all alike. Raises RuntimeError where a run fails."""
    turns: dict[str, list[Turn]] = {name: [] for name in LEVELS}
    _turn(launcher, folder / f"{million}-warm-up", None, 2, million)
    for pair in range(pairs):
        for name in list(LEVELS)[:: 1 if pair % 2 == 0 else -1]:
            turns[name].append(_turn(launcher, folder / f"{million}-{pair}-{name.replace(' ', '-')}", LEVELS[name], steps, million))
            say(f"{million} M parameters, turn {pair + 1} of {pairs}, {name}: {_median_ms(turns[name][-1]):.1f} ms a step")
    return [_cost(name, turns[name], turns["off"]) for name in LEVELS]


def _turn(launcher: Launcher, run_dir: Path, level: str | None, steps: int, million: int) -> Turn:
    environment = {"RANKPROOF_TRACE": str(run_dir), "RANKPROOF_LEVEL": level, "RANKPROOF_GRADIENTS": "0"} if level else {}
    argv = (str(RANKS / "steps.py"), str(steps), str(million))
    ended = launcher.run(
        Start(
            argv=argv,
            folder=RANKS,
            world_size=WORLD_SIZE,
            run_dir=run_dir,
            probe=level is not None,
            environment=environment,
            deadline_s=600.0,
        )
    )
    if ended.message:
        raise RuntimeError(f"the loop that is measured failed: {ended.message}; see {run_dir}")
    said = json.loads((run_dir / "rank0.log").read_text().splitlines()[-1])
    not_counted = said.pop("not_counted")
    if level is None:
        return Turn(said, not_counted)
    trace = load_trace(run_dir)
    if broken := trace.errors():
        raise RuntimeError(f"the probe failed: {broken[0]}; see {run_dir}")
    late = trace.steps.loc[trace.steps["step"] > SETTLED]
    first = trace.steps.loc[trace.steps["step"] <= SETTLED, "probe_ms"]
    return Turn(said, not_counted, tuple(late["probe_ms"] / late["step_ms"]), tuple(late["probe_ms"]), float(first.mean()))


def _cost(name: str, turns: Sequence[Turn], off: Sequence[Turn]) -> Cost:
    inside = [share for turn in turns for share in turn.shares]
    probe_ms = [one for turn in turns for one in turn.probe_ms]
    counted = all(None not in turn.seen["instructions"] for turn in (*turns, *off))
    return Cost(
        level=name, steps=sum(len(_settled(turn, "step_s")) for turn in turns), step_ms=statistics.median(map(_median_ms, turns)),
        wall=_ratio(turns, off, "step_s"), cpu=_ratio(turns, off, "cpu_s"),
        inside=_told(median_interval(inside)) if inside else None, probe_ms=statistics.median(probe_ms) if probe_ms else None,
        first_ms=statistics.mean(turn.first_ms for turn in turns if turn.first_ms is not None) if inside else None,
        instructions=_ratio(turns, off, "instructions") if counted else None, not_counted=turns[0].not_counted,
    )  # fmt: skip


def _settled(turn: Turn, what: str) -> list[float]:
    return [value for value in turn.seen[what][SETTLED:] if value is not None]


def _median_ms(turn: Turn) -> float:
    return 1000.0 * statistics.median(_settled(turn, "step_s"))


def _ratio(turns: Sequence[Turn], off: Sequence[Turn], what: str) -> dict[str, float]:
    """Of pairs of steps: the n-th step of a turn with that of its neighbour without the probe."""
    pairs = [pair for mine, other in zip(turns, off, strict=True) for pair in zip(_settled(other, what), _settled(mine, what), strict=True)]
    return _told(ratio_interval([base for base, _ in pairs], [value for _, value in pairs]))


def _told(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def as_json(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Plain types, for the file beside the page."""
    return [asdict(cost) for cost in costs]

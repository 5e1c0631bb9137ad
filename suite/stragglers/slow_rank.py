"""Judge: no rank makes the others wait; where one does, say which, how late, how steadily and in which phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fixtures.lateness import Lateness, lateness_of
from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import median_interval
from suite.efficiency.busy import given_back
from suite.recovery.ends import how_it_ended

FEWEST_STEPS = 12
OCCASIONAL_COST = 0.05  # of all time: what a rank that is late now and then may cost before it is named
FEWEST_EVENTS = 3
CHANCE = 0.01  # that the late steps fall on one rank by luck
DRAWS = 10_000
TAKING_TURNS = 2.5  # times the bound: noise alone makes someone the last at every step, so this takes more than being last
PHASES = ("data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms")
PHASE_WORDS = {
    "data_wait_ms": "waiting for data",
    "forward_ms": "forward",
    "backward_ms": "backward",
    "optimizer_ms": "the optimizer",
    "other_ms": "code between the phases",
}


@dataclass(frozen=True, slots=True)
class Blame:
    """Who makes the others wait: ranks (several where they take turns), the share of a step that costs, by how much of a step that exceeds what is
    allowed, and a sentence.
    """

    ranks: tuple[int, ...]
    share: float
    excess: float
    words: str


def nobody_is_slow(traces: Sequence[Trace], *, bound: float, cores: int) -> Finding:
    """No rank enters the collectives of a step later than the others by `bound` (a share of the step's time), steadily, now and then, or
    in turns.
    """
    broken = next((trace for trace in traces if trace.crashed), None)
    if broken is not None:
        return Finding(accepted=None, explanation=f"the run did not finish, so it tells nothing about speed: {how_it_ended(broken)}")
    late = lateness_of(traces)
    if late.steps < FEWEST_STEPS or len(late.ranks) < 2:
        return Finding(accepted=None, explanation=_too_little(traces, late))
    if len(late.ranks) > cores and len(late.ranks) % cores:
        text = (
            f"{len(late.ranks)} ranks share {cores} cores unevenly, so some rank is slow whatever the job does: use a multiple of the cores"
        )
        return Finding(accepted=None, explanation=text)
    return _finding(traces, late, bound, crowded=len(late.ranks) > cores)


def _finding(traces: Sequence[Trace], late: Lateness, bound: float, *, crowded: bool) -> Finding:
    step_ms = float(np.median(late.step_ms))
    worst = int(np.argmax(np.median(late.late_ms, axis=0)))
    interval = median_interval(late.late_ms[:, worst] / step_ms)
    details: dict[str, Any] = {
        "lateness": _table(late, bound * step_ms),
        "step_ms": step_ms,
        "spread_ms": float(np.median(late.spread_ms)),
        "crowded": crowded,
    }
    common: dict[str, Any] = {"unit": "of a step", "bound": bound, "samples": late.steps, "details": details}
    blame = steadily_late(late, bound) or occasionally_late(late, bound) or (None if crowded else taking_turns(late, bound))
    if blame is not None:
        where = where_late(traces, blame.ranks[0]) if len(blame.ranks) == 1 else ""
        found = Finding(accepted=False, value=max(blame.share, 0.0), explanation=blame.words + where, **common)
        return given_back(found, traces, blame.excess)
    value = max(interval.estimate, 0.0)
    if interval.high > bound:
        text = f"rank {late.ranks[worst]} may be late by {interval.low:.1%} to {interval.high:.1%} of a step (bound {bound:.0%}); {late.steps} steps do not decide it"
        undecided = Finding(accepted=None, value=value, explanation=f"undecided: {text}", interval=(interval.low, interval.high), **common)
        return given_back(undecided, traces, 0.0)
    text = (
        f"no rank is named: the latest, rank {late.ranks[worst]}, enters its collectives {value * step_ms:.2f} ms after the others ({value:.1%} of a "
        f"{step_ms:.1f} ms step, bound {bound:.0%}) at the median of {late.steps} steps"
    )
    if crowded:
        text += f"; {len(late.ranks)} ranks share fewer cores, so ranks that take turns in being late could not be told from noise"
    power = f"would have named a rank that is late by more than {bound * step_ms:.1f} ms in most steps"
    accepted = Finding(accepted=True, value=value, explanation=text, interval=(interval.low, interval.high), power=power, **common)
    return given_back(accepted, traces, 1.0 - interval.high / bound)


def steadily_late(late: Lateness, bound: float) -> Blame | None:
    """The rank whose median lateness exceeds the bound with its whole 95 % interval."""
    step_ms = float(np.median(late.step_ms))
    medians = np.median(late.late_ms, axis=0)
    column = int(np.argmax(medians))
    least_ms = median_interval(late.late_ms[:, column]).low
    if least_ms <= bound * step_ms:
        return None
    share = float(np.mean(late.late_ms[:, column] > bound * step_ms))
    words = (
        f"rank {late.ranks[column]} makes the others wait: it enters the collectives {medians[column]:.1f} ms after them at the median "
        f"({medians[column] / step_ms:.0%} of a {step_ms:.1f} ms step), and is late in {share:.0%} of {late.steps} steps"
    )
    return Blame((late.ranks[column],), float(medians[column] / step_ms), least_ms / step_ms - bound, words)


def occasionally_late(late: Lateness, bound: float) -> Blame | None:
    """The rank on which far more of the very late steps fall than luck would put there, and that cost more than a twentieth of all time."""
    step_ms = float(np.median(late.step_ms))
    limit = max(bound * step_ms, 4.0 * float(np.median(late.spread_ms)))
    last, delay_ms = late.late_ms.argmax(axis=1), late.late_ms.max(axis=1)
    owners, delays = last[delay_ms > limit], delay_ms[delay_ms > limit]
    cost = np.bincount(owners, weights=delays, minlength=len(late.ranks)) / late.step_ms.sum()
    column = int(np.argmax(cost))
    events = int((owners == column).sum())
    if (
        events < FEWEST_EVENTS
        or cost[column] < OCCASIONAL_COST
        or _by_luck(delays, float(cost[column] * late.step_ms.sum()), len(late.ranks)) > CHANCE
    ):
        return None
    words = (
        f"rank {late.ranks[column]} makes the others wait now and then: in {events} of {late.steps} steps (about one in {late.steps / events:.0f}) it is "
        f"{np.median(delays[owners == column]):.1f} ms late, {cost[column]:.0%} of all time; the other ranks are in {len(owners) - events} steps"
    )
    return Blame((late.ranks[column],), float(cost[column]), float(cost[column]) - OCCASIONAL_COST, words)


def taking_turns(late: Lateness, bound: float) -> Blame | None:
    """Ranks that are late in turns: somebody is at nearly every step, by well over the bound, and no single one is to blame.

    A noisy machine makes arrivals far apart too, but not always: in nine steps of ten the last one has to be late by more than the bound.
    """
    step_ms = float(np.median(late.step_ms))
    usual, least = median_interval(late.spread_ms).low, float(np.quantile(late.spread_ms, 0.1))
    if usual <= TAKING_TURNS * bound * step_ms or least <= bound * step_ms:
        return None
    last = np.bincount(late.late_ms.argmax(axis=1), minlength=len(late.ranks)) / late.steps
    turns = [column for column in np.argsort(-last) if last[column] >= 0.5 / len(late.ranks)]
    named = " and ".join(f"rank {late.ranks[column]} ({last[column]:.0%} of the steps)" for column in turns)
    median = float(np.median(late.spread_ms))
    words = f"ranks take turns in being late: {named}; the last enters {median:.1f} ms after the first at the median ({median / step_ms:.0%} of a step)"
    return Blame(tuple(late.ranks[column] for column in turns), median / step_ms, usual / step_ms - TAKING_TURNS * bound, words)


def _by_luck(delays_ms: NDArray[np.float64], total_ms: float, ranks: int) -> float:
    """How often some rank collects `total_ms` or more when each delay falls on any rank alike (a permutation test: one huge delay proves
    nothing).
    """
    draw = np.random.default_rng(0)
    owners = draw.integers(0, ranks, (DRAWS, len(delays_ms)))
    most = np.max([(delays_ms * (owners == rank)).sum(axis=1) for rank in range(ranks)], axis=0)
    return float(np.mean(most >= total_ms * (1 - 1e-9)))


def where_late(traces: Sequence[Trace], rank: int) -> str:
    """The phase in which this rank spends more than the others, waiting for communication left out; "" where none stands out."""
    steps = [trace.steps[trace.steps["step"] > 2] for trace in traces]
    own = _phase_means([frame[frame["rank"] == rank] for frame in steps])
    others = _phase_means([frame[frame["rank"] != rank] for frame in steps])
    excess = {name: own[name] - others[name] for name in PHASES if np.isfinite(own[name]) and np.isfinite(others[name])}
    if not excess:
        return ""
    phase = max(excess, key=lambda name: excess[name])
    return f"; it spends {excess[phase]:.1f} ms a step more than they do in {PHASE_WORDS[phase]}" if excess[phase] > 0 else ""


def _phase_means(frames: Sequence[Any]) -> dict[str, float]:
    rows = {name: np.concatenate([frame[name].to_numpy(dtype=float) for frame in frames]) for name in (*PHASES, "exposed_ms")}
    exposed = np.nan_to_num(rows["exposed_ms"])
    rows["backward_ms"] = rows["backward_ms"] - exposed
    return {name: float(np.mean(rows[name])) if len(rows[name]) else float("nan") for name in PHASES}


def _table(late: Lateness, limit_ms: float) -> list[dict[str, Any]]:
    medians, shares = np.median(late.late_ms, axis=0), (late.late_ms > limit_ms).mean(axis=0)
    return [{"rank": rank, "median_ms": float(medians[at]), "late_share": float(shares[at])} for at, rank in enumerate(late.ranks)]


def _too_little(traces: Sequence[Trace], late: Lateness) -> str:
    if len(late.ranks) < 2:
        return "one rank waits for nobody: use two or more"
    reason = next((trace.not_seen()[signal] for trace in traces for signal in trace.not_seen() if signal == "collectives"), "")
    why = (
        reason
        or f"only {late.steps} steps after the warm-up have a collective that every rank entered, {FEWEST_STEPS} are needed: raise [job] steps"
    )
    return f"arrival times at collectives are too few: {why}"

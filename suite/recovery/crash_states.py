"""Judge: whatever a crash in a save leaves behind, the job comes back from the newest complete checkpoint or from the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.crash.python_level import HOW
from fixtures.crash.states import State, States
from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.alignment import States as Expected
from suite.recovery.crash_window import AGAIN, RECOVERING, REMOVING, Window
from suite.recovery.ends import how_it_ended
from suite.recovery.returns import GOOD, Return, come_back

SEVERITY = (
    "silent_divergence", "torn", "wrong_checkpoint", "fresh_start", "exit_0_without_resuming", "hang", "loud_failure", "not_seen",
    "resumed_previous", "resumed_newest", "not_tried",
)  # fmt: skip
"""Worst first: what nobody notices is worse than what stops."""
CASES = (
    ("rotation racing a crash", REMOVING, False),
    ("crash during recovery", RECOVERING, True),
    ("second crash", "", True),
    ("same step saved twice", AGAIN, True),
)
"""Name, phase of the window ("" for any), and whether it is one of a recorded restart."""
KINDS = ("process death", "power loss", "two runs")
TO_ALLOW = "allow ptrace (a container needs CAP_SYS_PTRACE, or a seccomp profile that lets it through) for a verdict"


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one state: by a run of its own, or (`alike`) by the run of a state that the resume cannot tell from it."""

    state: State
    back: Return
    alike: bool


@dataclass(frozen=True, slots=True)
class Explored:
    """The states of one save of one world. `seconds` is the time of the resumes; `stopped` says why not all were tried, "" if all were."""

    world_size: int
    window: Window
    states: States
    tried: tuple[Tried, ...]
    seconds: float
    stopped: str


def outcome_of(control: Trace, resumed: Trace, window: Window, expected: Expected, *, advertised: bool) -> Return:
    """How the job came back on one state; `advertised` says that it came back from a checkpoint on an earlier one."""
    back = come_back(control, resumed, newest=window.step, expected=expected)
    if back.outcome == "resumed_previous" and back.step is not None and back.step < window.oldest:
        words = f"wrong checkpoint: it came back at step {back.step}, older than the one before the save of step {window.step}"
        return Return("wrong_checkpoint", back.step, words, back.parts, back.compared, back.unseen)
    if back.outcome == "fresh_start" and window.whole and not advertised:
        return Return("resumed_previous", 0, "it began anew, as no checkpoint was complete yet", back.parts, back.compared, back.unseen)
    return back


def survives_every_crash_state(control: Trace, explored: Sequence[Explored], *, trouble: str = "") -> Finding:
    """No state that a crash may leave makes the job come back as anything but its newest complete or its previous checkpoint."""
    if control.crashed or control.steps.empty:
        return Finding(accepted=None, explanation=f"the uninterrupted control did not finish: {how_it_ended(control)}")
    if trouble:
        return Finding(accepted=None, explanation=trouble)
    details = _details(explored)
    every = [one for world in explored for one in world.tried]
    bad = sorted((one for one in every if one.back.outcome not in (*GOOD, "not_seen")), key=_is_power_loss)
    numbers = _numbers(explored)
    if bad:
        return Finding(
            accepted=False, value=len(bad), unit="crash states", bound=0, samples=len(every), details=details,
            explanation=f"{bad[0].state.words}: {bad[0].back.words} ({_kinds(bad)}; {numbers}{_half_seen(explored)})",
        )  # fmt: skip
    unsure = [one for one in every if one.back.outcome == "not_seen"]
    stopped = next((world.stopped for world in explored if world.stopped and not world.stopped.startswith("bound")), "")
    if unsure or not every or stopped:
        why = f"{unsure[0].state.words}: {unsure[0].back.words}" if unsure else stopped or "the save leaves no state to try"
        return Finding(accepted=None, explanation=f"{why} ({numbers})", samples=len(every), details=details)
    if half := _half_seen(explored):
        text = f"no state that could be made is come back from wrongly ({numbers}){half}; {TO_ALLOW}"
        return Finding(accepted=None, explanation=text, samples=len(every), details=details)
    counts = Counter(one.back.outcome for one in every)
    text = (
        f"{numbers}: {counts['resumed_newest']} came back from the newest checkpoint, {counts['resumed_previous']} from the one before, "
        "all equal to the uninterrupted run"
    )
    return Finding(accepted=True, value=0, unit="crash states", bound=0, explanation=text, samples=len(every), details=details)


def _half_seen(explored: Sequence[Explored]) -> str:
    """What a recording by the probe alone leaves open, "" for one of system calls."""
    half = any(world.window.log.how == HOW for world in explored)
    return (
        "; recorded at Python level, as ptrace is forbidden here: writers in C++, child processes and mmap are not seen; power loss is not judged"
        if half
        else ""
    )


def _is_power_loss(one: Tried) -> bool:
    """Process death comes first: it needs no model of a disk. Within a kind the first state has the fewest operations."""
    return one.state.kind != "process death"


def _kinds(bad: Sequence[Tried]) -> str:
    counts = Counter((one.state.kind, one.back.outcome.replace("_", " ")) for one in bad)
    return f"{len(bad)} bad states: " + ", ".join(
        f"{count} {outcome} by {kind}" for (kind, outcome), count in sorted(counts.items(), key=_deaths_first)
    )


def _deaths_first(counted: tuple[tuple[str, str], int]) -> tuple[bool, str]:
    (kind, outcome), _ = counted
    return kind != "process death", outcome


def _numbers(explored: Sequence[Explored]) -> str:
    said = []
    for world in explored:
        existing, tried = sum(world.states.existing.values()), sum(not one.alike for one in world.tried)
        rest = f", {world.stopped}" if world.stopped else ""
        rest += "".join(f", {words}" for words in dict.fromkeys(world.states.cut_off))
        said.append(
            f"world size {world.world_size}, {world.window.what}: {existing} ways to crash, {len(world.states.states)} different "
            f"folders, {len(world.tried)} judged by {tried} resumes{rest}"
        )
    return "; ".join(said)


def _details(explored: Sequence[Explored]) -> dict[str, Any]:
    rows = [row for world in explored for row in _map(world)]
    table = [
        [world.world_size, world.window.what, kind, world.states.existing[kind], sum(one.kind == kind for one in world.states.states),
         sum(one.state.kind == kind for one in world.tried), sum(one.state.kind == kind and not one.alike for one in world.tried)]
        for world in explored for kind in KINDS if kind in world.states.existing
    ]  # fmt: skip
    counts = Counter(one.back.outcome for world in explored for one in world.tried)
    seconds, judged = sum(world.seconds for world in explored), sum(len(world.tried) for world in explored)
    return {
        "crash_map": rows,
        "outcomes": dict(sorted(counts.items())),
        "table": {
            "columns": ["world size", "what was cut", "crash", "ways to crash", "different folders", "judged", "resumes run"],
            "rows": table,
        },
        "states_per_s": round(judged / seconds, 2) if seconds else None,
        "resumes_per_s": round(sum(not one.alike for world in explored for one in world.tried) / seconds, 2) if seconds else None,
        "bad": [
            _bad_row(world, one) for world in explored for one in sorted(world.tried, key=_is_power_loss) if one.back.outcome not in GOOD
        ][:40],
        "bad_by_crash": dict(Counter(one.state.kind for world in explored for one in world.tried if one.back.outcome not in GOOD)),
        "exercised": _exercised(explored),
        "seen_by": explored[0].window.log.how if explored else "",
        "not_seen_by_it": list(explored[0].window.log.blind) if explored else [],
    }


def _map(world: Explored) -> list[dict[str, Any]]:
    """One row an operation: the worst that came of a crash at it, by kind of crash."""
    worst: dict[tuple[int, str], str] = {}
    for one in world.tried:
        key, outcome = (one.state.blame.n, one.state.kind), one.back.outcome
        worst[key] = min(worst.get(key, "not_tried"), outcome, key=SEVERITY.index)
    return [
        {
            "world_size": world.world_size, "what": _heading(world.window, one.n), "rank": one.rank, "n": one.n, "op": one.op, "path": _short(one.path, one.to), "crash": kind,
            "outcome": worst[(one.n, kind)],
        }
        for kind in KINDS for one in world.window.operations if (one.n, kind) in worst
    ]  # fmt: skip


def _heading(window: Window, n: int) -> str:
    """What is cut there: the save, or what is more at stake in it."""
    phase = window.phases.get(n, "")
    return f"{window.what}: {phase}" if phase else window.what


def _exercised(explored: Sequence[Explored]) -> dict[str, str]:
    """Of each hard case, how many operations were cut and how many folders that gave; or why there was none."""
    said = {}
    for name, phase, restarted in CASES:
        worlds = [
            world
            for world in explored
            if world.window.phases and restarted == (RECOVERING in world.window.phases.values() or AGAIN in world.window.phases.values())
        ]
        inside = {
            (world.window.what, world.world_size, n) for world in worlds for n, other in world.window.phases.items() if phase in ("", other)
        }
        states = sum(phase in ("", world.window.phases.get(one.state.blame.n)) for world in worlds for one in world.tried)
        ended = next((world.window.restart for world in worlds if world.window.restart), "")
        none = (
            f"no file is changed there{f', and the restart {ended}' if ended else ''}" if worlds or not restarted else "no restart was cut"
        )
        said[name] = f"{len(inside)} operations, {states} folders" if inside else none
    return said


def _short(path: str, to: str) -> str:
    def last(name: str) -> str:
        return "/".join(name.split("/")[-2:])

    return f"{last(path)} -> {last(to)}" if to else last(path)


def _bad_row(world: Explored, one: Tried) -> Mapping[str, Any]:
    return {
        "world_size": world.world_size, "crash": one.state.kind, "rank": one.state.blame.rank, "operation": one.state.blame.words,
        "state": one.state.words, "outcome": one.back.outcome, "step": one.back.step, "words": one.back.words,
    }  # fmt: skip

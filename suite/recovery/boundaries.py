"""Judge: killed before any one file operation of a save, on any rank, the job comes back from the newest or the previous checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pandas as pd

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.alignment import States, states_of
from suite.recovery.ends import how_it_ended
from suite.recovery.returns import GOOD, Return, come_back


@dataclass(frozen=True, slots=True)
class Boundary:
    """A point inside a save at which a rank can die: before its file operation `n` (1-based, counted per rank; the `turn`-th after step
    `step`), or, where n is None, in step `step`.
    """

    rank: int
    n: int | None
    op: str
    path: str
    step: int
    turn: int | None = None

    @property
    def words(self) -> str:
        if self.n is None:
            return f"rank {self.rank} killed in step {self.step}, while others may still save"
        return f"rank {self.rank} killed before file operation {self.n} ({self.op} {PurePath(self.path).name})"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One boundary tried: the run that died there and the run that was resumed from what it left."""

    boundary: Boundary
    killed: Trace
    resumed: Trace


def boundaries_of(control: Trace, *, every: int) -> tuple[Boundary, ...]:
    """All boundaries of the second save of the control, in order of rank and operation; a rank that writes nothing then is killed in the
    next step.
    """
    files, second = control.files, 2 * every
    during = files[files["step"].isin([second, second + 1])] if not files.empty else files
    if len(during) and (during["step"] == second).any() and (during["step"] == second + 1).any():
        during = during[during["step"] == during["step"].mode().iloc[0]]
    found = [
        Boundary(int(row["rank"]), int(row["n"]), str(row["op"]), _within(row["path"]), int(row["step"]), turn_of(files, row))
        for row in during.sort_values(["rank", "n"]).to_dict("records")
    ]
    writing = {boundary.rank for boundary in found}
    idle = [Boundary(rank, None, "step", "", second + 1) for rank in control.ranks if rank not in writing]
    return (*found, *idle) if found else ()


def turn_of(files: pd.DataFrame, row: Mapping[Any, Any]) -> int:
    """The place of a file operation among those of its rank after the same step (from 1)."""
    beside = files[(files["rank"] == row["rank"]) & (files["step"] == row["step"]) & (files["n"] <= row["n"])]
    return len(beside)


def spread(boundaries: Sequence[Boundary], most: int) -> tuple[Boundary, ...]:
    """At most `most` boundaries, spread evenly over the operations of every rank: its first and its last are among them."""
    ranks = sorted({boundary.rank for boundary in boundaries})
    chosen: list[Boundary] = []
    for place, rank in enumerate(ranks):
        mine = [boundary for boundary in boundaries if boundary.rank == rank]
        share = min(len(mine), max(2, (most - len(chosen)) // (len(ranks) - place)))
        chosen += [mine[round(index * (len(mine) - 1) / max(1, share - 1))] for index in range(share)]
    return tuple(dict.fromkeys(chosen))


def attempted(control: Trace, attempt: Attempt, *, every: int, expected: States | None = None) -> Return:
    """How the job came back from one boundary."""
    return come_back(control, attempt.resumed, newest=2 * every, expected=expected)


def survives_every_boundary(
    control: Trace, attempts: Sequence[Attempt], *, every: int, existing: int, chosen: int | None = None
) -> Finding:
    """No boundary of a save leaves the job with anything but its newest complete or its previous checkpoint.

    `existing` boundaries there are, `chosen` of them were to be tried (all, if not given).
    """
    if control.crashed or control.steps.empty:
        return Finding(accepted=None, explanation=f"the uninterrupted control did not finish: {how_it_ended(control)}")
    if not existing:
        return Finding(accepted=None, explanation=_nothing_seen(control, every))
    expected = states_of(control)
    rows = [_row(control, attempt, every, expected) for attempt in attempts]
    bad = [row for row in rows if row["died"] and row["outcome"] not in (*GOOD, "not_seen")]
    unsure = [row for row in rows if not row["died"] or row["outcome"] == "not_seen"]
    details: dict[str, Any] = {
        "boundaries": [{key: row[key] for key in ("rank", "n", "op", "path", "outcome", "resumed_step", "lost_steps")} for row in rows],
        "existing": existing, "tried": len(rows), "outcomes": dict(sorted(Counter(row["outcome"] for row in rows).items())),
    }  # fmt: skip
    if bad:
        worst = bad[0]
        text = f"{worst['words']}: {worst['return']} ({len(bad)} of {len(rows)} boundaries tried end badly, of {existing} that exist{_spread(bad)})"
        return Finding(accepted=False, value=len(bad), unit="boundaries", bound=0, explanation=text, samples=len(rows), details=details)
    if unsure or len(rows) < (existing if chosen is None else chosen):
        why = (
            f"{unsure[0]['words']}: {unsure[0]['return']}"
            if unsure
            else f"only {len(rows)} of {existing if chosen is None else chosen} boundaries were tried"
        )
        return Finding(accepted=None, explanation=why, samples=len(rows), details=details)
    counts = details["outcomes"]
    lost = max((row["lost_steps"] or 0 for row in rows), default=0)
    text = (
        f"{len(rows)} of {existing} boundaries of one save tried with a real SIGKILL: {counts.get('resumed_newest', 0)} came back from the newest checkpoint, "
        f"{counts.get('resumed_previous', 0)} from the one before, all equal to the uninterrupted run; at most {lost} steps lost"
    )
    return Finding(accepted=True, value=0, unit="boundaries", bound=0, explanation=text, samples=len(rows), details=details)


def _row(control: Trace, attempt: Attempt, every: int, expected: States) -> dict[str, Any]:
    boundary, back = attempt.boundary, attempted(control, attempt, every=every, expected=expected)
    died = attempt.killed.fired("kill")
    done = int(attempt.killed.steps["step"].max()) if not attempt.killed.steps.empty else 0
    lost = max(0, done - back.step) if back.step is not None else None
    said = (
        back.words
        if died
        else f"the kill never happened ({how_it_ended(attempt.killed)}); the file operations of a save are not the same in every run"
    )
    return {
        "rank": boundary.rank, "n": boundary.n, "op": boundary.op, "path": boundary.path, "outcome": back.outcome, "resumed_step": back.step,
        "lost_steps": lost, "died": died, "words": boundary.words, "return": said,
    }  # fmt: skip


def _spread(bad: Sequence[dict[str, Any]]) -> str:
    kinds = Counter(row["outcome"] for row in bad)
    return "; " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(kinds.items()))


def _nothing_seen(control: Trace, every: int) -> str:
    reason = control.not_seen().get("file") or control.not_seen().get("files")
    if reason:
        return f"the file operations of a save were not seen: {reason}"
    seen = sorted({int(step) for step in control.files["step"]})
    where = f"at steps {', '.join(map(str, seen[:8]))}" if seen else "at no step at all"
    return f"no save was seen at step {2 * every}: file operations below [checkpoint] directory happened {where}; check every and directory in job.toml"


def _within(path: object) -> str:
    return str(PurePath(*PurePath(str(path)).parts[-2:]))

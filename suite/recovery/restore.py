"""Judge: what a restore brings back is what was saved, part by part, looked at before training can spread a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.recovery.alignment import NOT_IN_EVERY_JOB, WORDS, States, draws_at_most_steps, explain, states_of
from suite.recovery.alignment import compare_from as compare
from suite.recovery.ends import how_it_ended
from suite.recovery.returns import come_back

FIRST_STEPS = 2  # the first shows the data position, RNG and rate; the rate of the second shows the scheduler's own count
FIRST_STEP_PARTS = ("samples", "lr", "scales", "rng", "losses", "grad_digest", "optimizer_digest", "buffer_digest", "copy_digest")


@dataclass(frozen=True, slots=True)
class Restored:
    """One checkpoint: the step it was saved at, the run that saved it and was killed right after, and the run that restored it."""

    saved_step: int
    killed: Trace
    resumed: Trace


def restores(control: Trace, checkpoints: Sequence[Restored], *, every: int) -> Finding:
    """Each restore holds the control's state at the saved step: parameters and optimizer before the first step, the rest as its first
    steps show it.
    """
    if control.crashed or control.steps.empty:
        return Finding(accepted=None, explanation=f"the uninterrupted control did not finish: {how_it_ended(control)}")
    wanted = states_of(control)
    rows = [_row(control, wanted, one, every) for one in checkpoints]
    details: dict[str, Any] = {"table": {"columns": ["saved at step", "came back at", "verdict"], "rows": [row[:3] for row in rows]}}
    bad = [row for row in rows if row[3] is False]
    if bad:
        text = f"checkpoint of step {bad[0][0]}: {bad[0][2]} ({len(bad)} of {len(rows)} restores wrong)"
        return Finding(accepted=False, value=len(bad), unit="restores that differ", bound=0, explanation=text, details=details)
    unsure = [row for row in rows if row[3] is None]
    if unsure or not rows:
        return Finding(
            accepted=None,
            explanation=f"checkpoint of step {unsure[0][0]}: {unsure[0][2]}" if unsure else "no checkpoint was restored",
            details=details,
        )
    saved = ", ".join(str(row[0]) for row in rows)
    text = f"the checkpoints of steps {saved} each brought back what was saved: {_parts_compared(wanted, checkpoints)}"
    return Finding(accepted=True, value=0, unit="restores that differ", bound=0, explanation=text, samples=len(rows), details=details)


def idle_part(control: Trace, resumed: Trace, part: str) -> str:
    """Why leaving out `part` cannot matter on this job, "" where it can: the job has none, or makes no use of it."""
    if part == "rng" and not any(draws_at_most_steps(states) for states in states_of(control).values()):
        return "the job draws no random numbers in its steps, so its RNG could not matter"
    reason = resumed.not_seen().get(f"fault forget {part}", "")
    return reason if not resumed.fired("forget") else ""


def _row(control: Trace, wanted: States, one: Restored, every: int) -> tuple[int, int | None, str, bool | None]:
    """Saved step, step it came back at, verdict in words, and whether it is right (None: cannot be told)."""
    if not one.killed.fired("kill"):
        return one.saved_step, None, f"the kill never happened: {how_it_ended(one.killed)}", None
    back = come_back(control, one.resumed, newest=one.saved_step, expected=wanted)
    if back.outcome == "not_seen":
        return one.saved_step, None, back.words, None
    if back.step is None:
        return one.saved_step, None, back.words, False
    done = int(one.killed.steps["step"].max()) if not one.killed.steps.empty else 0
    if not done - every <= back.step:
        return one.saved_step, back.step, f"{back.words}; {done} steps were done and a checkpoint is due every {every}", False
    wrong = _wrong_at_once(wanted, one.resumed, back.step) or (back.words if back.parts == ("steps",) else "")
    return one.saved_step, back.step, wrong or "equal", not wrong


def _wrong_at_once(wanted: States, resumed: Trace, step: int) -> str:
    """What differs before or in the first two steps after the restore, in words; "" where nothing does."""
    seen = states_of(resumed)
    for rank in sorted(set(wanted) & set(seen)):
        saved, held = wanted[rank][step].get("optimizer_digest"), seen[rank][0].get("optimizer_digest")
        if step and saved is not None and held is not None and saved != held:
            return f"optimizer state restored on rank {rank} is not the saved one"
    found = compare(wanted, {rank: {at: state for at, state in states.items() if at <= FIRST_STEPS} for rank, states in seen.items()}, step)
    return f"first difference in {explain(found.difference, wanted)}" if found.difference else ""


def _parts_compared(wanted: States, checkpoints: Sequence[Restored]) -> str:
    last = checkpoints[-1]
    compared = compare(wanted, states_of(last.resumed), last.saved_step)
    unseen = set(compared.unseen)
    unseen |= {part for part in NOT_IN_EVERY_JOB if all(state.get(part) is None for states in wanted.values() for state in states.values())}
    parts = [
        "parameters",
        *(WORDS[part] if part != "samples" else "data position (next samples)" for part in FIRST_STEP_PARTS if part not in unseen),
        "step counter",
    ]
    draws = any(draws_at_most_steps(states) for states in wanted.values())
    rounded = f" ({compared.rounded.words(len(wanted))})" if compared.rounded else ""
    return ", ".join(parts) + rounded + ("" if draws else "; the job draws no random numbers in its steps, so its RNG could not matter")

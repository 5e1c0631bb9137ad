"""Judges of the save itself: that it changes nothing in what is trained, that one in the background is whole, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import median_interval
from suite.recovery.cases import cannot_compare

TRAINING = ("data", "forward", "backward", "optimizer", "collective")
PARTS = {"param_digest": "parameters", "optimizer_digest": "optimizer state", "buffer_digest": "buffers", "rng": "RNG"}


def changes_nothing(control: Trace, without: Trace | None) -> Finding:
    """The state after each save is the state before it; and, where the job can run without saving, that run is bit for bit the same.

    RNG counts where it stands still between steps that are followed by no save: a job that augments there draws anyway.
    """
    if reason := cannot_compare(control):
        return Finding(None, explanation=reason)
    saved = _saved(control)
    around = [
        row for row in control.steps.to_dict("records") if isinstance(row["begin"], Mapping) and row["step"] - 1 in saved[row["rank"]]
    ]
    if not around:
        return Finding(
            None, explanation="no save was seen between two steps of the run: check [checkpoint] every and directory in job.toml"
        )
    before: dict[tuple[int, int], Mapping[Any, Any]] = {(row["rank"], row["step"]): row for row in control.steps.to_dict("records")}
    draws = _draws_between_steps(control, before, saved)
    compared = [part for part in PARTS if part != "rng" or not draws]
    for row in sorted(around, key=lambda one: (one["step"], one["rank"])):
        state = row["begin"].get("before") or before.get((row["rank"], row["step"] - 1), {})
        changed = [PARTS[part] for part in compared if state.get(part) is not None and row["begin"].get(part) not in (None, state[part])]
        if changed:
            text = f"the save after step {row['step'] - 1} changed {' and '.join(changed)} on rank {row['rank']}"
            return Finding(False, 1, "saves that change what is trained", 0, explanation=text, samples=len(around))
    if without is not None and (said := _differs(control, without)):
        return Finding(False, 1, "saves that change what is trained", 0, explanation=said, samples=len(around))
    parts = ", ".join(PARTS[part] for part in compared) + (
        " (the job draws random numbers between steps anyway, so RNG is not compared)" if draws else ""
    )
    text = f"{len(around)} saves, looked at before and after on each rank, left everything as it was: {parts}"
    text += (
        "; the run that does not save is bit for bit the same"
        if without is not None
        else "; [checkpoint] without_saving is not declared, so no run without saves was compared"
    )
    return Finding(True, 0, "saves that change what is trained", 0, explanation=text, samples=len(around))


def background_writers(control: Trace) -> list[str]:
    """The threads that wrote files while the main one was training on; empty where every save ends before the next step begins."""
    files = control.files
    if files.empty:
        return []
    meanwhile = files[files["thread"].notna() & files["during"].isin(TRAINING)]
    return sorted({str(name) for name in meanwhile["thread"]})


def cut_short(control: Trace, killed: Trace, *, every: int) -> bool:
    """Whether the killed run was in the middle of its first save: some rank had not come to all file operations that the control made for it."""
    first = control.files[control.files["step"] < 2 * every].groupby("rank").size()
    done = killed.files.groupby("rank").size()
    return any(int(done.get(rank, 0)) < int(count) for rank, count in first.items())


def save_share(traces: Sequence[Trace], *, every: int, planned: int, bound: float, mean_interruption_h: float, assumed: bool) -> Finding:
    """Share of the time that training stands still for saving, one save in `planned` steps, and the cadence that the measured cost calls for.

    The runs saved every `every` steps, so that they could be short. Young (CACM 1974) and Daly (FGCS 2006): with a save of d seconds and an interruption every M seconds on average, work between saves of
    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d seconds loses least.
    """
    shares, costs, steps = [], [], []
    for trace in traces:
        found = _costs_s(trace)
        if found:
            cost, step = found
            steps.append(step)
            costs += cost
            shares += [one / (one + planned * step) for one in cost]
    if not shares:
        return Finding(
            None,
            explanation="no save was seen in a timed run, so its cost is not known: check [checkpoint] every and directory in job.toml",
        )
    middle = median_interval(shares) if len(shares) > 2 else None
    value = float(np.median(shares))
    low, high = (middle.low, middle.high) if middle else (value, value)
    cost_s, step_s = float(np.median(costs)), float(np.median(steps))
    best = optimal_interval_s(cost_s, mean_interruption_h * 3600)
    said = "" if planned == every else f" as planned (here every {every})"
    text = (
        f"a save holds training up for {1e3 * cost_s:.3g} ms (median of {len(costs)}), {value:.1%} of the time with one every {planned:,} steps of {1e3 * step_s:.3g} ms{said}; "
        f"with an interruption every {mean_interruption_h:g} h ({'assumed' if assumed else 'declared'}) Young and Daly call for one every {max(1, round(best / step_s)):,} steps ({best:.3g} s)"
    )
    accepted = None if low <= bound < high else value <= bound
    if accepted is None:
        text += f"; undecided: the interval {low:.1%} to {high:.1%} holds the bound {bound:.0%}"
    details = {
        "save_s": cost_s,
        "step_s": step_s,
        "planned_every_steps": planned,
        "optimal_interval_s": best,
        "mean_interruption_h": mean_interruption_h,
    }
    return Finding(accepted, value, "of the time", bound, "at_most", text, interval=(low, high), samples=len(shares), details=details)


def optimal_interval_s(save_s: float, mean_interruption_s: float) -> float:
    """Seconds of work between saves that lose least (Daly 2006, equation 37); as long as the mean time to an interruption where a save is that long."""
    if save_s >= 2 * mean_interruption_s:
        return mean_interruption_s
    ratio = save_s / (2 * mean_interruption_s)
    return max(save_s, math.sqrt(2 * save_s * mean_interruption_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s)


def sleep_to_exceed(traces: Sequence[Trace], *, every: int, bound: float) -> float:
    """Milliseconds that a save must take longer to lie certainly above the bound: one and a half times what would reach it."""
    steps = [found[1] for trace in traces if (found := _costs_s(trace))]
    share = min(bound, 0.9)
    return math.ceil(1.5e3 * every * float(np.median(steps)) * share / (1 - share)) if steps else 1000.0


def _costs_s(trace: Trace) -> tuple[list[float], float] | None:
    """What each save added to the step that follows it, and the median of the other steps, in seconds; None where either is missing."""
    if trace.steps.empty or trace.files.empty:
        return None
    after = {int(step) + 1 for step in trace.files["step"]}
    took = trace.steps.groupby("step")["step_ms"].max().drop(1, errors="ignore")
    plain = [ms for step, ms in took.items() if step not in after]
    saved = [ms for step, ms in took.items() if step in after]
    if not plain or not saved:
        return None
    usual = float(np.median(plain))
    return [max(0.0, ms - usual) / 1e3 for ms in saved], usual / 1e3


def _saved(trace: Trace) -> dict[int, set[int]]:
    """By rank, the steps that a save followed; a rank that writes nothing waits for those that do, so every rank counts."""
    steps = {int(step) for step in trace.files["step"]} if not trace.files.empty else set()
    return dict.fromkeys(trace.ranks, steps)


def _draws_between_steps(control: Trace, before: Mapping[tuple[int, int], Mapping[Any, Any]], saved: Mapping[int, set[int]]) -> bool:
    for (rank, step), row in before.items():
        earlier, begin = before.get((rank, step - 1)), row["begin"]
        if earlier and isinstance(begin, Mapping) and step - 1 not in saved[rank] and begin.get("rng") != earlier.get("rng"):
            return True
    return False


def _differs(control: Trace, without: Trace) -> str:
    if without.crashed or without.steps.empty or not without.files.empty:
        return ""
    ours, theirs = (trace.steps.set_index(["rank", "step"])["param_digest"] for trace in (control, without))
    for key in sorted(set(ours.index) & set(theirs.index)):
        if ours[key] != theirs[key]:
            return f"without saving the parameters of rank {key[0]} differ from step {key[1]} on, so saving changed them"
    return ""

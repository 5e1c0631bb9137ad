"""Judges: the candidate is better than the declared baseline, and in no slice worse, as far as the held-out rows can tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fixtures.audit import Program
from reports.evidence import Finding
from reports.statistics import wilson_interval
from suite.release.held_out import FEWEST_ROWS, Difference, HeldOutError, mean_by_day, read_held_out

FAMILY_LEVEL = 0.95
SAME = 1e-9
ALARM = 0.5


def beats_baseline(program: Program, *, held_out: str, report: str) -> Finding:
    """The whole 95 % interval of the model's log-loss minus the baseline's lies below 0, and the job's own report says the same number."""
    try:
        table = read_held_out(program.files.get(held_out), ())
    except HeldOutError as error:
        return Finding(accepted=None, explanation=str(error))
    found = mean_by_day(table["difference"].to_numpy(), table["day"].to_numpy())
    said = _reported(program.files.get(report))
    told = f"log-loss minus the baseline's {found.mean:+.4f} nats (95 % interval {found.low:+.4f} to {found.high:+.4f}, {found.rows} rows of {found.days} days)"
    options: dict[str, Any] = {
        "value": found.mean, "unit": "nats", "bound": 0, "interval": (found.low, found.high), "samples": found.rows,
        "details": {"days": found.days, "late_rate": float(table["label"].mean()), "reported": said},
    }  # fmt: skip
    if said is None or abs(said - found.mean) > SAME:
        return Finding(
            accepted=False,
            explanation=f"the evaluation report says {said}, its own table gives {found.mean:+.6f}",
            details=options["details"],
        )
    if found.high >= 0:
        return Finding(accepted=False, explanation=f"not better than the baseline: {told}", **options)
    return Finding(accepted=True, explanation=f"better than the baseline: {told}; the evaluation report says the same", **options)


def no_slice_is_worse(program: Program, *, held_out: str, slices: Sequence[str], allowed: float) -> Finding:
    """No slice of at least 100 rows has a log-loss certainly more than `allowed` above the baseline's, and no row is outside a slice."""
    try:
        table = read_held_out(program.files.get(held_out), slices)
    except HeldOutError as error:
        return Finding(accepted=None, explanation=str(error))
    if empty := [name for name in slices if table[name].isna().any()]:
        return Finding(
            accepted=False, explanation=f"{int(table[empty[0]].isna().sum())} rows belong to no {empty[0]}, so no slice answers for them"
        )
    groups = [(name, str(value), rows) for name in slices for value, rows in table.groupby(name) if len(rows) >= FEWEST_ROWS]
    small = {name: int((table.groupby(name)["day"].transform("size") < FEWEST_ROWS).sum()) for name in slices}
    level = 1 - (1 - FAMILY_LEVEL) / max(1, len(groups))
    rows = [_slice(name, value, one, level) for name, value, one in groups]
    details = {
        "table": {"columns": ["slice", "n", "late", "difference", "low", "high"], "rows": [row[:6] for row in rows]},
        "rows_in_slices_below_100": small, "level_of_each": level,
    }  # fmt: skip
    if not rows:
        return Finding(accepted=None, explanation=f"no slice has {FEWEST_ROWS} rows: give more held-out rows")
    worst = max(rows, key=lambda row: row[4])
    told = f"{worst[0]} (n {worst[1]}) {worst[3]:+.4f} nats against the baseline, {worst[4]:+.4f} to {worst[5]:+.4f}"
    options: dict[str, Any] = {"value": worst[4], "unit": "nats, lower end", "bound": allowed, "samples": len(table), "details": details}
    if worst[4] > allowed:
        count = sum(row[4] > allowed for row in rows)
        return Finding(
            accepted=False, explanation=f"worse than the baseline in {count} of {len(rows)} slices, most certainly {told}", **options
        )
    text = (
        f"none of {len(rows)} slices by {', '.join(slices)} is certainly worse than the baseline by {allowed:g} nats; the nearest is {told}"
    )
    return Finding(accepted=True, explanation=text, **options)


def protects_the_slice(program: Program, *, held_out: str, high_risk: str, allowed: float) -> Finding:
    """In the slice to protect the model is not worse than the baseline by more than `allowed`: the upper end of the interval says so."""
    try:
        table = read_held_out(program.files.get(held_out), (high_risk,))
    except HeldOutError as error:
        return Finding(accepted=None, explanation=str(error))
    chosen = table[high_risk].to_numpy(bool)
    inside, outside = table[chosen], table[~chosen]
    if min(len(inside), len(outside)) < FEWEST_ROWS:
        return Finding(
            accepted=None, explanation=f"{high_risk} holds {len(inside)} rows and the rest {len(outside)}: each needs {FEWEST_ROWS}"
        )
    here, rest = (mean_by_day(part["difference"].to_numpy(), part["day"].to_numpy()) for part in (inside, outside))
    options: dict[str, Any] = {
        "value": here.high, "unit": "nats, upper end", "bound": allowed, "interval": (here.low, here.high), "samples": here.rows,
        "details": {"table": {"columns": ["slice", "n", "late", "difference", "low", "high", "missed", "missed low", "missed high"],
                              "rows": [_protected(high_risk, inside, here), _protected("the rest", outside, rest)]}},
    }  # fmt: skip
    told = (
        f"in {high_risk} ({here.rows} rows of {here.days} days, {inside['label'].mean():.0%} late against {outside['label'].mean():.0%}) the log-loss is {here.mean:+.4f} nats against "
        f"the baseline ({here.low:+.4f} to {here.high:+.4f}), in the rest {rest.mean:+.4f} ({rest.low:+.4f} to {rest.high:+.4f})"
    )
    if here.high > allowed:
        return Finding(accepted=False, explanation=f"worse by more than {allowed:g} nats cannot be ruled out: {told}", **options)
    return Finding(accepted=True, explanation=f"worse by more than {allowed:g} nats is ruled out: {told}", **options)


def _slice(name: str, value: str, rows: pd.DataFrame, level: float) -> list[Any]:
    found = mean_by_day(rows["difference"].to_numpy(), rows["day"].to_numpy(), level)
    return [f"{name} {value}", found.rows, float(rows["label"].mean()), found.mean, found.low, found.high]


def _protected(name: str, rows: pd.DataFrame, found: Difference) -> list[Any]:
    """A row of the table: the late ones that an alarm at a probability of one half would have missed, with Wilson's interval."""
    late = rows[rows["label"] == 1]
    missed = int(np.count_nonzero(late["probability"].to_numpy(float) < ALARM))
    share = wilson_interval(missed, max(1, len(late)))
    return [name, found.rows, float(rows["label"].mean()), found.mean, found.low, found.high, share.estimate, share.low, share.high]


def _reported(written: bytes | None) -> float | None:
    try:
        return float(json.loads(written or b"{}")["difference"]["mean"])
    except (ValueError, KeyError, TypeError):
        return None

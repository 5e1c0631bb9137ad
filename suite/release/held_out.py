"""The held-out rows of a candidate and how certain a difference on them is.

Days, not rows, are independent: flights of one day share its weather. So every interval is that of a ratio estimator over days, with
Student's t (Cochran, Sampling Techniques, 3rd ed., section 9A.2: cluster totals over cluster sizes).
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

FEWEST_ROWS = 100
FEWEST_DAYS = 5
SMALLEST_PROBABILITY = 1e-7
NEEDED = ("label", "probability", "baseline", "day")


class HeldOutError(ValueError):
    """The held-out table cannot be judged; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over `rows` rows of `days` days, in nats, with its interval."""

    mean: float
    low: float
    high: float
    rows: int
    days: int


def read_held_out(written: bytes | None, columns: Sequence[str]) -> pd.DataFrame:
    """The table with a column `difference`: log-loss of the model minus that of the baseline, in nats. Raises HeldOutError."""
    if written is None:
        raise HeldOutError("the evaluation left no held-out table")
    table = pd.read_parquet(io.BytesIO(written))
    if missing := [name for name in (*NEEDED, *columns) if name not in table]:
        raise HeldOutError(f"the held-out table has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    if not table["label"].isin([0, 1]).all() or not np.isfinite(table[["probability", "baseline"]].to_numpy(float)).all():
        raise HeldOutError("the held-out table has labels other than 0 and 1 or scores that are no numbers")
    return table.assign(difference=_losses(table, "probability") - _losses(table, "baseline"))


def _losses(table: pd.DataFrame, column: str) -> np.ndarray:
    probability = table[column].to_numpy(float).clip(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    label = table["label"].to_numpy(float)
    losses: np.ndarray = -(label * np.log(probability) + (1 - label) * np.log1p(-probability))
    return losses


def mean_by_day(values: np.ndarray, day: np.ndarray, level: float = 0.95) -> Difference:
    """The mean of values [rows] with an interval of coverage `level`; infinite where fewer than five days are there."""
    _, places = np.unique(day, return_inverse=True)
    counts, totals = np.bincount(places), np.bincount(places, weights=values)
    days, mean = len(counts), float(values.mean())
    if days < FEWEST_DAYS:
        return Difference(mean, -math.inf, math.inf, len(values), days)
    spread = float(np.sqrt(days / (days - 1) * np.square(totals - counts * mean).sum()) / len(values))
    half = float(stats.t.ppf(0.5 + level / 2, days - 1)) * spread
    return Difference(mean, mean - half, mean + half, len(values), days)

"""How good probabilities are: log-loss, AUC, Brier score, calibration, and the certainty of a difference.

Days, not flights, are resampled: flights of one day share its weather and so are not independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SMALLEST_PROBABILITY = 1e-7
RESAMPLES = 2000


def log_losses(probability: np.ndarray, label: np.ndarray) -> np.ndarray:
    """float64 [n], in nats."""
    clipped = np.clip(probability, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    losses: np.ndarray = -(label * np.log(clipped) + (1 - label) * np.log1p(-clipped))
    return losses


def area_under_curve(probability: np.ndarray, label: np.ndarray) -> float:
    """Probability that a late flight is ranked above one that is not (ties count half); NaN with one class only. Mann-Whitney's U."""
    values, inverse, counts = np.unique(probability, return_inverse=True, return_counts=True)
    del values
    middle_ranks = np.cumsum(counts) - (counts - 1) / 2
    n_late = float(label.sum())
    n_others = len(label) - n_late
    if not n_late or not n_others:
        return float("nan")
    ranks = middle_ranks[inverse][label == 1].sum()
    return float((ranks - n_late * (n_late + 1) / 2) / (n_late * n_others))


def calibration(probability: np.ndarray, label: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """Mean probability against the observed rate in equally filled bins, each with n."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [{"n": len(part), "predicted": float(probability[part].mean()), "observed": float(label[part].mean())} for part in parts]


def summary(probability: np.ndarray, label: np.ndarray) -> dict[str, Any]:
    """n, rate, log-loss, AUC, Brier score, expected calibration error and the calibration bins."""
    bins = calibration(probability, label)
    error = sum(one["n"] * abs(one["predicted"] - one["observed"]) for one in bins) / len(label)
    return {
        "n": len(label),
        "late_rate": float(label.mean()),
        "log_loss": float(log_losses(probability, label).mean()),
        "auc": area_under_curve(probability, label),
        "brier": float(np.square(probability - label).mean()),
        "calibration_error": float(error),
        "calibration": bins,
    }


def difference(ours: np.ndarray, theirs: np.ndarray, day: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Mean of ours - theirs (per-sample scores [n]) with a 95 % bootstrap interval over days."""
    days, places = np.unique(day, return_inverse=True)
    totals = np.bincount(places, weights=ours - theirs)
    counts = np.bincount(places)
    drawn = np.random.default_rng(seed).integers(0, len(days), size=(RESAMPLES, len(days)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    mean = float((ours - theirs).mean())
    return {"mean": mean, "low": float(low), "high": float(high), "n": len(ours), "days": len(days), "resamples": RESAMPLES}

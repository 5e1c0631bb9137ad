"""The declared baseline: how often flights of the same route and hour were late in the training months."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.flights.features import Samples
from workloads.flights.inputs import CATEGORIES

PRIOR_FLIGHTS = 20
"""A route and hour with few flights is pulled towards the overall rate, as if 20 more flights had been seen at that rate."""


@dataclass(frozen=True, slots=True)
class Rates:
    """`by_key`: (origin, destination, hour code) -> rate of late flights; `overall` for what was never seen."""

    by_key: dict[int, float]
    overall: float


def fit(training: Samples) -> Rates:
    """(late + 20 x overall) / (flights + 20) per route and hour."""
    keys, places = np.unique(_keys(training), return_inverse=True)
    overall = float(training.label.mean())
    flights = np.bincount(places)
    late = np.bincount(places, weights=training.label)
    rates = (late + PRIOR_FLIGHTS * overall) / (flights + PRIOR_FLIGHTS)
    return Rates(dict(zip(keys.tolist(), rates.tolist(), strict=True)), overall)


def probability(rates: Rates, samples: Samples) -> np.ndarray:
    """float64 [n]: the rate of each sample's route and hour."""
    return np.array([rates.by_key.get(key, rates.overall) for key in _keys(samples).tolist()])


def _keys(samples: Samples) -> np.ndarray:
    names = list(CATEGORIES)
    origin, destination, hour = (samples.categories[:, names.index(name)] for name in ("origin", "destination", "hour"))
    keys: np.ndarray = (origin * 1000 + destination) * 100 + hour
    return keys

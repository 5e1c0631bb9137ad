"""Scores from a published artifact: the exported graph, run without the code that trained it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workloads.flights import registry
from workloads.flights.features import Samples
from workloads.flights.version import feature_version

ROWS_AT_ONCE = 4096
SINGLE_FLIGHTS = 50


@dataclass(frozen=True, slots=True)
class Served:
    """An artifact in memory: its name, its manifest, the graph, and what is done to a logit (scale, shift) before it is a probability."""

    name: str
    manifest: dict[str, Any]
    graph: torch.nn.Module
    scale: float
    shift: float


def load(folder: Path) -> Served:
    """Load a verified artifact. Raises RegistryError where it was built with other feature code than is here."""
    preprocessing = json.loads((folder / "preprocessing.json").read_bytes())
    if preprocessing["feature_version"] != feature_version():
        raise registry.RegistryError(
            f"{folder} was built with feature code {preprocessing['feature_version'][:12]}, but here is {feature_version()[:12]}: serve it with the code of its build, or build it again"
        )
    graph = torch.export.load(folder / "model.pt2").module()
    calibration = preprocessing["calibration"]
    return Served(folder.name, registry.read_manifest(folder), graph, calibration["scale"], calibration["shift"])


def probabilities(served: Served, samples: Samples) -> np.ndarray:
    """float64 [n] probability of arriving late."""
    parts = [_score(served, samples, slice(start, start + ROWS_AT_ONCE)) for start in range(0, len(samples), ROWS_AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros(0)


def latencies_ms(served: Served, samples: Samples) -> list[float]:
    """Wall time of scoring one flight at a time, for the first flights, in ms (features not included; the first call warms up)."""
    rows = [slice(row, row + 1) for row in range(min(SINGLE_FLIGHTS, len(samples)))]
    taken = []
    for row in [*rows[:1], *rows]:
        began = time.perf_counter()
        _score(served, samples, row)
        taken.append((time.perf_counter() - began) * 1000)
    return taken[1:]


def _score(served: Served, samples: Samples, rows: slice) -> np.ndarray:
    with torch.inference_mode():
        logit = served.graph(torch.from_numpy(samples.categories[rows]), torch.from_numpy(samples.numbers[rows]).to(torch.float32))
        scored: np.ndarray = torch.sigmoid(logit.double() * served.scale + served.shift).numpy()
    return scored

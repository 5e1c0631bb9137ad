"""Probabilities of a stored model for samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from workloads.flights.artifact import read_model
from workloads.flights.features import Samples

ROWS_AT_ONCE = 4096


def predict(path: Path, samples: Samples) -> np.ndarray:
    """float64 [n] probability of arriving late. Raises ArtifactError."""
    model, _ = read_model(path)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(samples), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            categories = torch.from_numpy(samples.categories[rows])
            numbers = torch.from_numpy(samples.numbers[rows]).to(torch.get_default_dtype())
            parts.append(torch.sigmoid(model(categories, numbers).double()).numpy())
    return np.concatenate(parts) if parts else np.zeros(0)

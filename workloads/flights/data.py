"""From an events file to batches of tensors, with everything noteworthy about the input in lines to print."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from workloads.flights.distribution import into_range, late_line, missing_line, out_of_distribution_line
from workloads.flights.features import Samples, build_samples, counts_line, for_training
from workloads.flights.schema import MalformedInput, microseconds, read_events
from workloads.flights.task import TRAIN_UNTIL
from workloads.sampler import GlobalBatches, Slice


class Batch(NamedTuple):
    """One rank's rows of a step: categories int64 [rows, categories]; numbers [rows, features], label [rows] and share [rows] in the default
    float type. Shares over all ranks sum to 1.
    """

    categories: torch.Tensor
    numbers: torch.Tensor
    label: torch.Tensor
    share: torch.Tensor


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Training samples, the weight of each (float64 [n]), the digest of the file they came from, and what there is to say about it."""

    samples: Samples
    weight: np.ndarray
    sha256: str
    report: tuple[str, ...]


def load_training(path: Path, share: float = 1.0) -> TrainingData:
    """What could be known at the training cutoff; of that the given share. Raises MalformedInput."""
    cutoff = microseconds(TRAIN_UNTIL)
    everything = read_events(path, cutoff=cutoff)
    known, unusual = into_range(everything.known_by(cutoff))
    samples = build_samples(known)
    training = for_training(samples, cutoff)
    training = training.take(_chosen(training.entity_id, share))
    if not len(training):
        raise MalformedInput(
            f"{path} holds no flight with an outcome before {TRAIN_UNTIL}, so no row, column, entity_id or value to learn from; prepare more rows"
        )
    report = (out_of_distribution_line(unusual), late_line(everything, cutoff), missing_line(known), counts_line(samples, training, cutoff))
    return TrainingData(training, np.ones(len(training)), hashlib.sha256(path.read_bytes()).hexdigest(), report)


def _chosen(entity_ids: np.ndarray, share: float) -> np.ndarray:
    """Which samples belong to the share (bool [n]): told by the name alone, so that no other row of the file decides on it."""
    return np.array([crc32(str(name).encode()) < share * 2**32 for name in entity_ids], dtype=bool)


class Rows(Dataset[Batch]):
    """Samples by slice of a global batch."""

    def __init__(self, loaded: TrainingData) -> None:
        self.loaded = loaded

    def __len__(self) -> int:
        return len(self.loaded.samples)

    def __getitems__(self, rows: Slice) -> Batch:
        samples, weight = self.loaded.samples, self.loaded.weight
        float_type = torch.get_default_dtype()
        share = weight[rows.own] / weight[rows.whole].sum()
        return Batch(
            torch.from_numpy(samples.categories[rows.own]),
            torch.from_numpy(samples.numbers[rows.own]).to(float_type),
            torch.from_numpy(samples.label[rows.own]).to(float_type),
            torch.from_numpy(share).to(float_type),
        )


def _as_it_is(batch: Batch) -> Batch:
    return batch


def loader(loaded: TrainingData, batches: GlobalBatches, workers: int, generator: torch.Generator) -> DataLoader[Batch]:
    """Batches in the sampler's order; with workers, at most two batches ahead on each."""
    return DataLoader(Rows(loaded), batch_sampler=batches, num_workers=workers, collate_fn=_as_it_is, generator=generator)  # type: ignore[arg-type]


def loss_of(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    """Share-weighted sum of the log-losses of a Batch's rows."""
    categories, numbers, label, share = batch
    losses = functional.binary_cross_entropy_with_logits(model(categories, numbers), label, reduction="none")
    return (losses * share).sum()


def slices(n_rows: int, rows_at_once: int) -> Iterator[slice]:
    """Consecutive slices that cover n_rows."""
    return (slice(start, start + rows_at_once) for start in range(0, n_rows, rows_at_once))

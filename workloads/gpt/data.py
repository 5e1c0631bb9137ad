"""Token sequences of the source as a map-style dataset: training sequences, and held-out ones that training never draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from workloads.gpt.source import Source, draw_sequences
from workloads.sampler import GlobalBatches, Slice, own_generator

HELD_OUT_FIRST = 1 << 40  # training sequences are numbered from 0 and never get this far


class Batch(NamedTuple):
    """One rank's rows of a step: inputs and targets int64 (rows, sequence), the targets one token ahead; share (rows,) of the global batch."""

    inputs: Tensor
    targets: Tensor
    share: Tensor


class Tokens(Dataset[Batch]):
    """Drawn sequences (count, sequence + 1) by slice of a global batch; shares over all ranks of a step sum to 1."""

    def __init__(self, drawn: NDArray[np.int32]) -> None:
        self.drawn = drawn

    def __len__(self) -> int:
        return len(self.drawn)

    def __getitems__(self, rows: Slice) -> Batch:
        tokens = torch.from_numpy(self.drawn[rows.own].astype(np.int64))
        share = torch.full((len(rows.own),), 1 / len(rows.whole), dtype=torch.get_default_dtype())
        return Batch(tokens[:, :-1], tokens[:, 1:], share)


def training_tokens(source: Source, sequences: int, sequence: int, seed: int) -> Tokens:
    """`sequences` training items of `sequence` predicted tokens each."""
    return Tokens(draw_sequences(source, 0, sequences, sequence + 1, seed))


def held_out_tokens(source: Source, sequences: int, sequence: int, seed: int) -> NDArray[np.int32]:
    """Sequences (sequences, sequence + 1) from a range of numbers that training does not reach."""
    return draw_sequences(source, HELD_OUT_FIRST, sequences, sequence + 1, seed)


def as_it_is(batch: Batch) -> Batch:
    """The dataset makes whole batches; there is nothing to collate."""
    return batch


def loader(tokens: Tokens, batches: GlobalBatches, workers: int, seed: int) -> DataLoader[Batch]:
    """Batches in the sampler's order; with workers, at most two batches ahead on each."""
    return DataLoader(tokens, batch_sampler=batches, num_workers=workers, collate_fn=as_it_is, generator=own_generator(seed))  # type: ignore[arg-type]

"""Token sequences of the source as a map-style dataset: training sequences, and held-out ones that training never draws."""

import numpy as np
import torch
from numpy.typing import NDArray
from source import Source, draw_sequences
from torch import Tensor
from torch.utils.data import Dataset

HELD_OUT_FIRST = 1 << 40  # training sequences are numbered from 0 and never get this far


class Tokens(Dataset[tuple[Tensor, Tensor]]):
    """Item i: (inputs, targets), each (sequence,) int64, the targets one token ahead. Sequence i is the same at any world size."""

    def __init__(self, drawn: NDArray[np.int32]) -> None:
        self.drawn = drawn

    def __len__(self) -> int:
        return len(self.drawn)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = torch.from_numpy(self.drawn[index].astype(np.int64))
        return row[:-1], row[1:]


def training_tokens(source: Source, sequences: int, sequence: int, seed: int) -> Tokens:
    """`sequences` training items of `sequence` predicted tokens each."""
    return Tokens(draw_sequences(source, 0, sequences, sequence + 1, seed))


def held_out_tokens(source: Source, sequences: int, sequence: int, seed: int) -> Tokens:
    """Items from a range of numbers that training does not reach."""
    return Tokens(draw_sequences(source, HELD_OUT_FIRST, sequences, sequence + 1, seed))

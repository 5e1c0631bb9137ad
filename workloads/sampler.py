"""Which samples make up which step: a pure function of (seed, epoch, position), the same at every world size.

The epoch is one permutation of all samples, cut into global batches; the last one is smaller where they do not divide (no padding, no
dropping), so every sample is used exactly once per epoch. A rank takes its slice of the global batch. The position is three integers, so
a run resumes at any world size and even with another global batch, in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Sampler


@dataclass(frozen=True, slots=True)
class Position:
    """Steps done, the current epoch, and how many of its samples were consumed."""

    step: int = 0
    epoch: int = 0
    consumed: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What fixes the order of the samples: their number, the seed and the size of a global batch."""

    n_samples: int
    global_batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.n_samples < 1 or self.global_batch < 1:
            raise ValueError(
                f"n_samples={self.n_samples} and global_batch={self.global_batch} must be at least 1: give more rows or a larger batch"
            )


class Slice(NamedTuple):
    """One rank's part of a step: `own` and `whole` are int64 sample indices; `own` is empty where a batch has fewer samples than ranks."""

    own: np.ndarray
    whole: np.ndarray


def permutation(order: Order, epoch: int) -> np.ndarray:
    """int64 [n_samples]: the order of an epoch. numpy's RandomState keeps its stream across releases, as torch.randperm does not promise."""
    bits = np.random.MT19937(np.random.SeedSequence([order.seed, epoch]))
    return np.random.RandomState(bits).permutation(order.n_samples)


def after(position: Position, order: Order) -> Position:
    """The position after one more step."""
    consumed = min(position.consumed + order.global_batch, order.n_samples)
    if consumed == order.n_samples:
        return Position(position.step + 1, position.epoch + 1, 0)
    return Position(position.step + 1, position.epoch, consumed)


def slice_of(whole: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The rank's contiguous part; parts differ by at most one sample and together are the whole, in order."""
    return np.array_split(whole, world_size)[rank]


class GlobalBatches(Sampler[Slice]):
    """A batch sampler for DataLoader(batch_sampler=...): one rank's slices from `start` until `last_step` steps are done.

    It draws from no random generator but its own, and it never looks at what was prefetched: the trainer advances the position with
    `after` when a step is done.
    """

    def __init__(self, order: Order, start: Position, last_step: int, rank: int = 0, world_size: int = 1) -> None:
        self.order, self.start, self.last_step = order, start, last_step
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        return max(0, self.last_step - self.start.step)

    def __iter__(self) -> Iterator[Slice]:
        position, shuffled = self.start, permutation(self.order, self.start.epoch)
        while position.step < self.last_step:
            whole = shuffled[position.consumed : position.consumed + self.order.global_batch]
            yield Slice(slice_of(whole, self.rank, self.world_size), whole)
            following = after(position, self.order)
            if following.epoch != position.epoch:
                shuffled = permutation(self.order, following.epoch)
            position = following


def own_generator(seed: int) -> torch.Generator:
    """For DataLoader(generator=...): else every new iterator draws from the global generator and a resumed run's random numbers shift by one."""
    return torch.Generator().manual_seed(seed)

"""The sample ledger: which samples each rank consumed in which step, and where one device's epochs begin.

Samples are known by a hash of their content, and real data may hold equal rows: so all comparisons are of multisets, never of sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fixtures.trace import Trace
from suite.equivalence.sharing import once

Samples = Counter[str]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Who consumed what. by_rank: step -> rank -> multiset of samples; sequence: all samples, step by step, rows of the ranks in turn."""

    world_size: int
    by_rank: Mapping[int, Mapping[int, Samples]]
    sequence: tuple[str, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted(self.by_rank))

    def at(self, step: int) -> Samples:
        """The global batch of one step; empty for a step that was not made."""
        return total(self.by_rank.get(step, {}).values())

    def between(self, steps: Sequence[int]) -> Samples:
        return total(self.at(step) for step in steps)

    def of_rank(self, rank: int, steps: Sequence[int]) -> Samples:
        return total(self.by_rank.get(step, {}).get(rank, Counter()) for step in steps)


@dataclass(frozen=True, slots=True)
class Epochs:
    """One device's epochs. samples: their length, 0 where the run shows none. windows: the steps of each epoch, in order (a step that
    holds the border belongs to both). whole: epochs that were completed. tail: "kept" or, where each epoch leaves some samples out, "dropped".
    """

    samples: int
    windows: tuple[tuple[int, ...], ...]
    whole: int
    tail: Literal["kept", "dropped"] = "kept"

    @property
    def crossed(self) -> bool:
        """A border between two epochs lies within the run."""
        return self.whole >= 1 and len(self.windows) >= 2


def total(parts: Iterable[Samples]) -> Samples:
    """The sum of multisets."""
    summed: Samples = Counter()
    for part in parts:
        summed.update(part)
    return summed


def ledger(trace: Trace, repeats: int = 1) -> Ledger:
    """The ledger of a run. repeats: how often a step of the job takes each of its rows; so many in one step of a rank count as one.

    What ranks share that hold parts of the same layers counts once, for the lowest of them.
    """
    frame = once(trace).sort_values(["step", "position", "rank"], kind="stable")
    if repeats > 1:
        frame = frame.loc[frame.groupby(["step", "rank", "sample"]).cumcount() % repeats == 0]
    by_rank: dict[int, dict[int, Samples]] = {int(step): {} for step in sorted(set(trace.steps["step"]))}
    for step, rank, sample in zip(frame["step"].tolist(), frame["rank"].tolist(), frame["sample"].tolist(), strict=True):
        by_rank.setdefault(step, {}).setdefault(rank, Counter())[sample] += 1
    return Ledger(int(trace.spec.get("world_size") or len(trace.ranks)), by_rank, tuple(frame["sample"].tolist()))


def repeats_within_steps(alone: Ledger) -> int:
    """How often every step takes each of its rows: 2 where the model is given a batch twice, as in R-drop. 1 where that differs, or a step has only one row."""
    batches = [alone.at(step) for step in alone.steps]
    return math.gcd(*(count for batch in batches for count in batch.values())) if all(len(batch) > 1 for batch in batches) else 1


def epochs(alone: Ledger) -> Epochs:
    """Where one device's epochs begin, deduced from its ledger alone.

    The length is the smallest for which every later block consumes what the first one consumed. Where none does, a loader that drops
    the last incomplete batch is tried.
    """
    ends = np.cumsum([sum(alone.at(step).values()) for step in alone.steps]).tolist()
    length = _period(alone.sequence, ends)
    return _windows(alone, ends, length) if length else _dropped_tail(alone)


def _period(sequence: Sequence[str], ends: Sequence[int]) -> int:
    """The smallest length L such that the blocks of L samples are equal multisets and the rest of the run fits into one; 0 for none."""
    if len(ends) < 2:
        return 0
    fits = _rest_fits(sequence)
    sums = _prefix_sums(sequence)
    longest = len(sequence) - (ends[-1] - ends[-2])  # at least one step must lie beyond the border, or equal rows would look like one
    shortest = next((length for length in range(1, longest + 1) if _repeats(sequence, sums, fits, length)), 0)
    return _at_border(shortest, ends) if shortest else 0


def _repeats(sequence: Sequence[str], sums: NDArray[Any], fits: NDArray[Any], length: int) -> bool:
    """Whether all blocks of this length hold the same samples. Blocks are compared by the sum of their samples' random codes."""
    starts = np.arange(0, len(sequence) - length + 1, length)
    blocks = sums[starts + length] - sums[starts]
    if not (blocks == blocks[0]).all():
        return False
    if len(starts) == 1:  # a single block proves less: it must still bring new samples at its end, as a drawing with replacement would not
        return bool(fits[length]) and _ends_with_new(sequence[:length], max(length // 8, 1))
    return not Counter(sequence[len(starts) * length :]) - Counter(sequence[:length])


def _ends_with_new(block: Sequence[str], last: int) -> bool:
    seen = set(block[:-last])
    return 2 * sum(sample in seen for sample in block[-last:]) <= last


def _prefix_sums(sequence: Sequence[str]) -> NDArray[Any]:
    codes: dict[str, int] = {}
    random = np.random.default_rng(0)
    drawn = random.integers(0, 2**63, size=len(sequence), dtype=np.uint64)
    values = np.array([codes.setdefault(sample, int(drawn[index])) for index, sample in enumerate(sequence)], dtype=np.uint64)
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])


def _rest_fits(sequence: Sequence[str]) -> NDArray[Any]:
    """For each length: whether what follows the first block of that length is contained in it."""
    rest, block = Counter(sequence), Counter[str]()
    over = len(rest)  # how many distinct samples are more often in the rest than in the block
    fits = np.zeros(len(sequence) + 1, dtype=bool)
    for index, sample in enumerate(sequence, 1):
        before = rest[sample] > block[sample]
        rest[sample] -= 1
        block[sample] += 1
        over -= before and rest[sample] <= block[sample]
        fits[index] = over == 0
    return fits


def _at_border(length: int, ends: Sequence[int]) -> int:
    """Rows that are equal by chance can end an epoch a few rows early: a border of steps just behind is then meant."""
    border = next(end for end in ends if end >= length)
    batch = max(second - first for first, second in pairwise([0, *ends]))
    return border if border - length <= batch // 8 else length


def _windows(alone: Ledger, ends: Sequence[int], length: int) -> Epochs:
    begins = [0, *ends[:-1]]
    windows = [
        tuple(step for step, begin, end in zip(alone.steps, begins, ends, strict=True) if begin < first + length and end > first)
        for first in range(0, ends[-1], length)
    ]
    return Epochs(length, tuple(windows), ends[-1] // length)


def _dropped_tail(alone: Ledger) -> Epochs:
    """Epochs of equally many steps, each of which leaves out less than one batch of what all of them consumed together."""
    for length in range(1, len(alone.steps)):
        groups = [alone.steps[first : first + length] for first in range(0, len(alone.steps), length)]
        if _only_tails_are_left_out(alone, groups):
            first = sum(alone.between(groups[0]).values())
            return Epochs(first, tuple(groups), len(alone.steps) // length, "dropped")
    return Epochs(0, (alone.steps,), 0)


def _only_tails_are_left_out(alone: Ledger, groups: Sequence[Sequence[int]]) -> bool:
    """Drawing with replacement leaves out far more. One group and a rest prove less, so the rest must repeat the group and the group not itself."""
    consumed = [alone.between(group) for group in groups]
    every: Samples = Counter()
    for epoch in consumed:
        every |= epoch
    batch = max(sum(alone.at(step).values()) for step in alone.steps)
    whole = len(groups) if len(groups[-1]) == len(groups[0]) else len(groups) - 1
    if any(sum(every.values()) - sum(epoch.values()) >= batch for epoch in consumed[:whole]):
        return False
    return whole > 1 or (_mostly_in(consumed[1], consumed[0]) and not _mostly_in(alone.at(groups[0][-1]), alone.between(groups[0][:-1])))


def _mostly_in(some: Samples, other: Samples) -> bool:
    return 2 * sum(count for sample, count in some.items() if sample in other) > sum(some.values())

"""What each sample weighs in the loss, as its gradient at the model's output shows it; and how two runs, ranks or micro-batches differ in that.

The output of a sample is the same in any batch (batch statistics apart), so the ratio of its gradients in two runs is the ratio of its weights there,
whatever the loss is. Of a cross-entropy the weight itself is known, with no other run to compare with: that is the oracle that finds all world sizes
agreeing on a wrong value. Tools that compare tensors of two runs (TTrace) need a reference that is right; this needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fixtures.trace import Trace
from suite.equivalence.usable import rounding

LAWS = ("label", "sample")
SAME = 1e-6  # two gradients of one sample that differ by more are of other labels
SURE = 1e-3  # of the largest gradient: a sample below it is nearly fitted, and its ratio is made of rounding


@dataclass(frozen=True, slots=True)
class Part:
    """One micro-batch of one rank in one step.

    samples: their hashes. norms: of each sample's gradient at the output. valid: how many of its positions (labels, tokens) have one. low, high: the
    smallest and largest weight of a position within each sample, empty where the form of the loss is not known.
    """

    step: int
    rank: int
    micro: int
    samples: tuple[str, ...]
    norms: tuple[float, ...]
    valid: tuple[int, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    form: str | None
    dtype: str

    @property
    def labels(self) -> int:
        return sum(self.valid)


@dataclass(frozen=True, slots=True)
class Weighing:
    """One number per part: what its samples (or labels) weigh, relative to the first part's. spread: how far they differ within a part."""

    relative: Mapping[tuple[int, int], float]
    spread: float
    tolerance: float
    law: str

    @property
    def largest(self) -> float:
        """How far a part is from the first."""
        return max(abs(value - 1.0) for value in self.relative.values())


def parts(trace: Trace, step: int) -> list[Part]:
    """The parts of a step, by rank, then micro-batch (from 1)."""
    rows = trace.steps.loc[trace.steps["step"] == step].sort_values("rank")
    found: list[Part] = []
    for rank, weights in zip(rows["rank"].tolist(), rows["weights"].tolist(), strict=True):
        own = (
            trace.samples.loc[(trace.samples["step"] == step) & (trace.samples["rank"] == rank)].sort_values("position")["sample"].tolist()
        )
        for record in sorted(weights or (), key=lambda one: int(one["forward"])):
            samples = own[record["first"] : record["first"] + record["rows"]]
            found.append(
                Part(
                    step, rank, int(record["forward"]), tuple(samples), tuple(record["norms"]), tuple(record["valid"]), tuple(record["low"]),
                    tuple(record["high"]), record["form"], record["dtype"],
                )
            )  # fmt: skip
    return found


def weighed_steps(trace: Trace) -> list[int]:
    """The steps in which every rank's samples were weighed."""
    seen = trace.steps.loc[trace.steps["weights"].map(bool)].groupby("step")["rank"].nunique()
    return [int(str(step)) for step, ranks in seen.items() if ranks == len(trace.ranks)]


def laws_within(found: Sequence[Part]) -> tuple[str, ...]:
    """The laws of normalisation that fit within each part: every label weighs alike (a mean over labels), or every sample does (a mean over samples of
    each one's mean). Both where the samples of a part have equally many labels, none where the form of the loss is not known.
    """
    if not found or any(part.form is None or len(part.low) != len(part.samples) for part in found):
        return ()
    tolerance = max(rounding(part.dtype) for part in found)
    return tuple(law for law in LAWS if (tried := _weighing(found, law, tolerance)) is not None and tried.spread <= tolerance)


def by_weight(found: Sequence[Part], laws: Sequence[str] = LAWS) -> Weighing | None:
    """The parts compared by what a label weighs in each, by the law among `laws` that brings them nearest; None where none fits within the parts."""
    tolerance = max((rounding(part.dtype) for part in found), default=0.0)
    tried = [_weighing(found, law, tolerance) for law in laws_within(found) if law in laws]
    return min((one for one in tried if one is not None), key=lambda one: one.largest, default=None)


def is_ambiguous(found: Sequence[Part]) -> bool:
    """Whether one law says that the parts weigh alike and the other that they do not, with nothing within the parts to tell which one the job means."""
    weighings = [weighing for law in laws_within(found) if (weighing := by_weight(found, (law,))) is not None]
    return len({weighing.largest <= weighing.tolerance for weighing in weighings}) > 1


def _weighing(found: Sequence[Part], law: str, tolerance: float) -> Weighing | None:
    typical: dict[tuple[int, int], float] = {}
    spread = 0.0
    for part in found:
        values = [
            end * (count if law == "sample" else 1)
            for low, high, count in zip(part.low, part.high, part.valid, strict=True)
            for end in (low, high)
            if end is not None
        ]
        if not values:
            continue
        middle = float(np.median(values))
        spread = max(spread, max(abs(value / middle - 1.0) for value in values) if middle else np.inf)
        typical[part.rank, part.micro] = middle
    if not typical:
        return None
    first = next(iter(typical.values()))
    return Weighing({place: value / first for place, value in typical.items()}, spread, tolerance, law)


def by_ratio(reference: Iterable[Part], found: Sequence[Part]) -> Weighing | None:
    """The parts compared by the ratio of their samples' gradients to those of the same samples in another run, relative to the first part's.

    None where fewer than one sample of each part is found there.
    """
    ratios = ratios_to(reference, found)
    if not ratios or len(ratios) < len([part for part in found if part.samples]):
        return None
    middles = {place: float(np.median(values)) for place, values in ratios.items()}
    spread = max(float(np.max(np.abs(np.asarray(values) / middles[place] - 1.0))) for place, values in ratios.items())
    first = next(iter(middles.values()))
    tolerance = max(rounding(part.dtype) for part in found)
    return Weighing({place: value / first for place, value in middles.items()}, spread, tolerance, "sample")


def ratios_to(reference: Iterable[Part], found: Iterable[Part]) -> dict[tuple[int, int], list[float]]:
    """(rank, micro-batch) -> for each sample known in both runs, its gradient over the one in the reference. Equal samples are left out where ambiguous."""
    norms: dict[str, set[float]] = {}
    for part in reference:
        for sample, norm in zip(part.samples, part.norms, strict=False):
            norms.setdefault(sample, set()).add(norm)
    largest = max((norm for values in norms.values() for norm in values), default=0.0)
    known = {
        sample: max(values) for sample, values in norms.items() if max(values) > SURE * largest and max(values) <= min(values) * (1 + SAME)
    }
    every = list(found)
    here = _ambiguous(every)
    ratios: dict[tuple[int, int], list[float]] = {}
    for part in every:
        pairs = [
            (sample, norm / known[sample]) for sample, norm in zip(part.samples, part.norms, strict=False) if sample in known and norm > 0
        ]
        sure = [ratio for sample, ratio in pairs if sample not in here] or [ratio for _, ratio in pairs]
        if sure:
            ratios.setdefault((part.rank, part.micro), []).extend(sure)
    return ratios


def _ambiguous(found: Iterable[Part]) -> set[str]:
    """Samples that have several gradients in one run: equal inputs with other labels."""
    norms: dict[str, list[float]] = {}
    for part in found:
        for sample, norm in zip(part.samples, part.norms, strict=False):
            norms.setdefault(sample, []).append(norm)
    return {sample for sample, values in norms.items() if max(values) > min(values) * (1 + SAME)}


def total_weight(found: Sequence[Part]) -> float | None:
    """The weights of all labels together (1 for a mean over them), None where the form of the loss is not known or samples are uneven within."""
    if not found or any(part.form is None or len(part.low) != len(part.samples) for part in found):
        return None
    sums = [
        (low + high) / 2 * count
        for part in found
        for low, high, count in zip(part.low, part.high, part.valid, strict=True)
        if low is not None and high is not None
    ]
    return float(sum(sums))

"""Judge: in every epoch each sample is consumed exactly once, whichever rank it falls to.

One device's ledger says what an epoch is; the ranks' ledgers are held against it. What is consumed too often and what is left out are told
apart, because they have different causes: a missing sampler, seeds that differ between ranks, padding, a rank that skips.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.dealing import all_of, another_length, strangers
from suite.equivalence.evaluation import evaluated
from suite.equivalence.ledger import Epochs, Ledger, Samples, epochs, ledger, repeats_within_steps, total
from suite.equivalence.recognition import unrecognisable
from suite.equivalence.sharing import sharing, strayed
from suite.equivalence.usable import named, undecided, unusable


@dataclass(frozen=True, slots=True)
class Misuse:
    """What one world size did otherwise than one device in one epoch (counted from 1). steps: where the ranks spent that epoch."""

    epoch: int
    steps: tuple[int, ...]
    expected: Samples
    surplus: Samples = field(default_factory=Counter)
    omitted: Samples = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(self.surplus.values()) + sum(self.omitted.values())


def each_sample_once(alone: Trace, together: Sequence[Trace], padding: str = "") -> Finding:
    """Judge the ledgers of several world sizes against one device's. padding: the job's declared reason for filling up the last batch."""
    if reason := unusable([alone, *together], "samples"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    repeats = repeats_within_steps(ledger(alone))
    if 1 < repeats <= alone.steps["micro_batches"].fillna(1).max():
        return undecided(_same_batch_again(repeats))
    single = ledger(alone, repeats)
    found = epochs(single)
    if (times := _multiplicity(single, found)) > 1:
        return _finding(
            times,
            f"one device already consumes every sample {times} times in an epoch: each loader worker reads the whole data set",
            single,
        )
    for trace in together:
        if said := strayed(trace):
            return _finding(1, f"{named(trace)}: {said}", single)
        ranks = ledger(trace, repeats)
        wrong = [misuse for misuse in misuses(single, found, ranks) if misuse.count and not (padding and is_padding(misuse, ranks))]
        if wrong and (reason := unrecognisable(single, ranks, "equivalence.data_coverage", found)):
            return undecided(reason)
        if wrong:
            count = sum(misuse.count for misuse in wrong)
            said = _as_a_whole(alone, single, found, ranks, wrong) or explain(wrong, ranks)
            return _finding(count, f"{named(trace)}: {said}", ranks, first_epoch=wrong[0].epoch)
    return _accepted(single, found, together)


def _as_a_whole(alone: Trace, single: Ledger, found: Epochs, ranks: Ledger, wrong: Sequence[Misuse]) -> str:
    """What explains all misuse together: another epoch, or another data set; "" where nothing does."""
    if all(is_padding(misuse, ranks) for misuse in wrong):
        return ""
    surplus = total(misuse.surplus for misuse in wrong)
    return strangers(single, found, ranks, surplus, all_of(evaluated(alone))) or another_length(found, ranks)


def misuses(single: Ledger, found: Epochs, ranks: Ledger) -> list[Misuse]:
    """Surplus and omissions per epoch.

    Steps of equal size on both sides are compared epoch by epoch over the same steps, which also holds the padded end of an epoch. Where the
    ranks take other amounts per step, their own sequence is cut into epochs.
    """
    made = set(single.steps) & set(ranks.steps)
    same_size = sum(_rows(single, step) == _rows(ranks, step) for step in made)
    if 2 * same_size >= len(made) or not found.samples:
        windows = [tuple(step for step in window if step in made) for window in found.windows]
        expected = [single.between(window) for window in windows]
        unfinished = _unfinished(single, found)
        compared = [
            _compare(index, window, expected[index - 1], ranks.between(window)) for index, window in enumerate(windows, 1) if window
        ]
        whole = Counter(single.sequence[: found.samples])
        return [_so_far(misuse, whole) if misuse.epoch == unfinished else misuse for misuse in compared]
    return _cut_by_samples(single, found, ranks)


def _unfinished(single: Ledger, found: Epochs) -> int:
    """The number of the epoch that the run ends in, where it begins with a step of its own ; 0 for none."""
    if found.whole < 1 or len(found.windows) <= found.whole or found.tail == "dropped":
        return 0
    last, before = found.windows[-1], found.windows[-2]
    return len(found.windows) if last[0] not in before else 0


def _so_far(misuse: Misuse, epoch: Samples) -> Misuse:
    """The same of an epoch that the run does not come to the end of: in another order other samples are still to come, so only those count that
    were consumed more often than a whole epoch holds them.
    """
    seen = misuse.expected - misuse.omitted + misuse.surplus
    surplus = seen - (epoch | misuse.expected)
    short = sum(misuse.expected.values()) - sum(seen.values())
    return Misuse(misuse.epoch, misuse.steps, misuse.expected, surplus, misuse.omitted if surplus or short > 0 else Counter())


def is_padding(misuse: Misuse, ranks: Ledger) -> bool:
    """Whether the misuse is what filling up the last batch of an epoch does: nothing is left out, and less than one batch is repeated there."""
    last = ranks.at(misuse.steps[-1])
    surplus = sum(misuse.surplus.values())
    return (
        not misuse.omitted
        and not misuse.surplus - last
        and not misuse.surplus.keys() - misuse.expected.keys()
        and surplus < sum(last.values())
    )


def explain(wrong: Sequence[Misuse], ranks: Ledger) -> str:
    """The most telling cause of the misuse, in one sentence."""
    steps = tuple(sorted({step for misuse in wrong for step in misuse.steps}))
    surplus, omitted = total(misuse.surplus for misuse in wrong), total(misuse.omitted for misuse in wrong)
    lost = f", and {_counted(omitted)} of its share {_is(omitted)} never consumed" if omitted else ""
    if all(is_padding(misuse, ranks) for misuse in wrong):
        return f'the last batch of epoch {wrong[0].epoch} is filled up with {_counted(wrong[0].surplus)} consumed before; declare it under [capabilities] as padding = "the reason"'
    if shared := _seen_elsewhere(ranks, wrong):
        return _explain_shared(ranks, steps, shared, omitted)
    if surplus:
        rank, step = _first_repeat(ranks, surplus, wrong)
        return f"rank {rank} consumes {_counted(surplus)} twice in epoch {wrong[0].epoch} (first at step {step}){lost}"
    return f"{_counted(omitted)} of epoch {wrong[0].epoch} {_is(omitted)} never consumed{_short_rank(ranks, steps)}"


def _explain_shared(ranks: Ledger, steps: Sequence[int], shared: Shared, omitted: Samples) -> str:
    rank, other = shared.rank, shared.other
    rows = sum(ranks.of_rank(rank, ranks.steps).values())
    same_step = sum(sum((ranks.of_rank(rank, [step]) & ranks.of_rank(other, [step])).values()) for step in ranks.steps)
    if 2 * same_step >= rows:
        what = f"rank {rank} sees rank {other}'s samples: {same_step} of its {rows} rows are repeated across ranks in the same step"
        return (
            f"{what} (no distributed sampler, or the stream is not split by rank; ranks that compute one batch together without the mesh of their parameters showing it "
            'declare that under [capabilities] as "equivalence.data_coverage" = "the reason")'
        )
    own = sum(ranks.of_rank(rank, steps).values())
    left = f" while {_counted(omitted)} {_is(omitted)} never consumed" if omitted else ""
    return f"rank {rank} draws {shared.rows} of its {own} rows from rank {other}'s share{left}: the ranks shuffle with different seeds (or split with them, or list files in different orders), or start at the same place"


@dataclass(frozen=True, slots=True)
class Shared:
    """Surplus rows of a rank that another, lower one consumed too in the same epoch."""

    rank: int
    other: int
    rows: int


def _seen_elsewhere(ranks: Ledger, wrong: Sequence[Misuse]) -> Shared | None:
    """The pair of ranks with most surplus in common, if that explains at least half of the surplus."""
    surplus = sum(sum(misuse.surplus.values()) for misuse in wrong)
    pairs = [_shared(ranks, wrong, rank, other) for rank in range(1, ranks.world_size) for other in range(rank)]
    most = max(pairs, key=lambda pair: pair.rows, default=None)
    enough = most is not None and most.rows > 0 and 2 * most.rows * (ranks.world_size - 1) >= surplus
    return most if enough else None


def _shared(ranks: Ledger, wrong: Sequence[Misuse], rank: int, other: int) -> Shared:
    rows = 0
    for misuse in wrong:
        both = ranks.of_rank(rank, misuse.steps) & ranks.of_rank(other, misuse.steps)
        rows += sum(both[sample] for sample in misuse.surplus)
    return Shared(rank, other, rows)


def _first_repeat(ranks: Ledger, surplus: Samples, wrong: Sequence[Misuse]) -> tuple[int, int]:
    """The rank and step at which a surplus sample is consumed more often than the epoch holds it."""
    for misuse in wrong:
        seen: Samples = Counter()
        for step in misuse.steps:
            for rank, batch in sorted(ranks.by_rank.get(step, {}).items()):
                seen.update(batch)
                if any(seen[sample] > misuse.expected[sample] for sample in batch if sample in surplus):
                    return rank, step
    return 0, wrong[0].steps[0]


def _short_rank(ranks: Ledger, steps: Sequence[int]) -> str:
    """The first rank whose batch is smaller than its neighbours', in words."""
    for step in steps:
        rows = {rank: sum(batch.values()) for rank, batch in sorted(ranks.by_rank.get(step, {}).items())}
        if rows and min(rows.values()) < max(rows.values()):
            short = min(rows, key=lambda rank: rows[rank])
            return f": rank {short} takes {rows[short]} rows at step {step} where another rank takes {max(rows.values())}"
    return ": no rank takes them (a dropped tail, or a shard that is never read)"


def _cut_by_samples(single: Ledger, found: Epochs, ranks: Ledger) -> list[Misuse]:
    expected = Counter(single.sequence[: found.samples])
    step_of = [step for step in ranks.steps for _ in range(_rows(ranks, step))]
    cuts = range(0, len(ranks.sequence) - found.samples + 1, found.samples)
    return [
        _compare(
            index,
            tuple(sorted(set(step_of[first : first + found.samples]))),
            expected,
            Counter(ranks.sequence[first : first + found.samples]),
        )
        for index, first in enumerate(cuts, 1)
    ]


def _compare(epoch: int, steps: tuple[int, ...], expected: Samples, seen: Samples) -> Misuse:
    return Misuse(epoch, steps, expected, seen - expected, expected - seen)


def _same_batch_again(repeats: int) -> str:
    return (
        f"one device takes every row {repeats} times within a step, in several backward passes: either the step goes over the same batch again by design, or each of its "
        'micro-batches comes from another loader worker that reads the whole data set; if it is meant, declare it under [capabilities] as "equivalence.data_coverage" = "the reason"'
    )


def _multiplicity(single: Ledger, found: Epochs) -> int:
    """How often every sample of one device's first epoch is consumed: 1, unless all of them are repeated alike."""
    first = Counter(single.sequence[: found.samples or len(single.sequence)])
    return math.gcd(*first.values())


def _accepted(single: Ledger, found: Epochs, together: Sequence[Trace]) -> Finding:
    rows = len(single.sequence)
    if not found.samples:
        repeated = rows - len(set(single.sequence))
        if repeated > rows // 10:
            return undecided(
                f"one device's {rows} samples show no epochs ({repeated} are repeated): sampling with replacement cannot be judged so, declare it under [capabilities]"
            )
        return undecided(
            f"the {len(single.steps)} steps end within the first epoch ({rows} samples): raise [job] steps until an epoch border is crossed"
        )
    repeats = found.samples - len(set(single.sequence[: found.samples]))
    if found.tail == "dropped" and repeats > found.samples // 10:
        return undecided(
            f"what looks like an epoch of one device ({found.samples} rows) holds {repeats} of its samples more than once: loader workers that each read the "
            "whole data set, or rows of equal content; raise [job] steps beyond two epochs"
        )
    if not found.crossed:
        return undecided(f"the {len(single.steps)} steps cross no epoch border ({found.samples} samples): raise [job] steps")
    sizes = " and ".join(named(trace) for trace in together)
    tail = "" if found.tail == "kept" else "; the incomplete last batch of each epoch is dropped at every world size"
    groups = [group for trace in together for group in sharing(trace)]
    tail += "; ranks that hold parts of the same layers take the same samples, which count once" if groups else ""
    text = f"{sizes} consume the {found.samples} samples of an epoch exactly once, as one device does, over {rows} rows and {found.whole} whole epoch(s){tail}"
    return Finding(
        True,
        0,
        "samples",
        0,
        "at_most",
        text,
        samples=rows,
        power="one sample repeated or left out in one step",
        details={"epoch_samples": found.samples},
    )


def _finding(count: int, explanation: str, judged: Ledger, **details: int) -> Finding:
    return Finding(False, count, "samples", 0, "at_most", explanation, samples=len(judged.sequence), details=details)


def _rows(side: Ledger, step: int) -> int:
    return sum(side.at(step).values())


def _counted(samples: Samples) -> str:
    count = sum(samples.values())
    return f"{count} sample" if count == 1 else f"{count} samples"


def _is(samples: Samples) -> str:
    return "is" if sum(samples.values()) == 1 else "are"

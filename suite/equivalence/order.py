"""Judge: every optimizer step sees the same samples at every world size, and every epoch visits them in another order.

Equal losses prove nothing unless the samples behind them were equal; and an order that never changes makes every epoch repeat the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.ledger import Epochs, Ledger, epochs, ledger, repeats_within_steps
from suite.equivalence.recognition import unrecognisable
from suite.equivalence.sharing import strayed
from suite.equivalence.usable import named, undecided, unusable


def same_samples_each_step(alone: Trace, together: Sequence[Trace], padding: str = "", fixed_order: str = "") -> Finding:
    """Judge the global batches of several world sizes against one device's.

    padding, fixed_order: the job's declared reasons for filling up the last batch of an epoch, and for visiting all epochs in one order.
    """
    if reason := unusable([alone, *together], "samples"):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    single = ledger(alone)
    found = epochs(single)
    for trace in together:
        if said := strayed(trace):
            return _rejected(1, len(single.steps), f"{named(trace)}: {said}")
        ranks = ledger(trace)
        different = [step for step in single.steps if not _same(single, ranks, found, step, padding)]
        if different and (reason := unrecognisable(single, ranks, "equivalence.data_order", found)):
            return undecided(reason)
        if different:
            return _rejected(
                len(different), len(single.steps), f"{named(trace)}: {_explain(*_once(alone, trace, different[0]), found, different)}"
            )
    if not found.samples and (replaced := draws_with_replacement(single)):
        text = f"{' and '.join(named(trace) for trace in together)} take the same samples as one device in each of {len(single.steps)} optimizer steps; {replaced}"
        return Finding(True, 0, "steps", 0, "at_most", text, samples=len(single.steps), power="one sample changed in one step")
    if not found.crossed:
        return undecided(
            f"the same samples in each of {len(single.steps)} steps, but no epoch border is crossed: raise [job] steps so that reshuffling shows"
        )
    if not fixed_order and repeats_its_order(single, found):
        return _rejected(1, len(single.steps), _FIXED)
    sizes = " and ".join(named(trace) for trace in together)
    order = "all epochs in one declared order" if fixed_order else "a new order in each epoch"
    text = f"{sizes} take the same samples as one device in each of {len(single.steps)} optimizer steps, {order}"
    return Finding(True, 0, "steps", 0, "at_most", text, samples=len(single.steps), power="one sample changed in one step")


_FIXED = (
    "every epoch visits the samples in the same order at every world size: the sampler's set_epoch is never called, or the data is not shuffled; "
    'if that is meant, declare it under [capabilities] as fixed_order = "the reason"'
)


def repeats_its_order(side: Ledger, found: Epochs) -> bool:
    """Whether the second epoch goes through the samples just as the first did, as far as the run shows it. One batch per epoch has no order."""
    if not found.crossed or len(found.windows[0]) < 2:
        return False
    if side.world_size == 1:
        first, second = side.sequence[: found.samples], side.sequence[found.samples : 2 * found.samples]
        return first[: len(second)] == second
    return all(side.at(one) == side.at(two) for one, two in zip(found.windows[0], found.windows[1], strict=False))


def _same(single: Ledger, ranks: Ledger, found: Epochs, step: int, padding: str) -> bool:
    expected, seen = single.at(step), ranks.at(step)
    if expected == seen:
        return True
    ends_epoch = any(window[-1] == step for window in found.windows[: found.whole])
    return bool(padding) and ends_epoch and not expected - seen and sum(seen.values()) < 2 * sum(expected.values())


def _once(alone: Trace, together: Trace, step: int) -> tuple[Ledger, Ledger]:
    """Both ledgers with a row counted once where the model is given it several times in a step, unless that is the very difference."""
    repeats = repeats_within_steps(ledger(alone))
    single, ranks = ledger(alone, repeats), ledger(together, repeats)
    return (single, ranks) if single.at(step) != ranks.at(step) else (ledger(alone), ledger(together))


def _explain(single: Ledger, ranks: Ledger, found: Epochs, different: Sequence[int]) -> str:
    step = different[0]
    expected, seen = single.at(step), ranks.at(step)
    missing, foreign = sum((expected - seen).values()), sum((seen - expected).values())
    rows, wanted = sum(seen.values()), sum(expected.values())
    share = f"{len(different)} of {len(single.steps)} steps differ from one device's"
    if not rows:
        return f"step {step} was never made, so the ranks stop before one device does"
    if rows != wanted:
        short = (
            f"the global batch of step {step} holds {rows} samples where one device's holds {wanted} ({missing} missing, {foreign} more)"
        )
        return f"{short}; {share}"
    if len(found.windows) > 1 and step in found.windows[1][1:2] + found.windows[1][:1] and repeats_its_order(ranks, found):
        return f"epoch 2 repeats the order of epoch 1 while one device reshuffles: the sampler's set_epoch is never called ({share})"
    if replaced := _dealt_out(single, ranks):
        return f"{replaced} ({share})"
    window = next((window for window in found.windows if step in window), ())
    if missing > wanted // 2 and single.between(window) == ranks.between(window):
        return f"the epoch holds the same samples in another order, from step {step} on: the order depends on the world size ({share})"
    return f"in step {step} {missing} of {wanted} samples of the global batch {'is' if missing == 1 else 'are'} missing, others stand in; {share}"


def _dealt_out(single: Ledger, ranks: Ledger) -> str:
    """Whether one device draws with replacement what the ranks deal out each once, in words; "" where not.

    Looked at over as many rows as there are distinct samples: a shuffle meets nearly all of them there, drawing with replacement two thirds.
    """
    every = set(single.sequence) | set(ranks.sequence)
    first = min(len(every), len(single.sequence), len(ranks.sequence))
    drawn, dealt = len(set(single.sequence[:first])), len(set(ranks.sequence[:first]))
    if not first or dealt < 0.9 * first or drawn > 0.8 * first:
        return ""
    return (
        f"one device draws samples with replacement ({first - drawn} of its first {first} rows are repeats) where the ranks take each once "
        f"({first - dealt} repeats): its sampler is replaced by another one as soon as there are several ranks"
    )


def draws_with_replacement(side: Ledger) -> str:
    """That there is no epoch whose order could repeat, because samples are drawn with replacement, in words; "" where that does not show.

    Asked of a run in which no epoch was found: it must be three times as long as it has distinct samples, so that even a data set of which every
    row is there twice would have come round, and repeat so many of its first rows as no shuffle does.
    """
    every = len(set(side.sequence))
    repeats = every - len(set(side.sequence[:every]))
    if len(side.sequence) < 3 * every or repeats < 0.2 * every:
        return ""
    return f"they are drawn with replacement ({repeats} of the first {every} rows are repeats, and no epoch comes round in {len(side.sequence)}), so no order can repeat"


def _rejected(count: int, steps: int, explanation: str) -> Finding:
    return Finding(False, count, "steps", 0, "at_most", explanation, samples=steps)

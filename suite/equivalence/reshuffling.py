"""Judge: every epoch visits the samples in an order of its own, at every world size.

A sampler whose epoch number nobody advances shuffles once and repeats itself for ever: each loss looks right, and the model sees the same sequence of
batches again and again. Samplers' own tests check the sampler; this looks at what the ranks consumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.ledger import Epochs, Ledger, epochs, ledger
from suite.equivalence.usable import absent, named, undecided, unusable


def epochs_are_reshuffled(alone: Trace, together: Sequence[Trace] = (), fixed_order: str = "") -> Finding:
    """Judge the order of each epoch against that of the one before. fixed_order: the job's declared reason for visiting all in one order."""
    if fixed_order:
        return absent(f"the job declares that all epochs have one order: {fixed_order}")
    if reason := unusable([alone, *together], "samples"):
        return undecided(reason)
    single = ledger(alone)
    found = epochs(single)
    if not found.crossed:
        return undecided(
            f"no sample comes again within {len(single.steps)} steps of one device, so no epoch border is crossed: raise [job] steps beyond an epoch"
        )
    if len(found.windows[0]) < 2:
        return undecided("an epoch is one batch, which has no order: give more samples, or a smaller global batch")
    borders = 0
    for trace in (alone, *together):
        side = single if trace is alone else ledger(trace)
        for number, (before, after) in enumerate(pairwise(found.windows), 1):
            borders += 1
            if same_order(side, found, number, before, after):
                return _rejected(named(trace), number, after[0], borders)
    sizes = ", ".join(named(trace) for trace in (alone, *together))
    text = f"each of the {len(found.windows)} epochs within {len(single.steps)} steps has an order of its own ({sizes})"
    return Finding(True, 0, "epochs", 0, "at_most", text, samples=borders, power="two epochs of one order")


def steps_per_epoch(alone: Trace) -> int:
    """How many steps of one device the first epoch takes; 0 where the run shows no whole one."""
    if unusable(alone, "samples"):
        return 0
    found = epochs(ledger(alone))
    return len(found.windows[0]) if found.crossed else 0


def same_order(side: Ledger, found: Epochs, number: int, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether epoch number + 1 goes through the samples as epoch `number` did, as far as the run shows it: row by row on one device, else step by step."""
    if side.world_size == 1 and len(side.sequence) >= number * found.samples:
        first = side.sequence[(number - 1) * found.samples : number * found.samples]
        second = side.sequence[number * found.samples : (number + 1) * found.samples]
        return bool(second) and first[: len(second)] == second
    together = [(side.at(one), side.at(two)) for one, two in zip(before, after, strict=False)]
    return bool(together) and all(one == two for one, two in together)


def _rejected(who: str, number: int, step: int, borders: int) -> Finding:
    text = (
        f"{who}: epoch {number + 1} visits the samples in the order of epoch {number} (from step {step} on): the sampler's set_epoch is never called, or the "
        'data is not shuffled; if that is meant, declare it under [capabilities] as fixed_order = "the reason"'
    )
    return Finding(False, 1, "epochs", 0, "at_most", text, samples=borders, details={"epoch": number + 1, "step": step})

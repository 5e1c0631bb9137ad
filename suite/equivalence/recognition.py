"""Whether the rows of several ranks can be recognised among one device's at all.

Samples are known by their content. Where the job makes rows random before the model sees them (noise, flips, crops), and draws otherwise on each
rank or in each epoch, the rows that the ranks consume are strangers to one device's: that proves no mistake, and no equality either.
"""

from __future__ import annotations

from suite.equivalence.ledger import Epochs, Ledger, epochs

REPEATED_SHARE = 0.01  # of the rows: so many that are drawn at random meet by chance; ranks that are not told apart repeat nearly all
STRANGE_SHARE = 0.1  # of the rows: fewer strangers than that are single mistakes, which are named one by one
STRANGE_SHARE_WITH_EPOCHS = 0.9  # one device that meets its own rows again knows them, so only ranks that share nearly nothing are random


def unrecognisable(single: Ledger, ranks: Ledger, criterion: str, found: Epochs | None = None) -> str:
    """Why the ranks' rows cannot be held against one device's, and what to do about it; "" where they can.

    Ranks that take other amounts, or the same row in the same step, made a mistake whatever the rows are. criterion: whose declaration helps.
    """
    rows, own = len(ranks.sequence), set(single.sequence)
    if not _same_amounts(single, ranks) or repeated_across_ranks(ranks) > REPEATED_SHARE * rows:
        return ""
    strange = sum(sample not in own for sample in ranks.sequence)
    if strange <= (STRANGE_SHARE_WITH_EPOCHS if (found or epochs(single)).samples else STRANGE_SHARE) * rows:
        return ""
    return (
        f"{strange} of the {rows} rows that {ranks.world_size} ranks consume are none of one device's, although each step takes equally many and ranks take "
        "different ones: the rows are random per rank or epoch (augmentation, noise), or drawn in another order from more data than the run goes through; "
        f'raise [job] steps beyond an epoch, or, if the rows are random by design, declare it under [capabilities] as "{criterion}" = "the reason"'
    )


def repeated_across_ranks(ranks: Ledger) -> int:
    """Rows that a rank consumes in the step in which a lower one consumes them too."""
    repeated = 0
    for batches in ranks.by_rank.values():
        seen: set[str] = set()
        for _, batch in sorted(batches.items()):
            repeated += sum(count for sample, count in batch.items() if sample in seen)
            seen |= batch.keys()
    return repeated


def _same_amounts(single: Ledger, ranks: Ledger) -> bool:
    return single.steps == ranks.steps and all(sum(single.at(step).values()) == sum(ranks.at(step).values()) for step in single.steps)

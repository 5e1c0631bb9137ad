"""How ranks deal out other samples than one device does as a whole: an epoch of another length, or a data set split otherwise on each rank.

Both show as samples consumed too often and others never, step after step; said so, the cause would be looked for in the wrong place.
"""

from __future__ import annotations

from collections import Counter

from suite.equivalence.ledger import Epochs, Ledger, Samples, epochs


def another_length(found: Epochs, ranks: Ledger) -> str:
    """An epoch of the ranks that takes another number of steps than one device's, in words; "" where neither shows a border, or both are equal.

    Where one device drops the last incomplete batch, a sampler that fills the ranks' shares up first leaves them nothing to drop.
    """
    own = epochs(ranks)
    if not (found.crossed and own.crossed):
        return ""
    one, several = len(found.windows[0]), len(own.windows[0])
    if one == several or (found.tail == "kept" and own.tail == "kept"):
        return ""
    longer = "longer" if several > one else "shorter"
    why = " (its sampler fills up what one device drops)" if several > one and found.tail == "dropped" else ""
    return f"an epoch of the ranks is {longer} than one device's: {several} steps where that makes {one}{why}, so from step {min(one, several) + 1} on they are in other epochs"


def strangers(single: Ledger, found: Epochs, ranks: Ledger, surplus: Samples, held_back: Samples) -> str:
    """Samples that a rank trains on and one device never does, where they are most of what is too much, in words; else "".

    surplus: what the ranks consume too often or alone. held_back: what one device evaluates on.
    """
    if not found.whole:
        return ""
    own = set(single.sequence)
    if 2 * sum(count for sample, count in surplus.items() if sample not in own) < sum(surplus.values()):
        return ""
    by_rank = {rank: {sample for sample in ranks.of_rank(rank, ranks.steps) if sample not in own} for rank in range(ranks.world_size)}
    rank = max(by_rank, key=lambda one: len(by_rank[one]))
    if not by_rank[rank]:
        return ""
    missing = len(own - set(ranks.sequence))
    evaluated = sum(sample in held_back for sample in by_rank[rank])
    of_them = f", {evaluated} of which it holds back for evaluation," if evaluated else ""
    return (
        f"rank {rank} trains on {len(by_rank[rank])} samples that one device never trains on{of_them} and {missing} of one device's are never consumed: "
        "the ranks split the data with different seeds, so what one holds back another trains on"
    )


def all_of(evaluations: dict[int, dict[int, Counter[str]]]) -> Samples:
    """Every row of every evaluation. evaluations: number -> rank -> rows."""
    rows: Samples = Counter()
    for by_rank in evaluations.values():
        for batch in by_rank.values():
            rows.update(batch)
    return rows

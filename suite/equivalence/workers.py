"""Judge: the workers of a DataLoader repeat neither each other's samples nor each other's random draws.

Forked workers inherit every generator that the data set holds, and an iterable data set that does not ask which worker it is in hands out its stream once
per worker. Loss and ledger look healthy when only the augmentation repeats; so the workers' generators are compared, and what they returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.equivalence.usable import absent, named, records, undecided, unusable

Fetch = Mapping[str, Any]
Fetches = dict[int, list[Fetch]]
"""The first fetches of one iterator, by worker."""

HELD = "dataset."


def workers_are_distinct(traces: Sequence[Trace]) -> Finding:
    """Judge the first fetches of every worker of every run."""
    if reason := unusable(traces):
        return undecided(reason)
    loaders = [(trace, record) for trace in traces for record in records(trace, "loader")]
    most = max((record["workers"] for _, record in loaders), default=0)
    if most < 2:
        return absent(_none(len(loaders), most))
    compared = 0
    for trace in traces:
        for (rank, iterator), fetches in by_iterator(trace).items():
            compared += len(fetches) * (len(fetches) - 1) // 2
            if said := repeated_samples(fetches) or repeated_draws(fetches):
                return _rejected(f"{named(trace)}, rank {rank}, iterator {iterator}: {said}", compared)
        if said := _repeated_epochs(trace):
            return _rejected(f"{named(trace)}, {said}", compared)
    if not compared:
        return undecided(f"{most} DataLoader workers were started, but none could be watched: only forked ones can be")
    text = f"no two of up to {most} workers return the same samples or draw from one state of a generator ({compared} pairs)"
    return Finding(True, 0, "pairs of workers", 0, "at_most", text, samples=compared, power="one generator that two workers share")


def by_iterator(trace: Trace) -> dict[tuple[int, int], Fetches]:
    """(rank, iterator) -> worker -> its fetches in order; only of workers, only of training."""
    found: dict[tuple[int, int], Fetches] = defaultdict(lambda: defaultdict(list))
    for record in records(trace, "fetch"):
        if record["worker"] is not None and record.get("training", True):
            found[record["rank"], record["iterator"]][record["worker"]].append(record)
    return {
        place: {worker: sorted(one, key=lambda fetch: int(fetch["n"])) for worker, one in found[place].items()} for place in sorted(found)
    }


def repeated_samples(fetches: Fetches) -> str:
    """Two workers of which one returns mostly what the other does, in words; "" for none. Rows that repeat within one worker prove nothing."""
    rows = {worker: [row for fetch in one for row in fetch["samples"] or ()] for worker, one in fetches.items()}
    for one, two in combinations(sorted(rows), 2):
        own = set(rows[one])
        shared = sum(row in own for row in rows[two])
        if rows[two] and 2 * shared > len(rows[two]) and 2 * len(own) > len(rows[one]):
            return (
                f"worker {two} returns {shared} of its first {len(rows[two])} samples just as worker {one} does: each worker goes through the whole data set "
                "(split it by get_worker_info), or gets another's indices"
            )
    return ""


def repeated_draws(fetches: Fetches) -> str:
    """Two workers that draw from one state of a generator, in words; "" for none."""
    for one, two in combinations(sorted(fetches), 2):
        for name in sorted(drawn(fetches[one]) & drawn(fetches[two])):
            if fetches[one][0]["before"][name] == fetches[two][0]["before"][name]:
                return f"workers {one} and {two} draw the same random numbers from {_where(name)}"
    return ""


def drawn(fetches: Iterable[Fetch]) -> set[str]:
    """The generators that these fetches moved."""
    pairs = [(fetch["before"] or {}, fetch["after"] or {}) for fetch in fetches]
    return {name for before, after in pairs for name in before if name in after and before[name] != after[name]}


def _repeated_epochs(trace: Trace) -> str:
    """A worker that draws in a later epoch what it drew in an earlier one, in words."""
    every = by_iterator(trace)
    for (rank, iterator), (other_rank, later) in combinations(every, 2):
        if rank != other_rank:
            continue
        for worker in every[rank, iterator].keys() & every[rank, later].keys():
            first, second = every[rank, iterator][worker], every[rank, later][worker]
            for name in sorted(drawn(first) & drawn(second)):
                if first[0]["before"][name] == second[0]["before"][name]:
                    return (
                        f"rank {rank}: worker {worker} draws in iterator {later} what it drew in iterator {iterator}, from {_where(name)}"
                    )
    return ""


def _where(name: str) -> str:
    if name.startswith(HELD):
        return f"{name}: the data set holds a generator, and each forked worker a copy of it (derive it from torch.initial_seed() in the worker)"
    return f"{name}'s generator: the workers are seeded alike (worker_init_fn, or a fixed seed in the data set)"


def _none(loaders: int, most: int) -> str:
    if not loaders:
        return "no torch DataLoader was iterated in any run, so there are no workers of one"
    return (
        f"each of {loaders} DataLoader iterators loads in the training process"
        if not most
        else f"no DataLoader has more than {most} worker"
    )


def _rejected(text: str, compared: int) -> Finding:
    return Finding(False, 1, "pairs of workers", 0, "at_most", text, samples=max(compared, 1))

"""Judge: ranks draw different random numbers (dropout, augmentation) but begin from the same initial weights.

One seed for all processes gives every rank the same dropout masks and the same augmentation, so a larger world adds less noise than it seems to. In the
loss this looks like nothing at all; so the states of the generators are compared where they are drawn from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.equivalence.loop_draws import again_in_forward, again_in_loop, loop_draws, same_in_loop
from suite.equivalence.shards import sharded
from suite.equivalence.sharing import sharing
from suite.equivalence.usable import absent, named, records, several, size, undecided, unusable
from suite.equivalence.workers import drawn


def ranks_draw_apart(alone: Trace, together: Sequence[Trace]) -> Finding:
    """Judge the initial weights, then what ranks draw in forwards and fetches."""
    runs = several(together)
    if not runs:
        return undecided("there is only one rank, nothing to draw apart from: start with --world-size 2")
    if reason := unusable([alone, *runs]):
        return undecided(reason)
    if all(len(group) == size(trace) for trace in runs for group in sharing(trace) or ((),)):
        return absent("all ranks hold parts of the same layers and are given the same samples: there is one draw, not one per rank")
    for trace in runs:
        if said := _other_beginning(alone, trace) or same_masks(trace) or same_augmentation(trace) or same_in_loop(alone, trace):
            return Finding(False, 1, "pairs of ranks", 0, "at_most", f"{named(trace)}: {said}", samples=_forwards(runs))
    for trace in (alone, *runs):
        if said := again_in_forward(forward_draws(trace)) or again_in_loop(trace):
            return Finding(False, 1, "steps", 0, "at_most", f"{named(trace)}: {said}", samples=_forwards(runs))
    places = {"forward": forward_draws, "data loading": _fetch_draws, "the training loop": loop_draws}
    seen = [name for name, look in places.items() if any(map(look, runs))]
    if not seen:
        return _nothing_drawn(runs)
    where = " and ".join(seen)
    text = (
        f"no two ranks draw from one state of a generator in {where} ({_forwards(runs)} forwards), and all begin from one device's weights"
    )
    return Finding(True, 0, "pairs of ranks", 0, "at_most", text, samples=_forwards(runs), power="one step in which two ranks draw alike")


def forward_draws(trace: Trace) -> dict[int, dict[int, str]]:
    """Step -> rank -> the state of torch's generators before the first forward of the step, where that forward drew from them."""
    found: dict[int, dict[int, str]] = {}
    for step, rank, pair in zip(
        trace.steps["step"].tolist(), trace.steps["rank"].tolist(), trace.steps["forward_rng"].tolist(), strict=True
    ):
        if pair and len(pair) == 2 and pair[0] != pair[1]:
            found.setdefault(step, {})[rank] = pair[0]
    return found


def same_masks(trace: Trace) -> str:
    """Two ranks whose forwards draw from one state, in words."""
    for step, row in sorted(forward_draws(trace).items()):
        for one, two in _pairs(trace, row):
            if row[one] == row[two]:
                return (
                    f"ranks {one} and {two} draw the same random numbers in the forward of step {step}: their dropout masks are equal (one seed for all ranks; "
                    "seed by rank once the model is built)"
                )
    return ""


def same_augmentation(trace: Trace) -> str:
    """Two ranks whose fetches from a mapped data set draw from one state of a generator, in words.

    Iterable data sets are left out: they may shuffle alike on every rank by design, and take their share of what comes.
    """
    fetches: dict[tuple[int, int, int], dict[int, dict[str, str]]] = {}
    for record in records(trace, "fetch"):
        if not record.get("iterable") and record.get("training", True):
            before = {name: record["before"][name] for name in drawn([record])}
            worker = -1 if record["worker"] is None else record["worker"]
            fetches.setdefault((record["iterator"], worker, record["n"]), {})[record["rank"]] = before
    for (_, worker, _), row in sorted(fetches.items()):
        for one, two in _pairs(trace, row):
            if shared := sorted(name for name in row[one] if row[two].get(name) == row[one][name]):
                whose = "ranks" if worker < 0 else f"workers {worker} of ranks"
                return f"{whose} {one} and {two} draw the same random numbers from {shared[0]} while they load: one augmentation for all (one seed for all ranks)"
    return ""


def _pairs(trace: Trace, ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of ranks that should draw apart: not those that compute one batch together."""
    groups = sharing(trace)
    return [(one, two) for one, two in combinations(sorted(ranks), 2) if not any({one, two} <= set(group) for group in groups)]


def _other_beginning(alone: Trace, trace: Trace) -> str:
    if "whole_parameters" in trace.not_seen() or sharded(trace):
        return ""
    try:
        single = alone.start().get("param_digest")
        row = {rank: trace.start(rank).get("param_digest") for rank in range(size(trace))}
    except NotSeen:
        return ""
    rank = next((rank for rank, digest in row.items() if digest != row[0]), None)
    if rank is not None:
        return f"rank {rank} begins from other weights than rank 0: they are drawn from each rank's seed and not sent round"
    if row[0] != single:
        return "the initial weights are not one device's: they depend on the number of ranks"
    return ""


def _fetch_draws(trace: Trace) -> bool:
    return any(drawn([record]) for record in records(trace, "fetch"))


def _nothing_drawn(runs: Sequence[Trace]) -> Finding:
    if dropouts := next((trace.model().get("dropouts") for trace in runs if trace.model().get("dropouts")), None):
        return undecided(
            f"the model has dropout ({dropouts[0]}), but its forwards moved none of torch's generators: it draws from one that was not watched"
        )
    if not all(pair and len(pair) == 2 for trace in runs for pair in trace.steps["forward_rng"]):
        return undecided("the generators were not watched in every forward")
    fetches = sum(len(records(trace, "fetch")) for trace in runs)
    loaders = [record for trace in runs for record in records(trace, "loader") if record["workers"]]
    if loaders and not fetches:
        return undecided(
            "the forwards draw no random number, but what the DataLoader's workers draw was not seen: only forked ones can be watched"
        )
    return absent(
        f"no random number is drawn: the generators stood still in {_forwards(runs)} forwards and {fetches} fetches, and the model has no dropout"
    )


def _forwards(runs: Sequence[Trace]) -> int:
    return sum(len(trace.steps) for trace in runs)

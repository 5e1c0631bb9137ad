"""What the training loop draws itself, between the loader and the model: noise, crops, mixing.

Two mistakes are looked for. All ranks draw from one state, so they add the same noise; and a generator is seeded anew, so the same numbers come again with
other samples. A loop may well draw alike on all ranks on purpose: to choose the samples of the global batch, of which each rank takes its share. Then
it moves as one device's does, whatever the number of ranks, and the rows that it gives to the model are rows of the loader or of one device. Only draws that
go with the size of a rank's share, in a loop that alters what it was handed, count as augmentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise

from fixtures.trace import Trace
from suite.equivalence.ledger import ledger
from suite.equivalence.recognition import STRANGE_SHARE_WITH_EPOCHS

States = Mapping[int, Mapping[int, Mapping[str, str]]]
"""Rank -> step -> generator -> the digest of its state when the step's first forward begins."""


def loop_states(trace: Trace) -> States:
    """The states of the loop's generators; empty where the loop gives the model what the loader handed over, or that was not seen."""
    found: dict[int, dict[int, Mapping[str, str]]] = {}
    altered: list[bool] = []
    for rank, step, seen in zip(trace.steps["rank"].tolist(), trace.steps["step"].tolist(), trace.steps["loop_rng"].tolist(), strict=True):
        if isinstance(seen, dict):
            found.setdefault(rank, {})[step] = seen["states"]
            altered += [] if seen["altered"] is None else [seen["altered"]]
    return found if altered and all(altered) else {}


def loop_draws(trace: Trace) -> set[str]:
    """The generators that move between most forwards of a loop which alters what it was handed."""
    return {name for by_step in loop_states(trace).values() for name in _moving(by_step)}


def same_in_loop(alone: Trace, trace: Trace) -> str:
    """Two ranks whose loops draw from one state, in words; "" where none do, or where one device's loop draws just so."""
    ranks, single = loop_states(trace), loop_states(alone).get(0, {})
    if not _strange(alone, trace):
        return ""
    for one, two in combinations(sorted(ranks), 2):
        for name in sorted(_moving(ranks[one]) & _moving(ranks[two])):
            alike = [
                step
                for step in ranks[one]
                if ranks[one][step].get(name) == ranks[two].get(step, {}).get(name) != single.get(step, {}).get(name, "absent")
                and name in single.get(step, {})
            ]
            if 2 * len(alike) > len(ranks[one]):
                return (
                    f"ranks {one} and {two} draw the same random numbers from {_called(name)} in the training loop, from step {min(alike)} on: "
                    "one augmentation for all ranks (one seed for all of them; seed it by rank)"
                )
    return ""


def again_in_loop(trace: Trace) -> str:
    """A generator of the loop that comes back to a state it drew from before, with other samples, in words."""
    batches = ledger(trace)
    for rank, by_step in sorted(loop_states(trace).items()):
        for name in sorted(_moving(by_step)):
            again = _again({step: states[name] for step, states in by_step.items() if name in states})
            if again and batches.of_rank(rank, [again[0]]) != batches.of_rank(rank, [again[1]]):
                return (
                    f"rank {rank} draws the same random numbers from {_called(name)} in the training loop of step {again[1]} as in that of step {again[0]} again: "
                    "the generator is seeded anew (at the beginning of each epoch?), so every epoch distorts alike"
                )
    return ""


def again_in_forward(draws: Mapping[int, Mapping[int, str]]) -> str:
    """A rank whose forwards come back to a state they drew from before, in words. draws: step -> rank -> state before the forward."""
    for rank in sorted({rank for row in draws.values() for rank in row}):
        if again := _again({step: row[rank] for step, row in draws.items() if rank in row}):
            return (
                f"rank {rank} draws the same random numbers in the forward of step {again[1]} as in that of step {again[0]} again: "
                "the generator is seeded anew (at the beginning of each epoch?), so every epoch has the same dropout masks"
            )
    return ""


def _again(states: Mapping[int, str]) -> tuple[int, int] | None:
    """The first two steps with one state that goes on alike in the steps behind them, with other states between; None where there are none."""
    steps = sorted(states)
    first: dict[str, int] = {}
    for place, step in enumerate(steps):
        earlier = first.setdefault(states[step], place)
        moved = len({states[between] for between in steps[earlier : place + 1]}) > 1
        if earlier < place and moved and place + 1 < len(steps) and states[steps[earlier + 1]] == states[steps[place + 1]] != states[step]:
            return steps[earlier], step
    return None


def _moving(by_step: Mapping[int, Mapping[str, str]]) -> set[str]:
    """The generators that have moved in at least half of the steps."""
    steps = sorted(by_step)
    pairs = list(pairwise(steps))
    names = {name for states in by_step.values() for name in states}
    return {
        name for name in names if pairs and 2 * sum(by_step[one].get(name) != by_step[two].get(name) for one, two in pairs) >= len(pairs)
    }


def _strange(alone: Trace, trace: Trace) -> bool:
    """Whether the rows of the ranks are nearly all strangers to one device's: where they are known again, what is drawn chooses samples."""
    own, rows = set(ledger(alone).sequence), ledger(trace).sequence
    return sum(row not in own for row in rows) > STRANGE_SHARE_WITH_EPOCHS * len(rows)


def _called(name: str) -> str:
    return f"{name}'s generator" if name in {"torch", "python", "numpy"} else name

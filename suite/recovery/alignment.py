"""A resumed run laid beside the uninterrupted one: at which step it came back, and the first thing that then differs.

Nothing the job says is believed. The state that a resumed process holds before its first step is looked up among the states of the
control by the digest of its parameters; from there on, step by step and rank by rank, everything that was recorded has to be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fixtures.trace import NotSeen, Trace
from suite.recovery.rounding import LATER, Rounded, loss_deviation, other_sums, precision, seen_of_sums

CAUSES = ("samples", "lr", "scales", "rng", "losses", "grad_digest", "optimizer_digest", "buffer_digest", "copy_digest", "param_digest")
"""What is compared, causes before effects: the first that differs is named as the reason of those behind it."""
NOT_IN_EVERY_JOB = ("scales", "copy_digest")
"""Parts that a job may do without: absent on both sides they are no gap."""

WORDS = {
    "samples": "samples",
    "lr": "learning rate",
    "scales": "loss scale",
    "rng": "RNG",
    "losses": "loss",
    "grad_digest": "gradient",
    "optimizer_digest": "optimizer state",
    "buffer_digest": "buffers",
    "copy_digest": "averaged weights",
    "param_digest": "parameters",
}

State = Mapping[str, Any]
States = Mapping[int, Mapping[int, State]]
"""By rank, then step (0: before the first step)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step (of the control's count) at which a rank's record differs, and all the parts that differ there."""

    step: int
    rank: int
    parts: tuple[str, ...]
    expected: State
    seen: State

    @property
    def root(self) -> str:
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A resumed run against the control, taken to have come back at `step`: how many steps were compared, the first difference, what was
    not seen. rounded: from where on numbers are equal to rounding only, None where they are equal bit for bit.
    """

    step: int
    compared: int
    difference: Difference | None
    unseen: tuple[str, ...]
    rounded: Rounded | None = None


def states_of(trace: Trace) -> States:
    """What each rank recorded at each step, in a form in which equal means bit-equal (NaN equals NaN)."""
    samples = {key: tuple(group["sample"]) for key, group in trace.samples.groupby(["rank", "step"])}
    sums = seen_of_sums(trace)
    bound = precision(trace) if not trace.steps.empty else 0.0
    found: dict[int, dict[int, State]] = {rank: {0: _start(trace, rank)} for rank in trace.ranks}
    for row in trace.steps.to_dict("records"):
        rank, step = int(row["rank"]), int(row["step"])
        found[rank][step] = {part: _comparable(row.get(part)) for part in CAUSES if part != "samples"} | {
            "samples": samples.get((rank, step)),
            **sums.get((rank, step), {}),
            "precision": bound,
        }
    return found


def gone_on(control: States, resumed: States, step: int) -> States:
    """The control up to `step`, and from there on the run that resumed at it: what a run that resumes from *its* checkpoints is held against.

    The two may differ by rounding (see `suite.recovery.rounding`); then nothing that the resumed run saved is a state of the control's.
    """
    return {
        rank: {at: state for at, state in states.items() if at <= step}
        | {at + step: state for at, state in resumed.get(rank, {}).items() if at}
        for rank, states in control.items()
    }


def steps_restored(control: States, resumed: States, rank: int) -> tuple[int, ...]:
    """The control's steps (0: its start) whose parameters this rank of the resumed run held before its own first step."""
    digest = resumed[rank][0].get("param_digest")
    return tuple(
        step for step, state in sorted(control.get(rank, {}).items()) if digest is not None and state.get("param_digest") == digest
    )


def compare_from(control: States, resumed: States, step: int) -> Comparison:
    """Compare every step of the resumed run with the control's, given that it came back at the control's step `step`."""
    ranks = sorted(set(control) & set(resumed))
    draws = {rank for rank in ranks if draws_at_most_steps(control[rank])}
    steps = sorted({at for rank in ranks for at in resumed[rank] if at and at + step in control[rank]})
    unseen: set[str] = set() if draws else {"rng"}
    rounded: Rounded | None = None
    for at in steps:
        apart: list[Difference] = []
        for rank in ranks:
            expected, seen = control[rank].get(at + step), resumed[rank].get(at)
            if expected is None or seen is None:
                continue
            parts = [part for part in CAUSES if (part != "rng" or rank in draws) and not _absent(part, expected, seen)]
            unseen |= {part for part in parts if expected.get(part) is None or seen.get(part) is None}
            differing = tuple(part for part in parts if part not in unseen and expected[part] != seen[part])
            if rounded and differing:
                deviation = loss_deviation(expected["losses"], seen["losses"]) if "losses" in differing else 0.0
                rounded = replace(rounded, loss=max(rounded.loss, deviation))
                differing = tuple(part for part in differing if part not in LATER or (part == "losses" and deviation > rounded.bound))
            apart += [Difference(at + step, rank, differing, expected, seen)] if differing else []
        if apart and at == 1 and (rounded := _rounded(control, resumed, step, apart)):
            continue
        if apart:  # what differs on one rank reaches the others by the reduction, so the rank where it begins is named
            first = min(apart, key=lambda found: (CAUSES.index(found.root), found.rank))
            return Comparison(step, at, first, tuple(sorted(unseen)), rounded)
    return Comparison(step, len(steps), None, tuple(sorted(unseen)), rounded)


def _rounded(control: States, resumed: States, step: int, apart: Iterable[Difference]) -> Rounded | None:
    """Whether the first step after the restart differs by the order of a sum alone: from there on numbers are compared as such."""
    ranks = set(control) & set(resumed)
    found = other_sums(control, {rank: resumed[rank] for rank in ranks}, step, {one.rank: one.parts for one in apart})
    bound = max((float(control[rank].get(step + 1, {}).get("precision", 0.0)) for rank in ranks), default=0.0)
    return None if found is None or found > bound else Rounded(step + 1, found, 0.0, bound)


def _absent(part: str, expected: State, seen: State) -> bool:
    return part in NOT_IN_EVERY_JOB and expected.get(part) is None and seen.get(part) is None


def draws_at_most_steps(states: Mapping[int, State]) -> bool:
    """Whether this rank draws random numbers in at least half of its steps (dropout, augmentation).

    A loader that draws one seed for each epoch does not count: if anything hangs on that seed, the samples differ and say so themselves.
    """
    drawn = [state.get("rng") for at, state in sorted(states.items()) if at]
    return len(drawn) > 1 and 2 * sum(before != after for before, after in pairwise(drawn)) >= len(drawn) - 1


def best_alignment(control: States, resumed: States, candidates: Iterable[int]) -> Comparison:
    """Of several steps with equal parameters (a learning rate of 0 leaves them be) the one from which the runs agree longest."""
    compared = [compare_from(control, resumed, step) for step in candidates]
    return max(compared, key=lambda found: (found.difference is None, found.compared, found.step))


def explain(difference: Difference, control: States) -> str:
    """What differs first, as one clause: the part, and for samples and learning rates in what way."""
    where = f"step {difference.step} on rank {difference.rank}"
    if difference.root == "samples":
        return f"{where}: samples: {_explain_samples(difference, control)}"
    if difference.root == "lr":
        return f"{where}: learning rate {_first_number(difference.seen['lr'])} instead of {_first_number(difference.expected['lr'])}"
    reason = {
        "rng": "RNG: the random state is not the saved one, so dropout and augmentation draw other numbers",
        "scales": f"loss scale and growth count {difference.seen['scales']} instead of {difference.expected['scales']}",
        "losses": f"loss {difference.seen['losses']} instead of {difference.expected['losses']} on the same samples",
        "grad_digest": "gradient: another one from equal samples and an equal loss (gradients accumulated before the save may be lost)",
        "optimizer_digest": "optimizer state: it is not the control's after the same step",
        "buffer_digest": "buffers (running statistics) are not the control's",
        "copy_digest": "averaged weights (EMA) are not the control's",
        "param_digest": "parameters are not the control's",
    }[difference.root]
    also = ", ".join(WORDS[part] for part in difference.parts[1:])
    return f"{where}: {reason}" + (f" (then also {also})" if also else "")


def _explain_samples(difference: Difference, control: States) -> str:
    seen, mine = difference.seen["samples"], control[difference.rank]
    same = [step for step, state in sorted(mine.items()) if state.get("samples") == seen]
    opening = epoch_starts(control)
    if same and same[0] in opening and same[0] != difference.step - 1:
        return f"the resumed run starts the data again from the epoch's beginning (the batch of step {same[0]} instead of that of step {difference.step})"
    if same:
        moved = same[0] - difference.step
        return f"the resumed run {'repeats' if moved < 0 else 'skips'} data: it takes the batch of step {same[0]}, {abs(moved)} steps {'back' if moved < 0 else 'ahead'}"
    expected = difference.expected["samples"] or ()
    if len(seen) < len(expected) and not Counter(seen) - Counter(expected):
        return f"only {len(seen)} of the {len(expected)} samples of that step: what was gathered of it before the save (earlier micro-batches) is lost"
    if sorted(seen) == sorted(expected):
        return "the same samples in another order"
    known = {sample for states in control.values() for state in states.values() for sample in state.get("samples") or ()}
    shared = sum(sample in known for sample in seen)
    return f"another order of the data: no step of the uninterrupted run has this batch ({shared} of its {len(seen)} samples occur in it elsewhere)"


def epoch_starts(control: States) -> tuple[int, ...]:
    """Steps at which the control begins an epoch: step 1, and where samples come round again after all were seen once."""
    starts, seen = [1], set[str]()
    for step in sorted({at for states in control.values() for at in states if at}):
        batch = [sample for states in control.values() for sample in (states.get(step) or {}).get("samples") or ()]
        if any(sample in seen for sample in batch):
            starts.append(step)
            seen = set()
        seen |= set(batch)
    return tuple(starts)


def _start(trace: Trace, rank: int) -> State:
    try:
        return {part: _comparable(value) for part, value in trace.start(rank).items() if part in CAUSES}
    except NotSeen:
        return {}


def _comparable(value: Any) -> Any:
    """Lists and floats by their shortest exact decimal form, so that NaN equals NaN; None and NaN cells of absent values stay absent."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    return repr(value) if isinstance(value, list | float) else value


def _first_number(listed: str) -> str:
    return listed.strip("[]").split(",")[0]

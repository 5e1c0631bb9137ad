"""How a job came back after a failure: one outcome out of few, because a loud failure, lost work and a silent wrong result are not the
same news.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fixtures.trace import Trace
from suite.recovery.alignment import WORDS, Comparison, States, best_alignment, explain, states_of, steps_restored
from suite.recovery.ends import how_it_ended, hung
from suite.recovery.rounding import Rounded

Outcome = Literal[
    "resumed_newest", "resumed_previous", "loud_failure", "silent_divergence", "fresh_start", "torn", "exit_0_without_resuming", "hang",
    "wrong_checkpoint", "not_seen",
]  # fmt: skip
GOOD: tuple[Outcome, ...] = ("resumed_newest", "resumed_previous")


@dataclass(frozen=True, slots=True)
class Return:
    """How a resumed run came back: `step` is the control's step whose state it held, `words` a sentence, `parts` what first differed,
    causes first. rounded: from where on its numbers equal the control's to rounding only.
    """

    outcome: Outcome
    step: int | None
    words: str
    parts: tuple[str, ...] = ()
    compared: int = 0
    unseen: tuple[str, ...] = ()
    rounded: Rounded | None = None


def come_back(control: Trace, resumed: Trace, *, newest: int, expected: States | None = None) -> Return:
    """Classify a resumed run against the uninterrupted control.

    `newest` is the step of the newest checkpoint that may exist; coming back earlier counts as the previous one. `expected` is
    `states_of(control)` where the caller has it already.
    """
    wanted, seen = expected or states_of(control), states_of(resumed)
    if hung(resumed):
        return Return("hang", None, f"the resumed run {how_it_ended(resumed).removeprefix('it ')}")
    if resumed.steps.empty:
        return _no_step(resumed)
    by_rank = {rank: steps_restored(wanted, seen, rank) for rank in sorted(set(wanted) & set(seen))}
    if not by_rank or any(seen[rank][0].get("param_digest") is None for rank in by_rank):
        return Return(
            "not_seen",
            None,
            f"what the resumed run restored was not seen: {resumed.not_seen() or 'no digest of its parameters was recorded'}",
        )
    common = set.intersection(*(set(steps) for steps in by_rank.values()))
    if not common:
        return _no_common_state(by_rank, resumed)
    return _judged(best_alignment(wanted, seen, sorted(common)), wanted, seen, resumed, newest)


def _no_step(resumed: Trace) -> Return:
    if resumed.crashed:
        return Return("loud_failure", None, f"loud failure: the resumed run made no step, {how_it_ended(resumed)}")
    return Return("exit_0_without_resuming", None, "exit 0 without resuming: every rank ended with code 0 and made no step")


def _no_common_state(by_rank: dict[int, tuple[int, ...]], resumed: Trace) -> Return:
    if any(by_rank.values()):
        held = "; ".join(
            f"rank {rank} the state of step {steps[0]}" if steps else f"rank {rank} no state of the control"
            for rank, steps in by_rank.items()
        )
        return Return("torn", None, f"torn: the ranks came back in different states ({held})", ("param_digest",))
    ending = f", and then {how_it_ended(resumed)}" if resumed.crashed else ""
    return Return(
        "silent_divergence",
        None,
        f"parameters: the resumed run began with weights that the uninterrupted run never had{ending}",
        ("param_digest",),
    )


def _mixed(wanted: States, seen: States, step: int) -> str:
    """Parameters of one step with the optimizer state of another, in words; "" where that is not so."""
    for rank in sorted(set(wanted) & set(seen)):
        held = seen[rank][0].get("optimizer_digest")
        if held is None or not step or held == wanted[rank][step].get("optimizer_digest"):
            continue
        if other := next((at for at, state in sorted(wanted[rank].items()) if at and state.get("optimizer_digest") == held), None):
            return f"torn: rank {rank} came back with the parameters of step {step} and the optimizer state of step {other}"
    return ""


def _judged(found: Comparison, wanted: States, seen: States, resumed: Trace, newest: int) -> Return:
    parts = found.difference.parts if found.difference else ()
    if found.step == 0:
        return Return(
            "fresh_start",
            0,
            "fresh start: the resumed run began again from step 0 without a word of the lost work",
            parts,
            found.compared,
            found.unseen,
        )
    if resumed.crashed:
        words = f"loud failure: it came back at step {found.step} and then {how_it_ended(resumed)}"
        return Return("loud_failure", found.step, words, parts, found.compared, found.unseen)
    if mixed := _mixed(wanted, seen, found.step):
        return Return("torn", None, mixed, parts, found.compared, found.unseen)
    if found.difference is not None:
        words = f"came back at step {found.step} but is not the uninterrupted run: first difference in {explain(found.difference, wanted)}"
        return Return("silent_divergence", found.step, words, parts, found.compared, found.unseen)
    last, reached = max(wanted[min(wanted)]), found.step + int(resumed.steps["step"].max())
    if reached > last:
        words = f"came back at step {found.step} and went on to step {reached}, where the uninterrupted run ends with step {last}"
        return Return("silent_divergence", found.step, words, ("steps",), found.compared, found.unseen)
    if not found.compared:
        return Return("not_seen", found.step, f"came back at step {found.step} but no later step can be compared", (), 0, found.unseen)
    if reached < last and not resumed.spec.get("stop_after"):  # one that was to be stopped early ends early
        words = f"came back at step {found.step} and ended with step {reached}, where the uninterrupted run ends with step {last}"
        return Return("silent_divergence", found.step, words, ("steps",), found.compared, found.unseen)
    outcome: Outcome = "resumed_newest" if found.step >= newest else "resumed_previous"
    how = found.rounded.words(len(seen)) if found.rounded else "bit for bit"
    words = f"came back at step {found.step} and its {found.compared} later steps equal the uninterrupted run {how}"
    return Return(outcome, found.step, words, (), found.compared, found.unseen, found.rounded)


def names_of(parts: tuple[str, ...]) -> str:
    """Parts of the state in words for a sentence."""
    return ", ".join(WORDS[part] for part in parts)

"""A resumed run at four ranks that differs in the last bit: accepted where another order of sums is seen to explain it, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.alignment import gone_on, states_of
from suite.recovery.cases import Case, all_come_back
from suite.recovery.continuation import continues
from suite.recovery.restore import Restored, restores
from suite.recovery.returns import come_back
from suite.selftest.findings import accepted, rejected
from suite.selftest.synthetic import ended_well, make_trace

STEPS, BACK, RANKS = 10, 4, 4
LAID_OUT = [["allreduce", 24, 1, 2, "backward"], ["allreduce", 12, 1, 2, "backward"]]
AS_BUILT = [["allreduce", 36, 1, 2, "backward"]]
Change = Callable[[Record], Record]


def control(ranks: int = RANKS) -> Trace:
    return make_trace(steps=STEPS, ranks=ranks, optimizer_digest=lambda rank, step: f"{step + 500:016x}", collectives=LAID_OUT)


def killed(ranks: int = RANKS) -> Trace:
    fault = {
        "kind": "fault",
        "rank": 1,
        "fault": {"kind": "kill", "rank": 1, "step": 7, "operation": None},
        "step": 7,
        "t_ns": 7_000_000_000,
    }
    return make_trace(steps=6, ranks=ranks, extra=(fault,), ended=ended_well(ranks, rank1=-9))


def resumed(change: Change | None = None, *, ranks: int = RANKS, as_built: Any = AS_BUILT, back: int = BACK, tag: str = "r") -> Trace:
    """Comes back at step `back`; all numbers behind its first gradient differ in the last bit, and its first step reduces one piece instead of two."""

    def moved(record: Record) -> Record | None:
        if record["kind"] == "start":
            record = {**record, "param_digest": f"{back:016x}", "optimizer_digest": f"{back + 500:016x}", "buffer_digest": f"{0:016x}"}
        if record["kind"] == "step":
            if record["step"] <= back:
                return None
            own = dict.fromkeys(("grad_digest", "param_digest", "optimizer_digest"), f"{tag}{record['step']}")
            norms = [norm * (1 + 1e-7) for norm in record["grad_norms"]]
            later = {} if record["step"] == back + 1 else {"losses": [record["losses"][0] * (1 + 1e-7)]}
            pieces = as_built if record["step"] == back + 1 else LAID_OUT
            record = {**record, **own, **later, "grad_norms": norms, "collectives": pieces, "step": record["step"] - back}
        return change(record) if change else record

    return make_trace(steps=STEPS, ranks=ranks, change=moved)


def at(step: int, **values: Any) -> Change:
    """Other values in one step of the resumed run (0: its start)."""
    kind = "step" if step else "start"
    return lambda record: {**record, **values} if record["kind"] == kind and record["step"] == step else record


def test_the_last_bit_is_accepted_and_said() -> None:
    finding = continues(control(), killed(), resumed(), every=4)
    accepted(finding)
    assert "from step 5 on to rounding only" in finding.explanation
    assert "bit for bit: samples" not in finding.explanation
    assert "differs by 1e-07 of its norm" in finding.explanation


def test_a_run_that_is_equal_bit_for_bit_says_nothing_of_rounding() -> None:
    finding = continues(control(), killed(), resumed(lambda record: record, back=BACK, as_built=LAID_OUT, ranks=RANKS), every=4)
    assert finding.accepted is False  # other bits with the pieces of the control have no explanation


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (at(0, optimizer_digest="lost"), "gradient"),
        (at(0, buffer_digest="lost"), "gradient"),
        (at(0, optimizer_digest=None), "gradient"),
        (at(1, rng="lost"), "RNG"),
        (at(1, losses=[0.2000001]), "loss"),
        (at(1, lr=[0.2]), "learning rate"),
        (at(1, grad_norms=[0.9, 0.6]), "gradient"),
        (at(1, buffer_digest="lost"), "gradient"),
        (at(3, samples=["a", "b"]), "samples"),
        (at(3, lr=[0.2]), "learning rate"),
        (at(4, rng="lost"), "RNG"),
        (at(4, losses=[0.2]), "loss"),
    ],
)
def test_what_another_order_of_sums_does_not_explain_is_rejected(change: Change, words: str) -> None:
    rejected(continues(control(), killed(), resumed(change), every=4), words)


def test_two_ranks_have_one_order() -> None:
    rejected(continues(control(2), killed(2), resumed(ranks=2), every=4), "gradient")


def test_a_layout_that_is_sent_round_explains_it_where_pieces_are_as_large() -> None:
    def sent_round(record: Record) -> Record:
        if record["kind"] != "step" or record["step"] != 2:
            return record
        return {**record, "collectives": [["broadcast", 36, 1, 2, "forward"], *record["collectives"]]}

    accepted(continues(control(), killed(), resumed(sent_round, as_built=LAID_OUT), every=4))
    rejected(continues(control(), killed(), resumed(as_built=LAID_OUT), every=4), "gradient")


def test_a_restore_weakens_its_words_too() -> None:
    finding = restores(control(), [Restored(BACK, killed(), resumed())], every=4)
    accepted(finding)
    assert "from step 5 on to rounding only" in finding.explanation
    rejected(
        restores(control(), [Restored(BACK, killed(), resumed(at(0, optimizer_digest="lost")))], every=4),
        "optimizer state restored on rank 0",
    )


def test_a_second_restart_is_held_against_the_first() -> None:
    first = resumed()
    assert come_back(control(), first, newest=BACK).rounded is not None
    expected = gone_on(states_of(control()), states_of(first), BACK)

    def second(record: Record) -> Record:
        if record["kind"] == "start":
            return {**record, "param_digest": "r8", "optimizer_digest": "r8"}
        equal = record["kind"] == "step" and record["step"] == 1  # the loss of weights that are the first's, bit for bit
        return {**record, "losses": [record["losses"][0] * (1 + 1e-7)]} if equal else record

    again = resumed(second, back=8, tag="s")
    accepted(all_come_back(control(), [Case("killed again", again, newest=8, expected=expected)]))
    rejected(all_come_back(control(), [Case("killed again", again, newest=8)]), "weights that the uninterrupted run never had")

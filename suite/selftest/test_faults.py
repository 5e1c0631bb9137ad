"""Faults are data: equal, hashable, written to JSON and back, and a wrong one says what is known."""

from __future__ import annotations

import json

import pytest

from fixtures.faults import KINDS, Fault, FaultError, faults_to_json

ONE_OF_EACH = (
    Fault("sleep", rank=1, ms=50, where="backward"),
    Fault("kill", rank=0, step=3),
    Fault("kill", rank=0, operation=7),
    Fault("hang", rank=1, step=2),
    Fault("scale_gradient", rank=1, factor=1.01),
    Fault("desync_gradient", rank=1, factor=1.01, from_step=3),
    Fault("desync_parameter", rank=1, step=3, delta=1e-3),
    Fault("skip_sample", rank=1, step=2),
    Fault("duplicate_sample", rank=1),
    Fault("shuffle_samples", rank=0),
    Fault("damage_batch", rank=0, step=2, how="nan"),
    Fault("exit_zero"),
    Fault("forget", part="optimizer"),
    Fault("rotate_first", rank=0),
    Fault("copy_rename"),
    Fault("preempt", step=6),
    Fault("mute"),
    Fault("damage_restored"),
    Fault("slow_resume", ms=50),
    Fault("slow_save", ms=50),
    Fault("disturb_save", delta=1e-3),
    Fault("store_full", step=8),
    Fault("store_read_only", step=8),
    Fault("checkpoint_flip"),
    Fault("replay_epoch", steps=8),
    Fault("tiny_set", rows=8),
    Fault("repeat_worker"),
    Fault("same_seed"),
    Fault("desync_buffer", rank=1, delta=0.5),
    Fault("drop_gradient", rank=1),
    Fault("scale_loss", rank=1, factor=1.5),
    Fault("scale_loss", by="rows"),
    Fault("rank_steps"),
    Fault("overflow", rank=1, step=2),
    Fault("carry_away", step=2),
    Fault("clip_by_part", rank=1),
    Fault("coarse_reduce", dtype="bfloat16"),
    Fault("pad_evaluation", rank=1),
    Fault("full_store"),
    Fault("missing_store", from_save=1),
    Fault("slow_store", bytes_per_s=1000),
    Fault("slow_link", times=4),
    Fault("draw_batches", times=8, last=4),
    Fault("input_truncated", name="events", keep=0.5),
)


def test_every_kind_has_an_example() -> None:
    assert {fault.kind for fault in ONE_OF_EACH if not fault.kind.startswith(("input_", "checkpoint_"))} == set(KINDS)


@pytest.mark.parametrize("fault", ONE_OF_EACH, ids=lambda fault: fault.kind)
def test_a_fault_survives_json(fault: Fault) -> None:
    again = Fault.from_json(json.loads(json.dumps(fault.to_json())))
    assert again == fault
    assert hash(again) == hash(fault)
    assert fault.describe()
    assert "{" not in fault.describe()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "sleeep"}, "unknown fault kind 'sleeep'; use one of 'carry_away', 'clip_by_part'"),
        ({"kind": "sleep", "ms": 5}, "needs 'where'"),
        ({"kind": "sleep", "ms": 5, "where": "nowhere"}, "where='nowhere'; use one of 'backward'"),
        ({"kind": "sleep", "ms": "5", "where": "data"}, "ms='5'; give a number"),
        ({"kind": "sleep", "ms": -5, "where": "data"}, "not negative"),
        ({"kind": "hang", "rank": 1}, "needs 'step'"),
        ({"kind": "hang", "rank": -1, "step": 1}, "rank=-1"),
        ({"kind": "hang", "rank": 1, "step": 0}, "step=0"),
        ({"kind": "scale_gradient", "factor": 2.0, "fraction": 1}, "takes no 'fraction'; it takes 'factor', 'from_step'"),
        ({"kind": "exit_zero", "step": 2}, "takes no step"),
        ({"kind": "kill", "rank": 1}, "either step or operation"),
        ({"kind": "kill", "rank": 1, "step": 2, "operation": 2}, "either step or operation"),
        ({"kind": "forget", "part": "data"}, "part='data'"),
    ],
)
def test_a_wrong_fault_is_one_sentence(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(FaultError) as caught:
        Fault(**arguments)  # type: ignore[arg-type]
    assert words in str(caught.value), f"expected {words!r} in the message, saw {str(caught.value)!r}"
    assert "\n" not in str(caught.value)


def test_a_twin_is_swept_by_replacing_a_parameter() -> None:
    smaller = Fault("scale_gradient", rank=1, factor=1.01).with_parameters(factor=1.001)
    assert smaller == Fault("scale_gradient", rank=1, factor=1.001)


def test_only_what_acts_in_a_rank_is_carried_there() -> None:
    """Neither damage to files nor the link that a world runs over."""
    carried = json.loads(faults_to_json(ONE_OF_EACH))
    assert len(carried) == len(ONE_OF_EACH) - 3
    assert all(not fault["kind"].startswith(("input_", "checkpoint_", "slow_link")) for fault in carried)

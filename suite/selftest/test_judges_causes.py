"""Causes that the fault catalogue asked for: each judge says what a user has to look for, and stays quiet where that is not it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from fixtures.trace import PHASES, Trace, load_trace
from suite.equivalence.agreement import parameters_agree
from suite.equivalence.cause import why_gradients_differ
from suite.equivalence.coverage import each_sample_once
from suite.equivalence.order import same_samples_each_step
from suite.equivalence.trajectory import aggregation, losses_far_apart
from suite.recovery.alignment import compare_from, explain, states_of
from suite.selftest.synthetic import GLOBAL_BATCH, ended_well, make_trace, sample_of, write_trace
from suite.stragglers.hang import gets_through
from suite.stragglers.parting import why_not_finished

JOB = Path("/srv/jobs/flights")
BACKWARD = 'Thread 0x1 (most recent call first):\n  File "/usr/lib/torch/autograd/graph.py", line 9 in _engine_run_backward\n  File "/srv/jobs/flights/train.py", line 88 in step\n'
GATHER = (
    'Thread 0x1 (most recent call first):\n  File "/probe/collectives.py", line 9 in wait\n'
    '  File "/usr/lib/torch/distributed/distributed_c10d.py", line 5 in all_gather_object\n  File "/srv/jobs/flights/train.py", line 95 in report\n'
)
LOADING = 'Thread 0x1 (most recent call first):\n  File "/usr/lib/torch/utils/data/dataloader.py", line 9 in _try_get_data\n  File "/srv/jobs/flights/train.py", line 80 in step\n'


def standing_world(folder: Path, stacks: dict[int, str], collectives: tuple[int, int] = (0, 1)) -> Trace:
    """Two ranks that stand still in step 5 with these stacks, ended after a silence."""
    ends = [{"rank": rank, "exit_code": None, "signal": 9, "killed_by_us": True} for rank in (0, 1)]
    ended = {"wall_s": 12.0, "started_utc": "", "ended_by": "stall", "ranks": ends, "message": "no sign of life for 5 s"}
    write_trace(folder, ranks=2, steps=4, ended=ended, change=lambda record: None if record["kind"] == "exit" else record)
    for rank, stack in stacks.items():
        now = struct.pack("<qqqq", 5, collectives[rank], PHASES.index("backward"), 5 * 10**9)
        (folder / f"rank{rank}.now").write_bytes(now.ljust(64, b"\0"))
        (folder / f"rank{rank}.stack").write_text(stack)
    return load_trace(folder)


def test_ranks_that_wait_in_different_collectives_are_both_placed(tmp_path: Path) -> None:
    """One rank reduces gradients, the other has left the loop: nobody is blamed for standing still."""
    finding = gets_through(standing_world(tmp_path / "run", {0: BACKWARD, 1: GATHER}), job_folder=JOB)

    assert finding.accepted is False
    assert (
        "rank 0 in the reduction of backward at train.py:88 step (step 5), rank 1 in all_gather_object at train.py:95 report"
        in finding.explanation
    )


def test_ranks_that_wait_in_the_same_collective_have_not_parted(tmp_path: Path) -> None:
    """The rank that is behind is named as before."""
    finding = gets_through(standing_world(tmp_path / "run", {0: GATHER, 1: GATHER}), job_folder=JOB)

    assert "rank 0 stopped in step 5" in finding.explanation


def test_a_rank_that_waits_for_its_loader_is_said_to(tmp_path: Path) -> None:
    finding = gets_through(standing_world(tmp_path / "run", {0: LOADING, 1: BACKWARD}), job_folder=JOB)

    assert "rank 0 stopped in step 5 at train.py:80 step, where it waits for its DataLoader, before collective 1" in finding.explanation


def test_an_error_that_was_caught_is_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    standing_world(
        folder,
        {0: BACKWARD, 1: BACKWARD.replace("torch/autograd/graph.py", "threading.py").replace("_engine_run_backward", "wait")},
        (1, 0),
    )
    (folder / "rank1.log").write_text(
        'Traceback (most recent call last):\n  File "train.py", line 3, in step\nValueError: sample 17 has no label\n'
    )

    finding = gets_through(load_trace(folder), job_folder=JOB)

    assert "(it had logged ValueError: sample 17 has no label)" in finding.explanation


def test_a_rank_that_was_through_too_early_is_named(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", ranks=2, ended=ended_well(2, rank0=1))
    (folder / "rank0.log").write_text("RuntimeError: Connection closed by peer [127.0.0.1]:8084\n")

    said = why_not_finished(load_trace(folder))

    assert said.startswith("rank 1 was through with exit code 0 while rank 0 still waited for it")


def test_collectives_that_did_not_match_are_told_from_other_failures(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", ranks=2, ended=ended_well(2, rank0=1))
    (folder / "rank0.log").write_text("what(): 164 vs 4. Received data size doesn't match expected size. Is there a d\n")
    assert why_not_finished(load_trace(folder)).startswith("two ranks met in different collectives")

    (folder / "rank0.log").write_text("ValueError: bad row 7\n")
    assert why_not_finished(load_trace(folder)).startswith("not every rank finished: rank 0 exited with code 1: 'ValueError: bad row 7'")


def test_a_rank_that_never_makes_the_step_is_named() -> None:
    said = {"kind": "not_seen", "rank": 1, "signal": "steps", "reason": "6 backwards ran but no Optimizer.step was seen"}
    idle = make_trace(ranks=2, extra=(said,), change=lambda record: None if record["kind"] == "step" and record["rank"] == 1 else record)

    finding = parameters_agree([idle])

    assert finding.accepted is False
    assert "rank 1 made no optimizer step while rank 0 made 6" in finding.explanation


def test_steps_that_no_rank_shows_decide_nothing() -> None:
    said = [{"kind": "not_seen", "rank": rank, "signal": "steps", "reason": "6 backwards ran"} for rank in (0, 1)]
    blind = make_trace(ranks=2, extra=said, change=lambda record: None if record["kind"] == "step" else record)

    assert parameters_agree([blind]).accepted is None


def test_means_of_micro_batches_that_are_added_up_are_named_by_their_numbers() -> None:
    """Four micro-batches alone, two on each of two ranks: half the gradient, which is no matter of the world size."""
    one = {"weight": np.arange(1.0, 5.0)}
    half = {rank: {"weight": one["weight"] / 2} for rank in (0, 1)}

    assert "2 micro-batches per step and rank where one device takes 4" in why_gradients_differ(one, half, 2, 1e-9, alone_micro_batches=4)
    assert "1 / world size" in why_gradients_differ(one, half, 2, 1e-9, alone_micro_batches=2)


def test_a_loss_scaled_up_for_the_wrapper_is_right() -> None:
    """Every rank computes the whole loss and multiplies it by the number of ranks, since the wrapper divides its gradient by that."""
    alone, scaled = make_trace(), make_trace(ranks=2, losses=lambda rank, step: [2.0 / step])

    assert aggregation(alone, scaled) == "scaled"
    assert losses_far_apart(alone, [scaled]).accepted is None


def test_ranks_with_unequal_rows_are_told_why_their_loss_is_off() -> None:
    """Six samples of loss 1 and two of loss 3 on one device: 1.5; the plain mean of the ranks' means is 2."""
    alone = make_trace(losses=lambda rank, step: [1.5])
    uneven = make_trace(
        ranks=2, losses=lambda rank, step: [1.0 if rank == 0 else 3.0],
        samples=lambda rank, step: [sample_of((step - 1) * GLOBAL_BATCH + row) for row in (range(6) if rank == 0 else range(6, 8))],
    )  # fmt: skip

    assert "the ranks have 6, 2 samples there, and each divides by its own count" in losses_far_apart(alone, [uneven]).explanation


def epoch_order(seed: int, length: int = 16) -> list[int]:
    return [int(one) for one in np.random.default_rng(seed).permutation(length)]


def dealt(orders: list[list[int]], steps: int, ranks: int) -> Trace:
    """Ranks that go through these epochs, one global batch a step."""
    sequence = [sample for order in orders for sample in order]
    share = GLOBAL_BATCH // ranks

    def rows(rank: int, step: int) -> list[str]:
        first = (step - 1) * GLOBAL_BATCH + rank * share
        return [sample_of(sample) for sample in sequence[first : first + share]]

    return make_trace(steps=steps, ranks=ranks, samples=rows)


def test_an_epoch_that_the_run_does_not_finish_is_no_omission() -> None:
    """Three steps of two-step epochs; the ranks visit the second epoch in another order, so its first half holds other samples."""
    first, second = epoch_order(1), epoch_order(2)
    alone, together = dealt([first, second], 3, 1), dealt([first, second[::-1]], 3, 2)

    assert each_sample_once(alone, [together]).accepted is True
    assert same_samples_each_step(alone, [together]).accepted is False


def test_a_repeat_in_an_epoch_that_the_run_does_not_finish_is_found() -> None:
    first, second = epoch_order(1), epoch_order(2)
    twice = [second[0], *second[:7], *second[8:]]

    finding = each_sample_once(dealt([first, second], 3, 1), [dealt([first, twice], 3, 2)])

    assert finding.accepted is False
    assert "twice in epoch 2" in finding.explanation


def test_a_sampler_that_is_replaced_is_told_from_another_order() -> None:
    """One device draws with replacement, two ranks deal each sample out once."""
    drawn = [np.random.default_rng(seed).integers(0, 32, 32).tolist() for seed in (1, 2)]
    alone, together = dealt(drawn, 6, 1), dealt([epoch_order(1, 32), epoch_order(2, 32)], 6, 2)

    assert "its sampler is replaced by another one" in same_samples_each_step(alone, [together]).explanation
    assert "replaced" not in same_samples_each_step(dealt([epoch_order(3, 32)] * 2, 6, 1), [together]).explanation


def test_the_rank_where_a_difference_begins_is_named() -> None:
    """Rank 1 draws other numbers; rank 0 sees only what the reduction brings."""

    def other(record: dict[str, object]) -> dict[str, object]:
        if record["kind"] != "step":
            return record
        return {**record, "grad_digest": "f" * 16} | ({"losses": [9.0]} if record["rank"] == 1 else {})

    control, resumed = (states_of(trace) for trace in (make_trace(ranks=2), make_trace(ranks=2, change=other)))
    found = compare_from(control, resumed, 0).difference

    assert found is not None
    assert (found.rank, found.root) == (1, "losses")


def test_half_a_step_is_no_other_order_of_the_data() -> None:
    """The resumed run takes only the last micro-batch of the step: what was gathered before the save is gone."""

    def shortened(record: dict[str, object]) -> dict[str, object]:
        return {**record, "samples": record["samples"][2:]} if record["kind"] == "step" and record["step"] == 3 else record  # type: ignore[index]

    control, resumed = (states_of(trace) for trace in (make_trace(ranks=2), make_trace(ranks=2, change=shortened)))
    found = compare_from(control, resumed, 0).difference

    assert found is not None
    assert "only 2 of the 4 samples of that step" in explain(found, control)

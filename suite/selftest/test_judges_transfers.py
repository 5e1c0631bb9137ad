"""The judge of transfers on made-up runs, and the probe's copies on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fixtures.faults import Fault
from fixtures.world import open_launcher
from suite.efficiency.transfers import stays_on_its_device
from suite.selftest.probe_runs import JOBS, ProbeRuns
from suite.selftest.synthetic import make_trace

STEPS = 6
BATCH = ["cpu", "cuda", "between", "data", "train.py:40", 3, 12_288]
NUMBER = ["cuda", "cpu", "between", "number", "train.py:52", 2, 8]
LOGITS = ["cuda", "cpu", "between", "data", "train.py:60", 1, 4_096]
WEIGHT = ["cuda", "cpu", "optimizer", "parameter head.weight", "train.py:71", 1, 400]
INNER = ["cpu", "cuda", "forward", "data", "model.py:9", 1, 2_048]


def made(
    *lines: list[Any],
    ranks: int = 2,
    every: int = 1,
    devices: tuple[dict[str, int], ...] = (),
    capable: int = 4,
    rank: int = 0,
    steps: int = STEPS,
) -> Any:
    """A run on cuda whose `rank` makes these copies in every so many steps."""
    where = devices or tuple({f"cuda:{number}": 4_000} for number in range(ranks))
    extra = [{"kind": "placed", "rank": number, "devices": where[number], "capable": capable} for number in range(ranks)]
    extra += [
        {"kind": "copies", "rank": number, "step": step, "copies": list(lines) if number == rank and step % every == 0 else []}
        for number in range(ranks)
        for step in range(1, steps + 1)
    ]
    return make_trace(steps=steps, ranks=ranks, extra=extra)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("transfers"))


def test_the_batch_going_in_and_single_numbers_coming_back_are_accepted() -> None:
    finding = stays_on_its_device(made(BATCH, NUMBER), accelerated=True)

    assert finding.accepted is True
    assert "the batch, 12,288 bytes a step over all ranks" in finding.explanation
    assert "2 single numbers a step are read back" in finding.explanation


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LOGITS, "rank 1 copies data from cuda to cpu in between (train.py:60), 4,096 bytes in every step"),
        (WEIGHT, "rank 1 copies parameter head.weight from cuda to cpu in optimizer (train.py:71), 400 bytes in every step"),
        (INNER, "rank 1 copies data from cpu to cuda in forward (model.py:9), 2,048 bytes in every step"),
        (["cpu", "cuda", "between", "gradient of head.weight", "", 1, 400], "rank 1 copies gradient of head.weight from cpu to cuda"),
    ],
)
def test_what_should_not_travel_is_named_with_its_line(line: list[Any], words: str) -> None:
    finding = stays_on_its_device(made(BATCH, line, rank=1), accelerated=True)

    assert finding.accepted is False
    assert words in finding.explanation
    assert finding.value == line[-1]


def test_the_largest_is_named_and_all_are_counted() -> None:
    finding = stays_on_its_device(made(WEIGHT, LOGITS), accelerated=True)

    assert "train.py:60" in finding.explanation
    assert "2 such copies in all" in finding.explanation
    assert finding.value == 4_496


@pytest.mark.parametrize(("every", "accepted"), [(1, False), (2, False), (3, True)])
def test_what_comes_back_in_fewer_than_half_of_the_steps_is_saving_or_evaluating(every: int, accepted: bool) -> None:
    """Steps 2 to 6 count: every second one is 3 of 5, every third one 2 of 5."""
    assert stays_on_its_device(made(WEIGHT, every=every), accelerated=True).accepted is accepted


@pytest.mark.parametrize(
    ("devices", "capable", "accelerated", "words"),
    [
        (({"cpu": 10}, {"cpu": 10}), 2, True, "rank 0 computes on the CPU, though 2 accelerators are there"),
        (({"cuda:0": 10}, {"cpu": 10}), 2, True, "rank 1 computes on the CPU"),
        (({"cuda:0": 10, "cpu": 5}, {"cuda:1": 15}), 2, True, "rank 0 holds its parameters on 2 kinds of device: 10 bytes on cuda:0 and 5 bytes on cpu"),
        (({"cuda:0": 10}, {"cuda:0": 10}), 2, True, "ranks 0 and 1 both compute on cuda:0, though there are 2 accelerators for 2 ranks"),
        (({"cuda:0": 10}, {"cuda:0": 10}), 1, True, ""),
        (({"cuda:0": 10, "cuda:1": 10}, {"cuda:2": 10, "cuda:3": 10}), 4, True, ""),
        (({"cpu": 10}, {"cpu": 10}), 4, False, ""),
    ],
)  # fmt: skip
def test_each_rank_computes_where_it_should(devices: tuple[dict[str, int], ...], capable: int, accelerated: bool, words: str) -> None:
    finding = stays_on_its_device(made(devices=devices, capable=capable), accelerated=accelerated)

    assert finding.accepted is (not words)
    assert words in finding.explanation


@pytest.mark.parametrize(("steps", "accepted"), [(1, None), (2, None), (3, True)])
def test_a_run_in_which_nothing_can_come_again_is_undecided(steps: int, accepted: bool | None) -> None:
    assert stays_on_its_device(made(BATCH, steps=steps), accelerated=True).accepted is accepted


def test_what_was_not_looked_at_is_undecided() -> None:
    nothing = make_trace(steps=STEPS, ranks=2)
    hidden = make_trace(
        steps=STEPS,
        ranks=1,
        extra=[
            {"kind": "placed", "rank": 0, "devices": {"cuda:0": 1}, "capable": 1},
            {"kind": "not_seen", "rank": 0, "signal": "copies", "reason": "a mode of its own"},
        ],
    )

    assert stays_on_its_device(nothing, accelerated=False).accepted is None
    assert stays_on_its_device(hidden, accelerated=False).accepted is None
    assert "a mode of its own" in stays_on_its_device(hidden, accelerated=False).explanation


def test_a_copy_that_was_left_behind_is_seen_with_its_line(runs: ProbeRuns) -> None:
    lines = (JOBS / "probe_devices" / "train.py").read_text().splitlines()
    left = next(number for number, line in enumerate(lines, 1) if "left behind" in line)
    ran = runs.start("devices", ranks=1, level="transfers")

    finding = stays_on_its_device(ran.trace, accelerated=False)

    assert f"rank 0 copies data from cpu to meta in forward (train.py:{left}), 96 bytes in every step" in finding.explanation
    assert finding.accepted is False


def test_the_batch_alone_is_accepted_and_nothing_is_changed(runs: ProbeRuns) -> None:
    watched = runs.start("devices", "--stay", ranks=1, level="transfers")
    alone = runs.start("devices", "--stay", ranks=1, probe=False)

    finding = stays_on_its_device(watched.trace, accelerated=False)

    assert finding.accepted is True
    assert "the batch, 128 bytes a step" in finding.explanation
    assert watched.logs == alone.logs


def test_the_planted_copy_is_seen(runs: ProbeRuns) -> None:
    ran = runs.start("devices", "--stay", ranks=1, level="transfers", faults=[Fault("carry_away")])

    finding = stays_on_its_device(ran.trace, accelerated=False)

    assert ran.trace.fired("carry_away")
    assert finding.accepted is False
    assert "rank 0 copies parameter weight from cpu to meta in optimizer" in finding.explanation
    assert finding.value == 60

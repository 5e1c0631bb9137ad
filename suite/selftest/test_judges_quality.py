"""The baseline and the time to quality, on traces made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.efficiency.baseline import known_well
from suite.efficiency.time_to_quality import Interruptions, reaches_sooner
from suite.selftest.synthetic import make_trace
from suite.selftest.test_judges_efficiency import STEPS, repeats

SELDOM = Interruptions(mean_s=6 * 3600.0, restart_s=2.0, every=4, audited_every=4)


def falling(ranks: int, slowness: float = 1.0, until: float = 0.0) -> Trace:
    """A run whose loss falls to `until`, the more slowly the larger `slowness`."""
    return make_trace(steps=STEPS, ranks=ranks, losses=lambda rank, step: [until + math.exp(-step / (4.0 * slowness))])


def baseline(times: list[Trace], bound: float = 0.7) -> Finding:
    return known_well(times, falling(1), bound)


def sooner(**changed: Any) -> Finding:
    asked: dict[str, Any] = {
        "alone": repeats(1),
        "together": repeats(2),
        "one": falling(1),
        "several": falling(2),
        "permuted": [falling(1)],
        "lost": SELDOM,
        "bound": 0.7,
    }
    return reaches_sooner(**(asked | changed))


def test_a_steady_device_is_a_baseline() -> None:
    found = baseline(repeats(1))

    assert found.accepted is True
    assert "reaches a loss of" in found.explanation
    assert "memory not measured" in found.explanation


def test_repeats_that_differ_are_none() -> None:
    slow = repeats(1, extra=lambda rank: {"forward_ms": 60.0})
    found = baseline([*repeats(1)[:3], *slow[:3]])

    assert found.accepted is False
    assert found.explanation.startswith("the baseline is no baseline")


def test_a_stricter_bound_asks_for_a_better_baseline() -> None:
    spread = baseline(repeats(1)).value
    assert spread is not None

    assert baseline(repeats(1), bound=1.0 - spread).accepted is False


def test_too_few_steps_are_no_baseline() -> None:
    assert baseline([make_trace(steps=3) for _ in range(6)]).accepted is None


def test_two_ranks_that_are_as_fast_reach_it_sooner() -> None:
    found = sooner()

    assert found.accepted is True, found.explanation
    assert found.value == pytest.approx(1.0, abs=0.1)
    assert "2 ranks reach a loss of" in found.explanation


def test_a_slow_rank_costs_what_its_steps_cost() -> None:
    found = sooner(together=repeats(2, extra=lambda rank: {"forward_ms": 60.0} if rank == 1 else {}))

    assert found.accepted is False
    assert "at least 0.70 is required" in found.explanation


def test_fast_steps_that_learn_less_are_no_gain() -> None:
    """The same step time, but twice as many steps to the same loss."""
    found = sooner(several=make_trace(steps=2 * STEPS, ranks=2, losses=lambda rank, step: [math.exp(-step / 8.0)]))

    assert found.accepted is False
    assert found.value == pytest.approx(0.5, abs=0.1)


def test_a_loss_that_is_never_reached_is_said() -> None:
    found = sooner(several=falling(2, until=0.5))

    assert found.accepted is False
    assert "have not reached the loss" in found.explanation


@pytest.mark.parametrize(("moved", "accepted"), [(0.001, False), (0.02, True)])
def test_what_the_order_of_the_samples_moves_decides_nothing(moved: float, accepted: bool) -> None:
    """Two ranks end 0.008 above the goal: within the noise of one device's own orders, or beyond it."""
    found = sooner(several=falling(2, until=0.05), permuted=[falling(1, until=moved)])

    assert found.accepted is accepted, found.explanation


def test_a_loss_that_does_not_fall_is_no_quality() -> None:
    assert sooner(one=make_trace(steps=STEPS, losses=lambda rank, step: [1.0])).accepted is None


def test_interruptions_are_counted() -> None:
    """An hour lost every six hours, to both alike: the ratio stays, the times grow."""
    often = Interruptions(mean_s=6 * 3600.0, restart_s=3600.0, every=4, audited_every=4)

    assert often.stretch(0.1) == pytest.approx(1.0 + (3600.0 + 0.2) / 21_600.0)
    plain, stretched = (found.details["table"]["rows"][1][2] for found in (sooner(), sooner(lost=often)))
    assert float(stretched) / float(plain) == pytest.approx(often.stretch(0.05) / SELDOM.stretch(0.05), rel=0.01)


def test_saves_count_at_the_cadence_of_the_real_run() -> None:
    """A save of two steps' time every 4 steps is a third of the time; every 98 steps it is a fiftieth."""
    audited = Interruptions(mean_s=1.0, restart_s=0.0, every=4, audited_every=4)
    planned = Interruptions(mean_s=1.0, restart_s=0.0, every=98, audited_every=4)

    assert audited.saving(1 / 3) == pytest.approx(1 / 3)
    assert planned.saving(1 / 3) == pytest.approx(1 / 50)
    assert planned.saving(0.0) == 0.0

"""The judges of the save itself on traces made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fixtures.trace import Record, Trace
from suite.recovery.saving import background_writers, changes_nothing, cut_short, optimal_interval_s, save_share, sleep_to_exceed
from suite.selftest.synthetic import make_trace

EVERY, STEPS = 4, 12


def state(rank: int, step: int) -> dict[str, str]:
    """What a step leaves, in the digests that synthetic traces have."""
    return {
        "param_digest": f"{step:016x}", "optimizer_digest": "a" * 16, "buffer_digest": f"{0:016x}", "rng": f"{step * 100 + rank:016x}",
    }  # fmt: skip


def saver(
    *, after: dict[str, str] | None = None, between: bool = False, thread: str | None = None, during: str | None = None, **overrides: Any
) -> Trace:
    """A run that saves every fourth step; `after` changes what is found after a save, `between` draws numbers between other steps."""

    def begin(rank: int, step: int) -> dict[str, str] | None:
        if step == 1:
            return None
        held = state(rank, step - 1)
        if (step - 1) % EVERY == 0:
            return {**held, **(after or {})}
        return {"rng": "f" * 16 if between else held["rng"]}

    files: list[Record] = [
        {
            "kind": "file",
            "rank": 0,
            "n": n,
            "op": "write",
            "path": "/ck/a",
            "step": step,
            "t_ns": step * 10**9,
            "thread": thread,
            "during": during,
        }
        for n, step in enumerate(range(EVERY, STEPS, EVERY), 1)
    ]
    return make_trace(steps=STEPS, ranks=2, begin=begin, optimizer_digest="a" * 16, extra=files, **overrides)


@pytest.mark.parametrize(
    ("after", "between", "accepted", "words"),
    [
        (
            {},
            False,
            True,
            "4 saves, looked at before and after on each rank, left everything as it was: parameters, optimizer state, buffers, RNG",
        ),
        ({"param_digest": "e" * 16}, False, False, "the save after step 4 changed parameters on rank 0"),
        ({"optimizer_digest": "e" * 16, "buffer_digest": "e" * 16}, False, False, "changed optimizer state and buffers"),
        ({"rng": "e" * 16}, False, False, "changed RNG"),
        ({"rng": "e" * 16}, True, True, "RNG is not compared"),
    ],
)
def test_what_a_save_changes_is_named(after: dict[str, str], between: bool, accepted: bool, words: str) -> None:
    finding = changes_nothing(saver(after=after, between=between), None)

    assert finding.accepted is accepted
    assert words in finding.explanation


def test_what_an_evaluation_before_a_save_draws_is_not_the_save_s() -> None:
    """A save begins with its first file operation; what it finds then is what it has to leave."""
    drawn = {"rng": "e" * 16}

    assert changes_nothing(saver(after={**drawn, "before": drawn}), None).accepted is True  # type: ignore[dict-item]
    assert changes_nothing(saver(after={**drawn, "before": {"rng": "d" * 16}}), None).accepted is False  # type: ignore[dict-item]


def test_the_run_that_never_saves_decides_too() -> None:
    """What the digests around a save do not show, another run does; one that saved after all shows nothing."""
    same, other = (
        make_trace(steps=STEPS, ranks=2),
        make_trace(steps=STEPS, ranks=2, param_digest=lambda rank, step: f"{step + (step > 4):016x}"),
    )

    assert "bit for bit the same" in changes_nothing(saver(), same).explanation
    rejected = changes_nothing(saver(), other)
    assert rejected.accepted is False
    assert "differ from step 5 on" in rejected.explanation
    assert changes_nothing(make_trace(steps=STEPS, ranks=2), same).accepted is None


def test_writers_in_the_background_are_seen_by_their_thread() -> None:
    assert background_writers(saver()) == []
    assert background_writers(saver(thread="saver-0", during="backward")) == ["saver-0"]
    assert background_writers(saver(thread="writer-0", during="between")) == [], (
        "a save that writes with several threads before training goes on"
    )


@pytest.mark.parametrize(("left", "cut"), [(0, True), (2, True), (3, False), (5, False)])
def test_a_first_save_is_cut_short_where_an_operation_of_it_is_missing(left: int, cut: bool) -> None:
    """Three operations belong to the first save of the control, two to its second; rank 1 writes nothing."""

    def wrote(count: int) -> Trace:
        steps = (EVERY, EVERY + 1, EVERY + 1, 2 * EVERY, 2 * EVERY)[:count]
        files: list[Record] = [
            {"kind": "file", "rank": 0, "n": n, "op": "write", "path": "/ck/a", "step": step, "t_ns": n} for n, step in enumerate(steps, 1)
        ]
        return make_trace(steps=STEPS, ranks=2, extra=files)

    assert cut_short(wrote(5), wrote(left), every=EVERY) is cut


def test_the_share_of_saving_is_measured_against_its_bound() -> None:
    """Steps of 100 ms, saves of 50 ms every four: an eighth of 450 ms is a ninth of the time."""
    runs = [saver(step_ms=lambda rank, step: 150.0 if step % EVERY == 1 and step > 1 else 100.0) for _ in range(3)]

    def judge(bound: float) -> Any:
        return save_share(runs, every=EVERY, planned=EVERY, bound=bound, mean_interruption_h=6.0, assumed=True)

    assert judge(0.2).value == pytest.approx(50 / 450)
    assert judge(0.2).accepted is True
    assert judge(0.05).accepted is False
    assert "6 h (assumed)" in judge(0.2).explanation
    assert (
        save_share([make_trace(steps=STEPS)], every=EVERY, planned=EVERY, bound=0.1, mean_interruption_h=6.0, assumed=True).accepted is None
    )
    assert sleep_to_exceed(runs, every=EVERY, bound=0.5) == 600


def test_what_counts_is_the_cadence_of_the_real_run() -> None:
    """The same saves of 50 ms, one in forty steps of 100 ms: 50 / 4050 of the time, and both cadences are named."""
    runs = [saver(step_ms=lambda rank, step: 150.0 if step % EVERY == 1 and step > 1 else 100.0) for _ in range(3)]
    finding = save_share(runs, every=EVERY, planned=10 * EVERY, bound=0.05, mean_interruption_h=6.0, assumed=True)
    assert finding.accepted is True
    assert finding.value == pytest.approx(50 / 4050)
    assert f"every {10 * EVERY} steps of 100 ms as planned (here every {EVERY})" in finding.explanation


def test_the_cadence_of_young_and_daly() -> None:
    """Daly's interval is Young's to first order, and the mean time to an interruption where a save takes as long."""
    assert optimal_interval_s(1.0, 1e6) == pytest.approx(math.sqrt(2e6), rel=2e-3)
    assert optimal_interval_s(10.0, 4.0) == 4.0

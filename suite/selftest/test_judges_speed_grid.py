"""Judges of speed on drawn times: every number that they make of them is held, and the bound is met from both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fixtures.lateness import Lateness
from fixtures.trace import Record, Trace
from suite.efficiency.baseline import known_well, last_loss, peak_bytes
from suite.efficiency.breakdown import accounted_for, breakdown
from suite.efficiency.busy import busy, given_back, queued_share
from suite.efficiency.diagnosis import CAUSES, bound_by_compute, causes, latest_rank, rate_for
from suite.efficiency.scaling import Room, curve, efficiency, scales
from suite.efficiency.slowdown import imbalance, why_slower
from suite.efficiency.time_to_quality import Interruptions, reaches_sooner, smoothed
from suite.efficiency.timing import mean_phases, phases, rows_per_step, settled, shares, step_ms, too_short
from suite.efficiency.work import same_work, table
from suite.equivalence.usable import rounding
from suite.selftest.drawn import drawn_trace, machine
from suite.selftest.synthetic import SECOND_NS, make_trace, sample_of
from suite.stragglers.slow_rank import nobody_is_slow, occasionally_late, steadily_late, taking_turns, where_late

SEEDS = range(2)
ROOM = Room(4, "cores")
WORDS = {1: "one device", 2: "2 ranks", 3: "3 ranks", 4: "4 ranks"}


def runs(seed: int, ranks: int, repeats: int = 6, **options: Any) -> list[Trace]:
    return [drawn_trace(100 * seed + repeat, ranks, 13, **options) for repeat in range(repeats)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_times_of_a_run(seed: int, ranks: int) -> None:
    trace = drawn_trace(seed, ranks, 10)
    kept = settled(trace)

    assert sorted(set(kept["step"])) == list(range(3, 11))
    slowest = [max(kept.loc[kept["step"] == step, "step_ms"]) for step in range(3, 11)]
    assert step_ms(trace) == pytest.approx(float(np.median(slowest)))
    own = shares(trace)
    first = kept.loc[kept["rank"] == 0]
    pause = (first["unnamed_ms"] - first["unnamed_ms"].median()).clip(lower=0)
    assert own.loc[0, "data_wait_ms"] == pytest.approx(first["data_wait_ms"].sum() / (first["step_ms"] - pause).sum())
    assert phases(trace).loc[ranks - 1, "forward_ms"] == pytest.approx(kept.loc[kept["rank"] == ranks - 1, "forward_ms"].median())
    assert rows_per_step(trace) == 8 // ranks * ranks
    assert mean_phases(runs(seed, ranks, 3)).shape == (ranks, 8)
    assert too_short(trace) == ""
    assert "3 steps are left" in too_short(drawn_trace(seed, ranks, 4))
    assert too_short(drawn_trace(seed, ranks, 5)) == ""
    shown = breakdown([runs(seed, 1, 3), runs(seed, ranks, 3)])
    assert [(bar["world_size"], bar["rank"]) for bar in shown] == [(1, 0), *((ranks, rank) for rank in range(ranks))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_no_phase_names_is_without_waits_and_never_below_nothing(seed: int) -> None:
    late = drawn_trace(seed, 2, 10, usual={"other_ms": 3.5})
    waits = late.collectives.loc[(late.collectives["phase"] == "other")]
    for _, row in settled(late).iterrows():
        took = waits.loc[(waits["rank"] == row["rank"]) & (waits["step"] == row["step"])]
        ms = float(((took["done_ns"] - took["arrive_ns"]) / 1e6).sum())
        assert row["unnamed_ms"] == pytest.approx(max(row["other_ms"] - min(ms, row["exposed_ms"]), min(row["other_ms"], 0.0)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("data", "waiting"), [(0.5, 0.5), (0.03, 0.5), (0.5, 0.05), (0.045, 0.09), (0.039, 0.5)])
def test_shares_against_their_bounds(seed: int, data: float, waiting: float) -> None:
    finding = accounted_for([runs(seed, 1), runs(seed, 2), runs(seed, 3)], data, waiting, ROOM)
    worst = {rank: np.median([shares(trace).loc[rank, "data_wait_ms"] for trace in runs(seed, 3)]) for rank in range(3)}
    assert finding.samples == 6
    if data >= 0.5 and waiting >= 0.5:
        assert finding.accepted is True
    if finding.accepted is False and finding.details["phase"] == "data wait" and finding.details["world_size"] == 3:
        assert finding.details["rank"] == max(worst, key=lambda rank: worst[rank])
        assert finding.value == pytest.approx(max(worst.values()))
    assert finding.interval is not None
    assert finding.value is not None
    assert finding.interval[0] <= finding.value <= finding.interval[1]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("phase", ["data_wait_ms", "exposed_ms", "other_ms"])
def test_the_rank_whose_step_goes_into_one_phase(rank: int, phase: str) -> None:
    def slow(record: Record) -> Record:
        if record["kind"] != "step" or record["rank"] != rank:
            return record
        longer = {"exposed_ms": 50.0} if phase == "exposed_ms" else {phase: record[phase] + 90.0, "step_ms": record["step_ms"] + 90.0}
        return {**record, **longer}

    slowed = [make_trace(ranks=3, steps=12, change=slow)] * 2
    finding = accounted_for([slowed], 0.3, 0.3, ROOM)
    assert finding.accepted is False
    assert (finding.details["rank"], finding.details["world_size"]) == (rank, 3)
    assert f"rank {rank} of 3" in finding.explanation
    assert (
        finding.details["phase"]
        == {"data_wait_ms": "data wait", "exposed_ms": "exposed communication", "other_ms": "code outside the named phases"}[phase]
    )


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_phases_that_are_no_breakdown(rank: int) -> None:
    odd = [make_trace(ranks=3, steps=12, step_ms=lambda own, step: 300.0 if (own, step) == (rank, 9) else 100.0)]
    torn = accounted_for([odd], 0.3, 0.3, ROOM)
    assert torn.accepted is None
    assert f"the phases of rank {rank} in step 9 at world size 3" in torn.explanation


@pytest.mark.parametrize(("off", "verdict"), [(1.04, ""), (1.06, "do not add up"), (-1.04, ""), (-1.06, "do not add up")])
def test_how_far_phases_may_miss_the_step(off: float, verdict: str) -> None:
    near = [[make_trace(ranks=2, steps=8, step_ms=100.0, forward_ms=30.0 + off)] * 2]
    finding = accounted_for(near, 0.3, 0.3, ROOM)
    assert verdict in finding.explanation
    assert (finding.accepted is None and "add up" in finding.explanation) is bool(verdict)


@pytest.mark.parametrize(("low", "torn"), [(-0.04, False), (-0.06, True)])
def test_a_phase_below_nothing(low: float, torn: bool) -> None:
    negative = [[make_trace(ranks=2, steps=8, data_wait_ms=low, step_ms=95.0 + low)] * 2]
    assert ("add up" in accounted_for(negative, 0.3, 0.3, ROOM).explanation) is torn


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bound", [0.1, 0.48])
def test_efficiency_against_its_bound(seed: int, bound: float) -> None:
    alone, two, four = runs(seed, 1), runs(seed, 2), runs(seed, 4)
    found = {2: efficiency(alone, two), 4: efficiency(alone, four)}
    finding = scales(alone, [two, four], [alone[0], two[0], four[0]], bound, ROOM)

    pairs = [step_ms(one) / (4 * step_ms(many)) for one, many in zip(alone, four, strict=True)]
    assert found[4].estimate == pytest.approx(float(np.median(pairs)))
    assert finding.value == pytest.approx(min(one.estimate for one in found.values()))
    weakest = found[int(finding.details["world_size"])]
    assert finding.accepted is (True if weakest.low >= bound else False if weakest.high < bound else None)
    assert finding.interval == (weakest.low, weakest.high)
    points = curve(alone, [two, four], {1: 8.0, 2: 8.0}, found)
    assert [point["world_size"] for point in points] == [1, 2, 4]
    assert points[1]["samples_per_s"] == pytest.approx(8.0 / float(np.median([step_ms(one) for one in two])) * 1000)
    assert points[2]["samples_per_s"] is None
    assert points[0]["efficiency"] == 1.0
    assert scales(alone, [two, four], [], bound, Room(3, "cores")).accepted is None
    assert scales(alone, [], [], bound, ROOM).accepted is None
    assert why_slower(alone, two, {1: 8.0, 2: 8.0}) != why_slower(alone, two, {1: 8.0, 2: 16.0})


def with_phase(phase: str, value: Callable[[int, int], float], steps: int) -> Trace:
    """Three ranks, one of whose phases takes so many ms by rank and step."""
    given: dict[str, Any] = {phase: value}
    return make_trace(ranks=3, steps=steps, **given)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("phase", ["data_wait_ms", "forward_ms", "optimizer_ms", "other_ms"])
def test_the_rank_that_does_more_of_its_own(rank: int, phase: str) -> None:
    more = [with_phase(phase, lambda own, step: 70.0 if own == rank else 10.0, steps=9) for _ in range(3)]
    name, what = imbalance(mean_phases(more))[:2]
    assert (name, what) == (rank, "unnamed_ms" if phase == "other_ms" else phase)
    assert why_slower([make_trace(steps=9)], more, {}).startswith(f"rank {rank} takes 70 ms in")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_causes_of_the_time(seed: int, ranks: int) -> None:
    saves = [
        {"kind": "file", "rank": 0, "n": n, "op": "open", "path": "a", "step": step, "t_ns": step * SECOND_NS}
        for n, step in enumerate((4, 8))
    ]

    def slower(record: Record) -> Record:
        long = record["kind"] == "step" and record["step"] in (5, 9)
        return {**record, "step_ms": record["step_ms"] + 80.0, "other_ms": record["other_ms"] + 80.0} if long else record

    plain = [drawn_trace(seed + 10 * repeat, ranks, 12) for repeat in range(6)]
    for trace in plain[:2]:
        found = causes(trace)
        assert set(found) == set(CAUSES)
        assert sum(found.values()) == pytest.approx(1.0)
        assert found["checkpoint"] == 0.0
        assert rate_for(trace, 2.0) == float(f"{8 * 52 / (2.0 * step_ms(trace) * 1e3):.2g}")
    saving = make_trace(ranks=ranks, steps=12, extra=saves, change=slower)
    assert causes(saving)["checkpoint"] == pytest.approx(160.0 / (9 * 100.0 + 160.0))
    finding = bound_by_compute(plain, room=ROOM)
    assert finding.samples == 6
    assert finding.accepted is True
    assert finding.details["cause"] == "compute"
    assert latest_rank(plain) in range(ranks)
    waiting = bound_by_compute(
        [drawn_trace(seed + 10 * repeat, ranks, 12, usual={"data_wait_ms": 200.0}) for repeat in range(6)], room=ROOM
    )
    assert waiting.accepted is False
    assert waiting.details["cause"] == "input"
    assert waiting.value == pytest.approx(1.0 - sum(share for name, share in _shares(waiting).items() if name != "input"), abs=0.05)
    near = bound_by_compute(
        [drawn_trace(seed + 10 * repeat, ranks, 12, usual={"data_wait_ms": 72.0}, spread=0.6) for repeat in range(6)], room=ROOM
    )
    assert near.interval is not None


def _shares(finding: Any) -> dict[str, float]:
    return {row[0]: row[1] for row in finding.details["table"]["rows"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_others_used(seed: int) -> None:
    def with_machine(used: float, stolen: float = 0.0, queued: bool = True) -> list[Trace]:
        found = []
        for repeat, elapsed in enumerate((2.0, 6.0)):
            start = {"kind": "start", "rank": 0, "step": 0, "t_ns": SECOND_NS // 2, "queued_ns": 1000}
            changed = [{"kind": "usage", "rank": 0, "t_ns": 9 * SECOND_NS, "queued_ns": 1000 + (repeat + 1) * SECOND_NS}] if queued else []

            def change(record: Record, start: Record = start) -> Record:
                return start if record["kind"] == "start" and queued else record

            trace = make_trace(extra=changed, change=change)
            found.append(replace(trace, ended={**trace.ended, "others": machine(seed + repeat, elapsed, used, stolen)}))
        return found

    quiet = busy(with_machine(0.0))
    assert quiet is not None
    assert (quiet.used, quiet.stolen, quiet.cores, quiet.taken) == (0.0, 0.0, 4, 0.0)
    assert quiet.queued == pytest.approx(0.25 * (1 / 8.5) + 0.75 * (2 / 8.5))
    assert queued_share(with_machine(0.0)[1]) == pytest.approx(2 / 8.5)
    some = busy(with_machine(3.0, 0.4))
    assert some is not None
    assert some.stolen == pytest.approx(0.8 / 8.0)
    unknown = busy(with_machine(3.0, 0.4, queued=False))
    assert unknown is not None
    assert unknown.queued is None
    assert unknown.taken == pytest.approx(unknown.used + unknown.stolen)
    finding = known_well([make_trace(steps=12)] * 6, make_trace(steps=12), 0.7)
    for distance in (2.0 * unknown.taken + 1e-9, 2.0 * unknown.taken - 1e-9):
        kept = given_back(finding, with_machine(3.0, 0.4, queued=False), distance)
        assert kept.accepted is (True if distance > 2.0 * unknown.taken else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_baseline(seed: int) -> None:
    repeats, whole = runs(seed, 1), drawn_trace(seed, 2, 11)
    times = [step_ms(trace) for trace in repeats]
    last = whole.steps.loc[whole.steps["step"] > 9].groupby("step")["loss"].mean().mean()
    assert last_loss(whole) == pytest.approx(last)
    assert last_loss(make_trace(losses=[])) is None
    assert peak_bytes([drawn_trace(seed, 2)]) == max(
        record["peak_resident_bytes"] for record in drawn_trace(seed, 2).records if record["kind"] == "usage"
    )
    assert peak_bytes([drawn_trace(seed, 2), make_trace()]) is not None
    assert peak_bytes([make_trace()]) is None
    wide = known_well(repeats, whole, 1.0)
    assert wide.accepted is False
    assert wide.value is not None
    spread = wide.value
    assert spread == pytest.approx(wide.value)
    assert known_well(repeats, whole, 1.0 - 2.0 * spread - 1e-9).accepted is True
    assert known_well(repeats, whole, 1.0 - 2.0 * spread + 1e-9).accepted is False
    assert wide.details["repeats"] == pytest.approx(times)


LOST = Interruptions(mean_s=100.0, restart_s=5.0, every=4, audited_every=4)


@pytest.mark.parametrize("slowness", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("bound", [0.05, 0.9])
def test_time_to_quality(slowness: float, bound: float) -> None:
    def falling(ranks: int, slowness: float) -> Trace:
        return make_trace(steps=20, ranks=ranks, losses=lambda rank, step: [10.0 * 0.9 ** (step / slowness)])

    alone, together = runs(1, 1), runs(2, 2)
    finding = reaches_sooner(alone, together, falling(1, 1.0), falling(2, slowness), [falling(1, 1.0)], LOST, bound)
    assert LOST.stretch(2.0) == pytest.approx(1.0 + (5.0 + 4.0) / 100.0)
    curve = smoothed(falling(1, 1.0))
    assert len(curve) == 16
    assert curve[0] == pytest.approx(np.mean([10.0 * 0.9**step for step in range(1, 6)]))
    goal_at = 11
    if slowness == 1.0:
        assert finding.details["goal"] == pytest.approx(float(curve[goal_at] + rounding("float32") * curve[0]))
        assert finding.details["table"]["rows"][0][1] == finding.details["table"]["rows"][1][1] == 16
    elif slowness == 2.0:
        assert finding.accepted is False
        assert "have not reached" in finding.explanation
    flat = make_trace(steps=20, losses=[1.0])
    assert reaches_sooner(alone, together, flat, flat, [flat], LOST, bound).accepted is None
    short = make_trace(steps=1)
    assert reaches_sooner(alone, together, short, short, [short], LOST, bound).accepted is None


@pytest.mark.parametrize("place", [(0, 1), (1, 3), (1, 6), (3, 4)])
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_one_step_of_other_work(place: tuple[int, int], rows: int) -> None:
    rank, step = place

    def samples(own: int, at: int) -> list[str]:
        return [sample_of(100 * at + 10 * own + row) for row in range(rows if (own, at) == place else 2)]

    alone = make_trace()
    finding = same_work(alone, [make_trace(ranks=2), make_trace(ranks=4, samples=samples)])
    assert finding.accepted is False
    assert finding.value == pytest.approx((6 + rows) / 8)
    assert f"4 ranks process {6 + rows} samples in step {step} where one device processes 8" in finding.explanation
    assert finding.samples == 12
    micro = make_trace(ranks=4, micro_batches=lambda own, at: rows + 1 if (own, at) == place else 1)
    uneven = same_work(alone, [micro])
    assert f"in step {step} rank {rank} accumulates {rows + 1} micro-batches and rank {1 if rank == 0 else 0} 1" in uneven.explanation
    shown = table(alone, [micro])["table"]
    assert shown["rows"][1] == [4, 6, 48, 8, rows + 1]  # type: ignore[index]
    fewer = same_work(alone, [make_trace(ranks=2, steps=rows)])
    if rows != 6:
        assert fewer.accepted is False
        assert fewer.value == pytest.approx(rows / 6)
    twice = same_work(alone, [make_trace(ranks=2, samples=lambda own, at: [sample_of(100 * at + row) for row in range(8)])])
    assert twice.value == 2.0
    assert "per step" in twice.explanation


def late_by(delay: Any, ranks: int = 3, steps: int = 40, seed: int = 0) -> Lateness:
    """Lateness with a little noise; delay(rank, step) in milliseconds is added."""
    rng = np.random.default_rng(seed)
    ms = rng.normal(0.0, 0.5, size=(steps, ranks))
    ms += [[delay(rank, step) for rank in range(ranks)] for step in range(steps)]
    return Lateness(tuple(range(ranks)), ms, 100.0 + rng.normal(0.0, 1.0, size=steps))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_ranks_that_are_late(rank: int) -> None:
    steady = late_by(lambda own, step: 20.0 * (own == rank))
    found = steadily_late(steady, 0.1)
    assert found is not None
    assert found.ranks == (rank,)
    median = float(np.median(steady.late_ms[:, rank]) / np.median(steady.step_ms))
    assert found.share == pytest.approx(median)
    assert steadily_late(steady, 0.19) is not None
    assert steadily_late(steady, 0.21) is None
    seldom = late_by(lambda own, step: 80.0 * (own == rank and step % 7 == 3))
    found = occasionally_late(seldom, 0.1)
    assert found is not None
    assert found.ranks == (rank,)
    assert found.share == pytest.approx(float(seldom.late_ms[3::7, rank].sum() / seldom.step_ms.sum()))
    assert steadily_late(seldom, 0.1) is None
    assert occasionally_late(late_by(lambda own, step: 80.0 * (own == rank and step in (3, 9))), 0.1) is None
    assert occasionally_late(late_by(lambda own, step: 80.0 * (step % 7 == 3 and own == step // 7 % 3)), 0.1) is None
    assert occasionally_late(late_by(lambda own, step: 30.0 * (own == rank and step % 7 == 3)), 0.1) is None
    turns = late_by(lambda own, step: 40.0 * (own == (step + rank) % 2))
    found = taking_turns(turns, 0.1)
    assert found is not None
    assert sorted(found.ranks) == [0, 1]
    assert taking_turns(turns, 0.17) is None
    assert taking_turns(late_by(lambda own, step: 40.0 * (own == step % 2 and step % 5 > 0)), 0.1) is None


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("phase", ["data_wait_ms", "forward_ms", "backward_ms", "optimizer_ms", "other_ms"])
def test_the_phase_of_a_late_rank(rank: int, phase: str) -> None:
    trace = with_phase(phase, lambda own, step: 60.0 if own == rank and step > 2 else 20.0, steps=8)
    said = where_late([trace, trace], rank)
    words = {
        "data_wait_ms": "waiting for data",
        "forward_ms": "forward",
        "backward_ms": "backward",
        "optimizer_ms": "the optimizer",
        "other_ms": "code between the phases",
    }
    assert said == f"; it spends 40.0 ms a step more than they do in {words[phase]}"
    assert where_late([trace], (rank + 1) % 3) == ""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_nobody_is_slow_on_drawn_arrivals(seed: int, ranks: int) -> None:
    traces = [drawn_trace(seed + 10 * repeat, ranks, 20, spread=0.05) for repeat in range(2)]
    for bound in (0.5, 0.02, 0.008, 0.001):
        finding = nobody_is_slow(traces, bound=bound, cores=4)
        assert finding.samples == 36
        assert finding.bound == bound
        assert len(finding.details["lateness"]) == ranks
    assert nobody_is_slow(traces, bound=0.5, cores=4).accepted is True
    assert nobody_is_slow(traces, bound=0.5, cores=1).accepted is (True if ranks > 1 else None)
    assert nobody_is_slow(traces, bound=0.5, cores=3).accepted is (None if ranks == 4 else True)
    assert nobody_is_slow([drawn_trace(seed, ranks, 13)], bound=0.5, cores=4).accepted is None
    assert nobody_is_slow([drawn_trace(seed, ranks, 14)], bound=0.5, cores=4).accepted is not None

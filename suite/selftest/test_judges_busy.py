"""A slow job on a quiet machine, and a sound job on a busy one: a decision that others may have made is none, in either direction."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.job import command_line, load_job
from fixtures.others import Others, Use, cores_of, read_use, use_of_others
from fixtures.trace import Trace
from fixtures.world import Start, ended_from_json, open_launcher
from reports.evidence import Finding
from suite.efficiency.breakdown import accounted_for
from suite.efficiency.busy import MOVES_A_MEAN, busy, given_back, queued_share
from suite.efficiency.diagnosis import bound_by_compute
from suite.efficiency.scaling import scales
from suite.selftest.criterion_runs import JOBS
from suite.selftest.synthetic import ended_well, make_trace
from suite.selftest.test_judges_efficiency import ROOM, WORK, repeats
from suite.stragglers.slow_rank import nobody_is_slow

NEVER = Finding(False, 2.0, "", 1.0, "at_most", "twice too long")


def others(runs: Sequence[Trace], used: float, stolen: float = 0.0, cores: int = 2) -> list[Trace]:
    """The same runs, of one second each, on a machine where others used so many of the ranks' cores."""
    use = {"cores": cores, "elapsed_s": 1.0, "others_s": used, "stolen_s": stolen}
    return [replace(run, ended={**run.ended, "others": use}) for run in runs]


def test_a_rejection_stands_where_others_cannot_account_for_it() -> None:
    runs = others([make_trace()], 0.2)

    assert given_back(NEVER, runs, distance=0.41).accepted is False
    finding = given_back(NEVER, runs, distance=0.39)
    assert finding.accepted is None
    assert finding.explanation == (
        "undecided, the machine was busy: others used 0.2 of 2 cores during the runs, which may account for all of this: twice too long"
    )


def test_time_that_the_hypervisor_took_counts_as_others() -> None:
    finding = given_back(NEVER, others([make_trace()], 0.0, stolen=0.3, cores=1), distance=0.5)

    assert finding.accepted is None
    assert "others used 0 of 1 core and the hypervisor took 0.3" in finding.explanation


def test_an_acceptance_that_others_may_have_made_is_none_and_none_is_ever_made() -> None:
    sound = replace(NEVER, accepted=True, bound=3.0)

    assert given_back(sound, others([make_trace()], 0.2), distance=0.39).accepted is None
    assert [given_back(NEVER, others([make_trace()], used), distance=0.5).accepted for used in (0.0, 0.1, 0.3, 2.0)] == [
        False,
        False,
        None,
        None,
    ]


def waiting(run: Trace, queued_ms: float, span_s: float = 1.0) -> Trace:
    """The same run, in which each rank stood ready without a core for so long between its first step and its end."""
    ends = [
        {"kind": kind, "rank": rank, "t_ns": t_ns, "queued_ns": queued}
        for rank in (0, 1)
        for kind, t_ns, queued in (("start", 0, 5), ("usage", int(span_s * 1e9), 5 + int(queued_ms * 1e6)))
    ]
    return replace(run, records=(*(one for one in run.records if one["kind"] not in {"start", "usage"}), *ends))


def test_others_took_no_more_than_the_ranks_stood_ready_without_a_core() -> None:
    """Others that ran while the ranks slept took nothing from them."""
    runs = [waiting(run, queued_ms=20.0) for run in others([make_trace(ranks=2)], 0.8)]

    assert queued_share(runs[0]) == pytest.approx(0.04)
    assert given_back(NEVER, runs, distance=0.09).accepted is False
    finding = given_back(NEVER, runs, distance=0.07)
    assert finding.accepted is None
    assert (
        "others used 0.8 of 2 cores during the runs, and the ranks' threads together waited 0.04 s of every second for a core"
        in finding.explanation
    )


def test_ranks_that_wait_for_each_other_are_no_busy_machine() -> None:
    """Threads of the job's own that share a core queue as well, but others used nothing."""
    runs = [waiting(run, queued_ms=400.0) for run in others([make_trace(ranks=2)], 0.01)]

    assert given_back(NEVER, runs, distance=0.03).accepted is False


def test_a_rank_that_left_without_its_last_reading_is_not_guessed() -> None:
    run = waiting(make_trace(ranks=2), queued_ms=20.0)
    left = replace(run, records=tuple(one for one in run.records if (one["kind"], one["rank"]) != ("usage", 1)))

    assert queued_share(left) is None


def test_a_mean_moves_by_the_share_and_a_median_by_twice_of_it() -> None:
    runs = others([make_trace()], 0.2)

    assert given_back(NEVER, runs, distance=0.21, moves=MOVES_A_MEAN).accepted is False
    assert given_back(NEVER, runs, distance=0.21).accepted is None


def test_what_is_undecided_stays_so_and_says_what_others_used() -> None:
    finding = given_back(replace(NEVER, accepted=None), others([make_trace()], 0.8), distance=1.0)

    assert finding.accepted is None
    assert finding.explanation == "twice too long; others used 0.8 of 2 cores during the runs"


def test_without_a_measurement_nothing_changes() -> None:
    runs = [*others([make_trace()], 5.0), make_trace()]

    assert busy(runs) is None
    assert given_back(NEVER, runs, distance=0.0) == NEVER
    assert busy([]) is None


def test_readings_below_nothing_are_rounding_and_give_no_credit() -> None:
    machine = busy(others([make_trace()], -0.02))

    assert machine is not None
    assert machine.taken == 0.0
    assert machine.describe() == "others used 0 of 2 cores during the runs"


def late(ms: float) -> list[Trace]:
    """Runs of two ranks, of which rank 1 enters its collective so much later."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] != "step" or record["rank"] == 0:
            return record
        return {
            **record,
            "collectives": [[op, size, at + int(ms * 1e6), done, where] for op, size, at, done, where in record["collectives"]],
        }

    return [make_trace(steps=20, ranks=2, change=change)]


def slow_forward(used: float) -> Finding:
    slow = repeats(2, extra=lambda rank: {"forward_ms": 60.0} if rank == 1 else {})
    return scales(repeats(1), [others(slow, used)], WORK, 0.7, ROOM)


@pytest.mark.parametrize(
    ("judged", "quiet", "loaded"),
    [
        (slow_forward, 0.05, 0.5),
        (lambda used: accounted_for([others(repeats(2, exposed_ms=60.0), used)], 0.1, 0.3, ROOM), 0.05, 0.5),
        (lambda used: bound_by_compute(others(repeats(2, exposed_ms=120.0), used), room=ROOM), 0.05, 0.5),
        (lambda used: nobody_is_slow(others(late(60.0), used), bound=0.1, cores=2), 0.05, 0.5),
    ],
    ids=["scaling", "breakdown", "diagnosis", "slow_rank"],
)
def test_every_timed_judge_tells_a_slow_job_from_a_busy_machine(judged: Any, quiet: float, loaded: float) -> None:
    assert judged(quiet).accepted is False, judged(quiet).explanation
    assert judged(loaded).accepted is None
    assert judged(loaded).explanation.startswith("undecided, the machine was busy: others used 0.5 of 2 cores")


@pytest.mark.parametrize(
    "judged",
    [
        lambda used: scales(others(repeats(1), used, cores=1), [repeats(2)], WORK, 0.7, ROOM),
        lambda used: accounted_for([others(repeats(2), used)], 0.1, 0.3, ROOM),
        lambda used: bound_by_compute(others(repeats(2), used), room=ROOM),
        lambda used: nobody_is_slow(others(late(2.0), used), bound=0.1, cores=2),
    ],
    ids=["scaling", "breakdown", "diagnosis", "slow_rank"],
)
def test_every_timed_judge_accepts_on_a_quiet_machine_only(judged: Any) -> None:
    """A machine that is busy makes computing look long, and so the share of all that is wrong small."""
    assert judged(0.01).accepted is True, judged(0.01).explanation
    assert judged(0.01).details["machine"].startswith("others used 0.01 of")
    assert judged(0.9).accepted is None
    assert "the machine was busy" in judged(0.9).explanation


# ---- the measurement


def test_what_is_neither_idle_nor_stolen_nor_ours_is_others() -> None:
    before, now = Use(10.0, 2, 5.0, 1.0, 3.0), Use(14.0, 2, 8.0, 1.5, 6.0)

    assert use_of_others(before, now) == Others(cores=2, elapsed_s=4.0, others_s=8.0 - 3.0 - 0.5 - 3.0, stolen_s=0.5)
    assert use_of_others(None, now) is None
    assert use_of_others(before, replace(now, cores=1)) is None


def test_ranks_are_looked_for_on_the_cores_that_they_are_pinned_to() -> None:
    assert cores_of({4, 2, 7}, 2, pinned=True) == (2, 4)
    assert cores_of({4, 2, 7}, 5, pinned=True) == (2, 4, 7)
    assert cores_of({4, 2, 7}, 1, pinned=False) == (2, 4, 7)


def test_a_kernel_that_shows_no_core_gives_no_reading() -> None:
    assert read_use([100_000], every_core=False) is None


def test_an_old_record_without_the_measurement_is_still_read() -> None:
    assert ended_from_json(ended_well(2)).others is None
    assert ended_from_json({**ended_well(1), "others": {"cores": 1, "elapsed_s": 1.0, "others_s": 0.5, "stolen_s": 0.0}}).others == Others(
        1, 1.0, 0.5, 0.0
    )


def test_a_process_beside_the_run_is_seen_and_the_run_itself_is_not(tmp_path: Path) -> None:
    """A neighbour that spins on the rank's core shares it with the rank: the run is told of close to half a core or more."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint('spinning', flush=True)\nwhile True: pass"
    job = load_job(JOBS / "toy" / "job.toml")
    argv = command_line(job, world_size=1, out=tmp_path / "out", steps=400)
    start = Start(
        argv=argv, folder=job.folder, world_size=1, run_dir=tmp_path / "run", environment={"RANKPROOF_TRACE": str(tmp_path / "run")}
    )
    with open_launcher() as launcher:
        launcher.run(start)
        with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE, text=True) as neighbour:
            assert neighbour.stdout is not None
            neighbour.stdout.readline()
            ended = launcher.run(start)
            neighbour.kill()
    assert ended.others is not None
    assert ended.others.cores == 1
    assert 0.4 * ended.others.elapsed_s <= ended.others.others_s <= 1.1 * ended.others.elapsed_s

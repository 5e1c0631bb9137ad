"""The judges of stragglers name the rank that is late, and nobody where nobody is, on traces made by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fixtures.trace import PHASES, Record, Trace, load_trace
from reports.evidence import Finding
from suite.selftest.synthetic import MS_NS, ended_well, make_trace, write_trace
from suite.stragglers.hang import gets_through, stall_bound_s
from suite.stragglers.slow_rank import nobody_is_slow

STEP_MS = 20.0
Delay = Callable[[int, int], float]
JOB = Path("/srv/jobs/flights")


def world(delay_ms: Delay, *, ranks: int = 2, steps: int = 62, noise_ms: float = 1.0, seed: int = 0) -> Trace:
    """A world whose rank r reaches the collectives of step s `delay_ms(r, s)` late, plus noise with a long tail, as on a shared machine."""
    draw = np.random.default_rng(seed)
    hiccups = draw.exponential(noise_ms, (ranks, steps + 1)) + (draw.random((ranks, steps + 1)) < 0.02) * draw.exponential(
        10.0, (ranks, steps + 1)
    )

    def arrive(rank: int, step: int) -> list[list[object]]:
        base = step * 10**9
        late = [delay_ms(rank, step) * share + hiccups[rank, step] for share in (0.0, 1.0)]
        return [["allreduce", 400, base + round(late[at] * MS_NS) + at * MS_NS, base + 50 * MS_NS, "backward"] for at in (0, 1)]

    def step_ms(rank: int, step: int) -> float:
        return STEP_MS + max(delay_ms(other, step) + float(hiccups[other, step]) for other in range(ranks))

    def own_phase(rank: int, step: int) -> float:
        return 8.0 + max(delay_ms(other, step) for other in range(ranks))

    def waits(rank: int, step: int) -> float:
        return max(delay_ms(other, step) for other in range(ranks)) - delay_ms(rank, step)

    return make_trace(ranks=ranks, steps=steps, collectives=arrive, step_ms=step_ms, backward_ms=own_phase, exposed_ms=waits)


def judged(delay_ms: Delay, *, ranks: int = 2, cores: int = 8, **options: float) -> Finding:
    return nobody_is_slow([world(delay_ms, ranks=ranks, **options)], bound=0.10, cores=cores)  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_constant_delay_in_backward_is_named(ranks: int) -> None:
    """The rank that computes 10 ms longer in backward is named, with its phase, although all backward times are equal."""
    finding = judged(lambda rank, step: 10.0 if rank == 1 else 0.0, ranks=ranks)

    assert finding.accepted is False
    assert "rank 1 makes the others wait" in finding.explanation
    assert "more than they do in backward" in finding.explanation


def test_one_step_in_twenty_is_named() -> None:
    """A rank that is late now and then is named once there are enough late steps to exclude luck."""
    finding = judged(lambda rank, step: 60.0 if rank == 0 and step % 20 == 0 else 0.0, steps=202)

    assert finding.accepted is False
    assert "rank 0 makes the others wait now and then" in finding.explanation


def test_ranks_that_take_turns_are_named() -> None:
    """Where the late rank alternates, both are named and none alone is blamed."""
    finding = judged(lambda rank, step: 12.0 if rank == step % 2 else 0.0)

    assert finding.accepted is False
    assert "take turns in being late: rank " in finding.explanation
    assert {"rank 0", "rank 1"} <= {finding.explanation[at : at + 6] for at in range(len(finding.explanation))}


def test_uniform_slowdown_is_nobody() -> None:
    """If all ranks are slower, none makes the others wait."""
    finding = judged(lambda rank, step: 30.0)

    assert finding.accepted is True
    assert "no rank is named" in finding.explanation


def test_false_alarms_of_a_noisy_machine_are_rare() -> None:
    """Healthy worlds of 2 to 8 ranks with noise of a twentieth of a step and rare hiccups of half a step: at most one alarm in 100."""
    findings = [judged(lambda rank, step: 0.0, ranks=ranks, seed=seed) for ranks in (2, 4, 8) for seed in range(34)]

    assert sum(finding.accepted is False for finding in findings) <= 1
    assert sum(finding.accepted is None for finding in findings) <= 5


def test_one_hiccup_is_nobody() -> None:
    """A single long pause of one rank is no slow rank."""
    finding = judged(lambda rank, step: 500.0 if (rank, step) == (1, 30) else 0.0)

    assert finding.accepted is True


def test_writer_of_checkpoints_is_no_straggler() -> None:
    """Rank 0 is 30 ms late after each save, which it alone writes: the steps that follow a save are left out."""
    saves = [{"kind": "file", "rank": 0, "n": step, "op": "write", "path": "/run/ck", "step": step} for step in range(5, 100, 5)]
    trace = world(lambda rank, step: 30.0 if rank == 0 and step % 5 == 1 else 0.0, steps=102)
    saving = replace(trace, files=pd.DataFrame(saves))

    assert nobody_is_slow([trace], bound=0.10, cores=8).accepted is False
    assert nobody_is_slow([saving], bound=0.10, cores=8).accepted is True


def test_uneven_oversubscription_is_undecided() -> None:
    """Three ranks on two cores: two share a core and are slow whatever the job does."""
    finding = judged(lambda rank, step: 0.0, ranks=3, cores=2)

    assert finding.accepted is None
    assert "share 2 cores unevenly" in finding.explanation


def test_too_few_steps_are_undecided() -> None:
    """A handful of steps, or a world without collectives, says nothing."""
    few = judged(lambda rank, step: 0.0, steps=8)
    none = nobody_is_slow([make_trace(ranks=2, steps=40, collectives=[])], bound=0.1, cores=8)

    assert few.accepted is None
    assert none.accepted is None
    assert "raise [job] steps" in few.explanation


def test_same_collectives_are_accepted() -> None:
    """All ranks finished and issued the same collectives."""
    finding = gets_through(make_trace(ranks=2, steps=5), job_folder=JOB)

    assert finding.accepted is True
    assert "the same 5 collectives" in finding.explanation


def test_other_sequence_is_named() -> None:
    """A rank that issues another collective is named with step and place, even though this run got through."""

    def change(record: Record) -> Record:
        if record["kind"] == "step" and record["step"] == 3 and record["rank"] == 1:
            return {**record, "collectives": [["broadcast", 36, 1, 2, "backward"]]}
        return record

    finding = gets_through(make_trace(ranks=2, steps=5, change=change), job_folder=JOB)

    assert finding.accepted is False
    assert "step 3, collective 1: rank 0 issues allreduce of 36 bytes where rank 1 issues broadcast" in finding.explanation


def test_crash_is_quoted(tmp_path: Path) -> None:
    """A rank that fails is quoted with its exit code and the line that says why, not a peer that lost its connection."""
    folder = write_trace(tmp_path / "run", ranks=2, steps=2, ended=ended_well(2, rank0=1, rank1=7))
    (folder / "rank0.log").write_text("RuntimeError: Connection closed by peer\n")
    (folder / "rank1.log").write_text("step 2\nValueError: bad row 7\n")

    finding = gets_through(load_trace(folder), job_folder=JOB)

    assert finding.accepted is False
    assert "rank 1 exited with code 7: 'ValueError: bad row 7'" in finding.explanation


def hung_world(folder: Path) -> Trace:
    """Rank 1 stopped in its own code in step 5, rank 0 waits in a collective; the world was ended after 5 s of silence."""
    ends = [{"rank": rank, "exit_code": None, "signal": 9, "killed_by_us": True} for rank in (0, 1)]
    ended = {"wall_s": 12.0, "started_utc": "", "ended_by": "stall", "ranks": ends, "message": "no sign of life for 5 s"}
    write_trace(
        folder, ranks=2, steps=4, spec={"stall_s": 5.0}, ended=ended, change=lambda record: None if record["kind"] == "exit" else record
    )
    for rank, phase, entered in ((0, "collective", 1), (1, "backward", 0)):
        (folder / f"rank{rank}.now").write_bytes(struct.pack("<qqqq", 5, entered, PHASES.index(phase), 5 * 10**9).ljust(64, b"\0"))
    stack = 'Thread 0x1 (most recent call first):\n  File "/usr/lib/torch/x.py", line 3 in wait\n  File "/srv/jobs/flights/train.py", line 88 in save_best\n'
    (folder / "rank1.stack").write_text(stack)
    return load_trace(folder)


def test_hang_names_who_stopped_and_where(tmp_path: Path) -> None:
    """The rank that did not come is named with its step and line, and so is the collective in which the other waits."""
    finding = gets_through(hung_world(tmp_path / "run"), job_folder=JOB)

    assert finding.accepted is False
    assert "rank 1 stopped in step 5 at train.py:88 save_best before collective 1 of that step (allreduce, 36 bytes)" in finding.explanation
    assert "in which rank 0 waits" in finding.explanation
    assert finding.details["silence_s"] == pytest.approx(7.0)


def test_the_collective_that_a_rank_waits_in_is_read_from_its_stack(tmp_path: Path) -> None:
    """A barrier of the save is not taken for the allreduce that came first in earlier steps."""
    hung_world(tmp_path / "run")
    stack = (
        'Thread 0x1 (most recent call first):\n  File "/usr/lib/threading.py", line 3 in run\n'
        'Current thread 0x2 (most recent call first):\n  File "/probe/collectives.py", line 9 in wait\n'
        '  File "/usr/lib/site-packages/torch/distributed/distributed_c10d.py", line 5 in barrier\n'
        '  File "/usr/lib/site-packages/torch/distributed/c10d_logger.py", line 8 in wrapper\n  File "/srv/jobs/flights/train.py", line 90 in save_best\n'
    )
    (tmp_path / "run" / "rank0.stack").write_text(stack)

    finding = gets_through(load_trace(tmp_path / "run"), job_folder=JOB)

    assert "before collective 1 of that step (barrier at train.py:90 save_best), in which rank 0 waits" in finding.explanation


def test_ranks_that_all_stop_in_their_own_code_blame_nobody(tmp_path: Path) -> None:
    """Where every rank stands outside any collective, none is said to wait for another."""
    folder = tmp_path / "run"
    hung_world(folder)
    for rank in (0, 1):
        (folder / f"rank{rank}.now").write_bytes(struct.pack("<qqqq", 5, 0, PHASES.index("between"), 5 * 10**9).ljust(64, b"\0"))
        (folder / f"rank{rank}.stack").write_text((folder / "rank1.stack").read_text().replace("torch/x.py", "subprocess.py"))

    finding = gets_through(load_trace(folder), job_folder=JOB)

    assert finding.accepted is False
    assert "every rank stopped in step 5 at train.py:88 save_best, outside any collective, so none waits for another" in finding.explanation


def test_stall_bound_follows_the_longest_silence() -> None:
    """A job whose steps take 10 s is given more than 20 s before it counts as standing still."""
    slow = make_trace(
        ranks=1, steps=4, change=lambda record: {**record, "t_ns": record["t_ns"] * 10} if record["kind"] == "step" else record
    )

    assert stall_bound_s(make_trace(ranks=1, steps=4)) == 5
    assert stall_bound_s(slow) == 20

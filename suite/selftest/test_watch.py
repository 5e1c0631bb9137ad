"""Looking at a run from outside: who is gone, who stands still, who is late, in real worlds while they run and in stored traces."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from fixtures.live import look
from fixtures.metrics import openmetrics, samples_of
from fixtures.trace import TraceError
from suite.__main__ import EXIT_NAMED, EXIT_USAGE, main
from suite.selftest.synthetic import MS_NS, SECOND_NS, write_trace
from suite.stragglers.watching import what_is_wrong

STEPS = 20


def arriving_late(rank: int, late_ms: float) -> Any:
    """Records in which this rank enters every collective so much later than the others."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] != "step" or record["rank"] != rank:
            return record
        moved = [[op, size, arrive + int(late_ms * MS_NS), done, phase] for op, size, arrive, done, phase in record["collectives"]]
        return {**record, "collectives": moved}

    return change


def test_a_healthy_run_names_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_trace(tmp_path / "run", steps=STEPS, ranks=2)

    assert main(["watch", str(folder)]) == 0
    assert "every rank moves, step 20 is done, 100.0 ms a step; nobody is late" in capsys.readouterr().out


def test_a_late_rank_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_trace(tmp_path / "run", steps=STEPS, ranks=2, change=arriving_late(1, 25.0))

    assert main(["watch", str(folder)]) == EXIT_NAMED
    assert "rank 1 makes the others wait" in capsys.readouterr().out


def test_lateness_below_the_share_asked_for_names_nobody(tmp_path: Path) -> None:
    live = look(write_trace(tmp_path / "run", steps=STEPS, ranks=2, change=arriving_late(1, 25.0)))

    assert what_is_wrong(live, bound=0.3).ranks == ()


def test_a_rank_that_is_gone_is_named_before_those_that_end_after_it(tmp_path: Path) -> None:
    folder = write_trace(tmp_path / "run", steps=STEPS, ranks=2, change=lambda record: None if record["kind"] == "exit" else record)
    (folder / "ended.json").unlink()  # as it is while a world still runs: process ids 1000 and 1001 are nobody's
    for rank, t_s in ((0, 40), (1, 30)):
        step, place = (folder / f"rank{rank}.now"), (7, 0, 4, t_s * SECOND_NS)
        step.write_bytes(b"".join(value.to_bytes(8, "little") for value in place).ljust(64, b"\0"))
    seen = what_is_wrong(look(folder), bound=0.1)

    assert seen.ranks == (1,)
    assert seen.words.startswith("rank 1 is gone: it ended in step 7, in backward, without a word")
    assert seen.words.endswith("rank 0 ended after it")


def test_only_the_ends_of_a_long_record_are_read(tmp_path: Path) -> None:
    """A run of days must not take minutes to look at; its first and last records are there all the same."""
    folder = write_trace(tmp_path / "run", steps=4000, ranks=1)
    live = look(folder)

    assert (folder / "rank0.jsonl").stat().st_size > 2 * (1 << 20)
    assert live.trace.steps["step"].max() == 4000
    assert len(live.trace.steps) < 4000
    assert live.trace.model(0)["parameter_count"] == 9


def test_a_folder_without_a_probe_says_how_to_start_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TraceError, match="RANKPROOF_TRACE="):
        look(tmp_path)
    assert main(["watch", str(tmp_path)]) == EXIT_USAGE
    assert "start the job with PYTHONPATH=" in capsys.readouterr().err


def test_metrics_are_openmetrics_and_say_what_the_trace_says(tmp_path: Path) -> None:
    text = openmetrics(samples_of(look(write_trace(tmp_path / "run", steps=STEPS, ranks=2, change=arriving_late(1, 25.0)))))
    lines = text.splitlines()

    assert lines[-1] == "# EOF"
    assert all(re.fullmatch(r'[a-z_]+(\{[a-z]+="\w+"(,[a-z]+="\w+")*\})? (NaN|[+-]?[\d.e+-]+)', line) for line in lines if line[0] != "#")
    assert 'rankproof_steps_total{rank="0"} 20' in lines
    assert 'rankproof_lateness_ratio{rank="1"} 0.25' in lines
    assert 'rankproof_phase_seconds{phase="forward",rank="1"} 0.03' in lines
    assert "rankproof_silence_seconds 0" in lines
    assert "checkpoint" not in text, "no checkpoint directory is watched in this trace: absent, not zero"


def test_families_stand_together_with_their_type_first(tmp_path: Path) -> None:
    """The format asks for it; a scraper may drop a family that comes in two pieces."""
    text = openmetrics(samples_of(look(write_trace(tmp_path / "run", steps=STEPS, ranks=2))))
    order = [re.split(r"[{ ]", line)[0].removesuffix("_total") for line in text.splitlines() if not line.startswith("#")]
    typed = re.findall(r"^# TYPE (\w+) ", text, flags=re.MULTILINE)

    assert list(dict.fromkeys(order)) == typed
    assert sum(one != other for one, other in itertools.pairwise(order)) == len(typed) - 1

"""Judges of inputs, case by case: which rank, step or field is named, and where a bound is met."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.audit import Program
from fixtures.trace import Trace, load_trace
from suite.inputs.broken import far_out_is_noticed, malformed_is_stopped, missing_is_refused
from suite.inputs.by_hand import equals_by_hand
from suite.inputs.cases import record_inputs, training_inputs
from suite.inputs.knowable import cutoff_changes_nothing, late_changes_nothing, went_round
from suite.inputs.replay import replays
from suite.inputs.response import clean_problem, names_in_log, not_finite, quoted_end, refusal_fault, refused, strangers
from suite.selftest.synthetic import ended_well, make_trace, sample_of, write_trace

REPORT = {
    "kind": "malformed", "input": "events", "path": "/data/events.parquet", "altered": 2, "rows": [40, 90], "entities": ["UA1"], "columns": ["delay", "b", "c", "d"],
    "values": ["inf", "2026-01-01"], "cutoff": "2026-02-01", "rows_kept": 5,
}  # fmt: skip
PLACES = ((0, 1), (1, 1), (1, 4), (0, 6))


def answer(
    folder: Path, logs: tuple[str, str], *, steps: int = 0, codes: tuple[int, int] = (1, 1), by: str = "exit", **overrides: Any
) -> Trace:
    ended = {**ended_well(2, rank0=codes[0], rank1=codes[1]), "ended_by": by, "message": "silent"}
    write_trace(folder, ranks=2, steps=steps, spec={"damage_report": REPORT}, ended=ended, **overrides)
    for rank, log in enumerate(logs):
        (folder / f"rank{rank}.log").write_text(log)
    return load_trace(folder)


def strange(place: tuple[int, int], row: int = 1) -> Any:
    """Samples of which one, in this place, is none of a clean run's."""

    def samples(rank: int, step: int) -> list[str]:
        own = [sample_of((step - 1) * 8 + rank * 4 + at) for at in range(4)]
        return [*own[:row], "f" * 16, *own[row + 1 :]] if (rank, step) == place else own

    return samples


@pytest.mark.parametrize("place", PLACES)
def test_one_stranger_or_lost_number(tmp_path: Path, place: tuple[int, int]) -> None:
    rank, step = place
    clean = make_trace(ranks=2)
    seen = make_trace(ranks=2, samples=strange(place))
    assert strangers(seen, set(clean.samples["sample"])) == (1, f"step {step} on rank {rank}")
    for run, what in (
        (seen, "sound inputs"),
        (answer(tmp_path / "run", ("UA1", ""), steps=6, codes=(0, 0), samples=strange(place)), "2 broken rows"),
    ):
        finding = (
            malformed_is_stopped(clean, clean if what != "sound inputs" else run, run)
            if what == "sound inputs"
            else malformed_is_stopped(clean, run, clean)
        )
        assert (finding.accepted, finding.value, finding.bound) == (False, 1, 0)
        assert f"given {what}" in finding.explanation
        assert f"on 1 samples that no clean run has, the first in step {step} on rank {rank}; the losses stay finite" in finding.explanation
        assert "differ, so the damage" not in finding.explanation
    lost = make_trace(ranks=2, losses=lambda own, at: [math.nan if (own, at) == place else 1.0])
    assert not_finite(lost) == f"step {step} on rank {rank} (nan)"
    assert not_finite(clean) == ""
    finding = malformed_is_stopped(clean, clean, lost)
    assert (finding.accepted, finding.value) == (False, 0)
    assert finding.explanation == f"given sound inputs, the loss is no finite number from step {step} on rank {rank} (nan) on"


@pytest.mark.parametrize(("odd", "many"), [(24, False), (25, True)])
def test_when_most_samples_differ(odd: int, many: bool) -> None:
    clean = make_trace(ranks=2)
    seen = make_trace(
        ranks=2,
        samples=lambda rank, step: [
            sample_of((step - 1) * 8 + rank * 4 + at + (900 if (step - 1) * 8 + rank * 4 + at < odd else 0)) for at in range(4)
        ],
    )
    finding = malformed_is_stopped(clean, clean, seen)
    assert finding.value == odd
    assert (f"; {odd} of 48 differ" in finding.explanation) is many


@pytest.mark.parametrize("judge", [malformed_is_stopped, far_out_is_noticed])
def test_how_a_job_answers(tmp_path: Path, judge: Any) -> None:
    clean = make_trace(ranks=2)

    def judged(name: str, logs: tuple[str, str], **more: Any) -> Any:
        return judge(clean, answer(tmp_path / name, logs, **more), clean)

    stopped = judged("a", ("x", "bad delay"))
    assert (stopped.accepted, stopped.samples) == (True, 1)
    assert "named delay: rank 0 exited with code 1" in stopped.explanation
    assert stopped.details["damage"]["rows"] == [40, 90]
    zero = judged("b", ("bad delay", ""), codes=(1, 0))
    assert "rank 1 exited with code 0 although it made no step" in zero.explanation
    first = judged("b2", ("bad delay", ""), codes=(0, 1))
    assert "rank 0 exited with code 0 although" in first.explanation
    half = judged("c", ("bad delay", ""), codes=(1, 0), steps=3)
    assert "rank 1 exited with code 0 while rank 0 exited with code 1" in half.explanation
    late = judged("d", ("bad delay", ""), steps=3)
    assert "stopped only after 3 steps" in late.explanation
    hung = judged("e", ("bad delay", ""), by="stall")
    assert "it hung (silent)" in hung.explanation
    for one in (zero, first, half, late, hung, judged("f", ("oops", "")), judged("g", ("fine", ""), steps=6, codes=(0, 0))):
        assert one.accepted is False
    told = judged("h", ("left out UA1 and row 41", ""), steps=6, codes=(0, 0))
    assert told.accepted is True
    assert "named UA1, row 40" in told.explanation
    for broken, words in (
        (make_trace(ranks=2, ended=ended_well(2, rank1=3)), "did not finish: rank 1"),
        (make_trace(samples=[]), "no sample was seen"),
    ):
        undecided = judge(broken, clean, clean)
        assert undecided.accepted is None
        assert words in undecided.explanation
    ended = make_trace(ranks=2, ended=ended_well(2, rank1=3))
    assert "a batch ended it after 6 finished steps: rank 1" in malformed_is_stopped(clean, clean, ended).explanation
    stuck = make_trace(ranks=2, ended={**ended_well(2), "ended_by": "stall", "message": "m"})
    assert malformed_is_stopped(clean, clean, stuck).explanation == "given sound inputs, it hung (m)"
    assert clean_problem(stuck) == "the run on clean inputs did not finish: it hung (m)"
    none = make_trace(ranks=2, steps=0, ended=ended_well(2, rank0=1, rank1=1))
    assert refused(none)
    assert malformed_is_stopped(clean, clean, none).accepted is not None
    assert not refused(clean)
    assert refusal_fault(clean, [], "x") == ""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("value", "verdict"), [(21.0, True), (21.01, False), (-21.0, True), (-21.01, False)])
def test_how_far_out_inputs_may_lie(tmp_path: Path, place: tuple[int, int], value: float, verdict: bool) -> None:
    rank, step = place
    name = "input_high" if value > 0 else "input_low"
    usual = 1.0 if value > 0 else -1.0
    moved: dict[str, Any] = {name: lambda own, at: value if (own, at) == place else usual}
    clean = make_trace(ranks=2)
    finding = far_out_is_noticed(clean, answer(tmp_path / "run", ("UA1 left out", ""), steps=6, codes=(0, 0), **moved), clean)
    assert finding.accepted is verdict
    assert finding.value == pytest.approx(abs(value) - 1.0)
    assert finding.bound == 20.0
    if not verdict:
        assert f"the model was fed {value:g} in step {step} on rank {rank}; a clean run stays within -1 to 1" in finding.explanation
        assert far_out_is_noticed(clean, clean, make_trace(ranks=2, **moved)).accepted is False
    assert "(delay, b, c)" in finding.explanation
    unseen = make_trace(ranks=2, input_low=None, input_high=None)
    assert far_out_is_noticed(unseen, unseen, unseen).accepted is None


def test_what_the_output_names(tmp_path: Path) -> None:
    def named(log: str, clean: Trace | None = None, other: str = "", **report: Any) -> list[str]:
        trace = answer(tmp_path / str(len(list(tmp_path.iterdir()))), (log, other))
        return names_in_log(trace, {**REPORT, **report}, clean)

    assert named("UA1 delay b c d") == ["UA1", "delay", "b"]
    assert named("UA12 delays") == []
    assert named("", other="UA1") == ["UA1"]
    for number, row in ((40, "row 40"), (41, "row 40"), (42, "row 40"), (43, ""), (39, ""), (91, "row 90")):
        assert named(f"record {number} is broken") == ([row] if row else [])
    assert named("row 40, row 90") == ["row 40"]
    assert named("inf") == []
    assert named("events.parquet") == []
    assert named("cannot read events.parquet", entities=[], columns=[], values=[], rows=[]) == ["/data/events.parquet"]
    usual = answer(tmp_path / "usual", ("UA1 is read", ""))
    assert named("UA1 is read", usual) == []
    assert named("UA1 is read\nUA1 is bad", usual) == ["UA1"]
    assert quoted_end(answer(tmp_path / "end", ("", "ValueError: no"))) == "ValueError: no"
    assert quoted_end(answer(tmp_path / "end2", ("first", "ValueError: no"))) == "first"
    assert quoted_end(answer(tmp_path / "end3", ("", ""))) == ""


def test_a_missing_input(tmp_path: Path) -> None:
    for logs in (("no events.parquet", ""), ("", "no events.parquet")):
        fine = missing_is_refused(answer(tmp_path / f"a{len(logs[0])}", logs))
        assert (fine.accepted, fine.value, fine.bound, fine.samples) == (True, 0, 0, 1)
        assert "named events.parquet" in fine.explanation
    assert missing_is_refused(answer(tmp_path / "b", ("oops", ""))).accepted is False
    on = missing_is_refused(answer(tmp_path / "c", ("events.parquet", ""), steps=5, codes=(0, 0)))
    assert on.accepted is False
    assert "went on without it for 5 steps" in on.explanation


@pytest.mark.parametrize(
    ("seen", "verdict", "words"),
    [
        ({"a": 1.0, "b": [1, {"c": "x"}], "n": None}, True, "all 4 fields"),
        ({"a": 1.125, "b": [1, {"c": "x"}], "n": None}, True, "all 4 fields"),
        ({"a": 1.126, "b": [1, {"c": "x"}], "n": None}, False, "a: 1.0 by hand, 1.126 by the job (1 of 4 fields differ; tolerance 0.125)"),
        ({"a": 0.87, "b": [2, {"c": "x"}], "n": None}, False, "(2 of 4 fields differ"),
        ({"a": 1.0, "b": [1, {"c": "y"}], "n": None}, False, "b[1].c: 'x' by hand, 'y' by the job"),
        ({"a": 1.0, "b": [1, {"c": "x"}]}, False, "n: None by hand, nothing by the job"),
        ({"a": True, "b": [1, {"c": "x"}], "n": None}, False, "a: 1.0 by hand, True"),
        ({"a": math.nan, "b": [1, {"c": "x"}], "n": None}, False, "a: 1.0 by hand, nan"),
        ({"a": 1.0, "b": [1, {"c": "x"}], "n": None, "more": 3}, True, "all 4 fields"),
    ],
)
def test_fields_worked_out_by_hand(tmp_path: Path, seen: dict[str, Any], verdict: bool, words: str) -> None:
    expected = tmp_path / "expected.json"
    expected.write_text(json.dumps({"a": 1.0, "b": [1, {"c": "x"}], "n": None}))
    program = Program(0, "", {"out.json": json.dumps(seen).encode()}, {})
    finding = equals_by_hand(program, produces="out.json", expected=expected, tolerance=0.125)
    assert finding.accepted is verdict
    assert words in finding.explanation
    assert finding.samples == 4
    assert [row[0] for row in finding.details["table"]["rows"]] == ["a", "b[0]", "b[1].c", "n"]
    for failed in (
        Program(2, "one\nlast words", {"out.json": b"{}"}, {}),
        Program(0, "", {"out.json": None}, {}),
        Program(0, "", {"out.json": b"{"}, {}),
    ):
        assert equals_by_hand(failed, produces="out.json", expected=expected, tolerance=0.125).accepted is False
    assert (
        "exited with code 2; its last words: 'last words'"
        in equals_by_hand(Program(2, "one\nlast words", {}, {}), produces="out.json", expected=expected, tolerance=0.125).explanation
    )
    expected.write_text("{}")
    assert equals_by_hand(program, produces="out.json", expected=expected, tolerance=0.125).accepted is None
    expected.write_text('{"a": NaN}')
    assert equals_by_hand(program, produces="out.json", expected=expected, tolerance=0.125).accepted is math.isnan(float(seen["a"]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("row", [0, 3])
def test_one_sample_that_changes_with_what_comes_late(tmp_path: Path, place: tuple[int, int], row: int) -> None:
    rank, step = place
    spec = {"damage_report": REPORT}
    one, other = make_trace(ranks=2, spec=spec), make_trace(ranks=2, samples=strange(place, row))
    for pair in ((one, other), (make_trace(ranks=2, spec=spec, samples=strange(place, row)), make_trace(ranks=2))):
        finding = late_changes_nothing(*pair)
        assert (finding.accepted, finding.value, finding.bound, finding.samples) == (False, 1, 0, 48)
        assert f"1 of 48 samples differ, the first in step {step} on rank {rank} (row {row})" in finding.explanation
    same = late_changes_nothing(one, make_trace(ranks=2))
    assert (same.accepted, same.value, same.samples) == (True, 0, 48)
    assert same.details == {"input": "events", "late_rows": 2, "available_from": "inf"}
    stopped = answer(tmp_path / "a", ("UA1", "")), answer(tmp_path / "b", ("UA1", ""))
    assert late_changes_nothing(*stopped).accepted is True
    assert "named UA1" in late_changes_nothing(*stopped).explanation
    assert late_changes_nothing(answer(tmp_path / "c", ("oops", "")), stopped[1]).accepted is False
    assert late_changes_nothing(stopped[0], make_trace(ranks=2)).accepted is None
    assert (
        "the run with 2 late records in events did not finish"
        in late_changes_nothing(make_trace(ranks=2, spec=spec, ended=ended_well(2, rank0=1)), one).explanation
    )


@pytest.mark.parametrize("lost", [0, 1, 48])
def test_samples_that_only_the_later_run_explains(lost: int) -> None:
    def samples(rank: int, step: int) -> list[str]:
        return [sample_of(((step - 1) * 8 + rank * 4 + row) % 48) for row in range(4)]

    whole = make_trace(steps=7, ranks=2, samples=samples)
    spec = {"damage_report": REPORT}
    cut = make_trace(
        ranks=2,
        spec=spec,
        samples=lambda rank, step: [
            "e" * 15 + str(index) if index < lost else own for index, own in enumerate(samples(rank, step), (step - 1) * 8 + rank * 4)
        ],
    )
    finding = cutoff_changes_nothing([make_trace(), whole], cut)
    assert (finding.accepted, finding.value, finding.bound) == (lost == 0, lost, 0)
    assert went_round(whole)
    assert not went_round(make_trace(ranks=2))
    if lost:
        assert ("; all of them differ" in finding.explanation) is (lost == 48)
        assert f"{lost} of 48 ({lost / 48:.1%})" in finding.explanation
    assert finding.details == {"input": "events", "cutoff": "2026-02-01", "rows_kept": 5, "rows_dropped": 2}
    assert cutoff_changes_nothing([make_trace(ranks=2)], cut).accepted is None
    broken = cutoff_changes_nothing([whole], make_trace(ranks=2, ended=ended_well(2, rank0=1)))
    assert "the run on inputs up to the cutoff did not finish" in broken.explanation
    other = cutoff_changes_nothing([make_trace(ranks=2, ended=ended_well(2, rank0=1))], cut)
    assert "the run on clean inputs did not finish" in other.explanation


def test_which_inputs_are_gone_through() -> None:
    job: Any = SimpleNamespace(inputs={"a": "x", "b": "{out}/b", "c": "y"}, command="train.py --a {a}", records={"b": 1, "c": 2})
    assert training_inputs(job) == ("a", "b")
    assert record_inputs(job) == ("b",)


@pytest.mark.parametrize(("score", "verdict"), [(0.5, True), (0.7, False)])
def test_a_batch_that_ends_at_a_moment(score: float, verdict: bool) -> None:
    rows = ["id,at,score", "a,2026-01-31T23:00:00Z,0.5", "b,2026-02-01T00:00:00Z,0.25", "c,2026-02-01T01:00:00Z,0.9"]
    reference = "\n".join(rows).encode()
    served = "\n".join([rows[0], f"a,2026-01-31T23:00:00Z,{score}", rows[2], "c,2026-02-01T01:00:00Z,0.1"]).encode()
    finding = replays(
        Program(0, "", {"s": served}, {"cutoff": "2026-02-01T00:00:00Z", "rows_kept": 9}), reference, scores="s", tolerance=0.1
    )
    assert finding.accepted is verdict
    assert finding.samples == 2
    assert replays(Program(0, "", {"s": served}, {}), reference, scores="s", tolerance=0.1).accepted is None
    assert (
        replays(Program(1, "", {"s": served}, {"cutoff": "2026-02-01T00:00:00Z"}), reference, scores="s", tolerance=0.1).accepted is False
    )
    assert replays(Program(0, "", {"s": served}, {"cutoff": "2026-02-01T00:00:00Z"}), None, scores="s", tolerance=0.1).accepted is None

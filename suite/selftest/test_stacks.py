"""The page of results on other stacks: its table of signals, what is known of findings, and the page itself, from traces and results made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.criterion import discover
from fixtures.job import load_job
from fixtures.trace import Record
from suite.selftest.synthetic import make_trace, write_trace
from suite.stacks.command import ROOT, STACKS, audited, is_of
from suite.stacks.entries import Known, Stack, StacksError, read_stacks
from suite.stacks.results import Result, Verdict, of_interest, read_results, result_of, verdicts_of, write_results
from suite.stacks.sheet import page, problems
from suite.stacks.signals import CAPTURED, NOT_APPLICABLE, NOT_SEEN, Signal, signals

KNOWN = Known("equivalence.data_coverage", r"consumed twice", "default", "the last batch is padded", "", "https://example.org/1", ())
STACK = Stack("lib/job", Path("lib/job.toml"), "A library", ("torch",), (KNOWN,))
FAILED = Verdict("equivalence.data_coverage", "failed", "a row is consumed twice | here", "")
PASSED = Verdict("recovery.restore", "passed", "all restored", "")
ROWS = (Signal("loss", CAPTURED, "1 backward passes a step"), Signal("buffers", NOT_APPLICABLE, "the model has none"))
RESULT = Result("lib/job", "hash", {"torch": "2.13.0"}, 2, ROWS, (FAILED, PASSED), {})


def states(rows: tuple[Signal, ...]) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.words) for one in rows}


def test_what_a_trace_holds_is_captured() -> None:
    found = states(signals([make_trace(ranks=2, gradients={0: {"layer.weight": [[1.0] * 2] * 3, "layer.bias": [1.0] * 3}})]))

    assert found["optimizer steps"] == (CAPTURED, "6 steps on each of 2 ranks")
    assert found["loss"] == (CAPTURED, "1 backward passes a step")
    assert found["gradient of the first step"] == (CAPTURED, "9 elements of 2 parameters")
    assert found["samples consumed"] == (CAPTURED, "8 rows a step over all ranks")
    assert found["collectives"] == (CAPTURED, "6 allreduce on rank 0; arrival of all, completion of 100 %")
    assert found["exposed communication"][0] == found["end of the rank"][0] == CAPTURED


def test_what_a_job_does_not_have_is_not_applicable() -> None:
    found = states(signals([make_trace(ranks=1)]))

    assert found["buffers"] == (NOT_APPLICABLE, "the model has none")
    assert found["loss scale"] == (NOT_APPLICABLE, "no enabled GradScaler of torch was made")
    assert found["clipping"][0] == found["schedule"][0] == NOT_APPLICABLE
    assert found["collectives"] == (NOT_APPLICABLE, "one rank")
    assert found["wait for data"][0] == found["fetches of data loaders"][0] == NOT_APPLICABLE


def test_a_gradient_that_changes_behind_backward_may_be_clipped_by_hand() -> None:
    found = states(signals([make_trace(ranks=1, left_digest="another")]))

    assert found["clipping"][0] == NOT_SEEN
    assert "clipping by hand cannot be told" in found["clipping"][1]


def test_what_did_not_come_is_not_seen_with_the_probes_reason() -> None:
    said: Record = {"kind": "not_seen", "rank": 0, "signal": "samples", "reason": "the inputs of Net hold no tensor with rows"}
    other: Record = {"kind": "not_seen", "rank": 0, "signal": "device_times", "reason": "phase times are of the host"}
    found = states(signals([make_trace(ranks=1, samples=[], optimizer_digest=None, extra=[said, other])]))

    assert found["samples consumed"] == (NOT_SEEN, "the inputs of Net hold no tensor with rows")
    assert found["optimizer state"] == (NOT_SEEN, "no record of it came")
    assert found["gradient of the first step"][0] == NOT_SEEN
    assert found["device_times"] == (NOT_SEEN, "phase times are of the host")
    assert found["state restored by a resume"] == (NOT_SEEN, "no run was started again")
    assert found["the same run in float64"] == (NOT_SEEN, "no run in float64 ended")


def test_ranks_that_exchange_nothing_are_no_single_rank() -> None:
    assert states(signals([make_trace(ranks=2, collectives=[])]))["collectives"][0] == NOT_SEEN


def test_one_step_without_a_value_is_enough_for_not_seen() -> None:
    trace = make_trace(ranks=2, losses=lambda rank, step: [] if (rank, step) == (1, 3) else [1.0])

    assert states(signals([trace]))["loss"][0] == NOT_SEEN


def test_levels_complete_each_other() -> None:
    """The first gradient is in one run, the optimizer's digest in another."""
    plain, full = make_trace(ranks=1), make_trace(ranks=1, optimizer_digest="d")

    assert states(signals([plain, full]))["optimizer state"][0] == CAPTURED


def test_a_resumed_run_shows_what_was_restored() -> None:
    assert states(signals([make_trace()], [make_trace()]))["state restored by a resume"] == (
        CAPTURED,
        "parameters, random numbers before the first step",
    )


def test_no_run_at_all_is_not_seen() -> None:
    assert {one.state for one in signals([])} == {NOT_SEEN}


def test_only_runs_without_a_fault_count(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"level": "default", "numerics": "as_run", "global_batch": 8}
    write_trace(tmp_path / "plain", ranks=2, spec={**asked, "run_id": "plain", "faults": []})
    write_trace(tmp_path / "full", ranks=2, spec={**asked, "run_id": "full", "level": "full"})
    write_trace(tmp_path / "faulty", ranks=2, spec={**asked, "run_id": "faulty", "faults": [{"kind": "sleep"}]})
    write_trace(tmp_path / "again", ranks=2, spec={**asked, "run_id": "again", "resume_from": "plain"})
    write_trace(tmp_path / "alone", ranks=1, spec={**asked, "run_id": "alone"})
    write_trace(tmp_path / "larger", ranks=2, spec={**asked, "run_id": "larger", "global_batch": 16})
    plain, resumed = of_interest(tmp_path, 2, 8)

    assert [trace.spec["run_id"] for trace in plain] == ["full", "plain"]
    assert [trace.spec["run_id"] for trace in resumed] == ["again"]


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    result = Result("a/job", "h", {"torch": "2"}, 2, ROWS, (FAILED,), {3: (("recovery.restore", "rejected", "not all"),)})
    write_results(tmp_path / "results.json", [result])

    assert read_results(tmp_path / "results.json") == {"a/job": result}
    assert read_results(tmp_path / "absent.json") == {}
    assert result.rejections() == [("equivalence.data_coverage", FAILED.explanation), ("recovery.restore", "not all")]


def test_verdicts_are_those_of_the_two_areas_without_paths(tmp_path: Path) -> None:
    rows = [
        {
            "id": "equivalence.loss",
            "area": "equivalence",
            "verdict": "failed",
            "reason": None,
            "finding": {"explanation": f"see {tmp_path}/x"},
        },
        {"id": "inputs.late", "area": "inputs", "verdict": "passed", "reason": "", "finding": None},
        {"id": "recovery.retry", "area": "recovery", "verdict": "not_run", "reason": "no record", "finding": None},
    ]

    assert verdicts_of({"criteria": rows}, tmp_path) == (
        Verdict("equivalence.loss", "failed", "see x", ""),
        Verdict("recovery.retry", "not_run", "", "no record"),
    )


def finished(folder: Path, area: str, job_hash: str = "h") -> Path:
    """A finished audit of one area, as far as results are read from it."""
    areas = ("equivalence", "recovery")
    rows = [
        {
            "id": f"{one}.x",
            "area": one,
            "verdict": "passed" if one == area else "not_run",
            "reason": "",
            "finding": {"explanation": f"{area} says"},
        }
        for one in areas
    ]
    whole = {"criteria": rows, "world": {"world_size": 2}, "identity": {"job_hash": job_hash}, "job": {"global_batch": 8}}
    write_trace(folder / "traces" / "run", ranks=2, spec={"level": "full", "numerics": "as_run", "global_batch": 8})
    (folder / "audit.json").write_text(json.dumps(whole))
    return folder


def test_the_audits_of_two_areas_make_one_result(tmp_path: Path) -> None:
    audits = [finished(tmp_path / area, area) for area in ("equivalence", "recovery")]
    result = result_of("lib/job", audits, {"torch": "2"})

    assert [(one.criterion, one.verdict) for one in result.verdicts] == [("equivalence.x", "passed"), ("recovery.x", "passed")]
    assert [one.explanation for one in result.verdicts] == ["equivalence says", "recovery says"]
    assert states(result.signals)["optimizer steps"][0] == CAPTURED


def test_a_kept_audit_counts_for_its_own_job_alone(tmp_path: Path) -> None:
    folder = finished(tmp_path / "kept", "recovery")

    assert is_of(folder, "h", 2)
    assert not is_of(folder, "another", 2)
    assert not is_of(folder, "h", 4)
    assert not is_of(tmp_path / "absent", "h", 2)


def test_a_stack_whose_library_is_missing_says_how_to_install_it() -> None:
    with pytest.raises(StacksError, match=r"lib/job needs no-such-library: pip install -c constraints.txt -e '.\[stacks\]'"):
        audited(replace(STACK, distributions=("no-such-library",)), 2, 1, None)


def test_the_page_says_of_every_finding_what_it_is() -> None:
    text = page([STACK], {"lib/job": RESULT})

    assert "| [lib/job](#libjob) | torch 2.13.0 | 1 | 1 | 0 | 0 | not run |" in text
    assert (
        "| `equivalence.data_coverage` | a row is consumed twice \\| here | **what the library does by default, as documented**: the last"
        in text
    )
    assert "| buffers | n/a |" in text
    assert text.rstrip().endswith("Nothing.")


def test_a_finding_that_nothing_explains_and_a_stale_explanation_are_problems() -> None:
    strange = Verdict("equivalence.data_coverage", "failed", "a row is lost", "")
    result = Result("lib/job", "hash", {}, 2, ROWS, (strange,), {})

    assert problems(STACK, RESULT) == []
    assert problems(STACK, result) == [
        "unexplained finding equivalence.data_coverage: a row is lost",
        "equivalence.data_coverage was expected to find 'consumed twice' and did not: correct stacks.toml",
    ]
    assert "**not explained**" in page([STACK], {"lib/job": result})
    assert "Not run: lib/job." in page([STACK], {})


def test_a_finding_at_another_seed_counts() -> None:
    result = Result("lib/job", "hash", {}, 2, ROWS, (FAILED,), {1: (("recovery.restore", "rejected", "something is lost"),)})

    assert problems(STACK, result) == ["unexplained finding recovery.restore: something is lost"]


def test_every_known_finding_names_a_criterion_and_every_job_can_be_read() -> None:
    known = {one.id for one in discover(ROOT / "suite")}
    stacks = read_stacks(STACKS)

    assert {finding.criterion for stack in stacks for finding in stack.known} - known == set()
    assert len({load_job(stack.job).name for stack in stacks}) == len(stacks)


def test_the_script_of_a_stack_is_short_and_one_file() -> None:
    for stack in read_stacks(STACKS):
        assert len((stack.job.parent / "train.py").read_text().splitlines()) <= 170, stack.name


def test_only_chooses_by_folder_or_by_job() -> None:
    assert [one.name for one in read_stacks(STACKS, ["lightning/job"])] == ["lightning/job"]
    assert {one.name for one in read_stacks(STACKS, ["lightning"])} == {"lightning/job", "lightning/careful"}
    with pytest.raises(StacksError, match=r"no stack matches nothing: give one of accelerate/job"):
        read_stacks(STACKS, ["nothing"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[other]\ntitle = "x"', r"has \[other\] but .* holds no job"),
        ("[lib]\nname = 1", r"\[lib\] of stacks.toml has the unknown key 'name'"),
        ('[[lib.finding]]\ncriterion = "a.b"', "lacks 'cause'"),
        ('[[lib.finding]]\ncriterion = "a.b"\ncause = "("\nwhose = "script"\nwords = "w"', "cause is no regular expression"),
        (
            '[[lib.finding]]\ncriterion = "a.b"\ncause = "x"\nwhose = "mine"\nwords = "w"',
            "whose = 'mine': use one of library, default, script",
        ),
        ("[[lib.finding]]\ncolour = 1", "has the unknown key 'colour'"),
    ],
)
def test_a_wrong_list_says_what_to_correct(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "job.toml").write_text("")
    (tmp_path / "stacks.toml").write_text(text)

    with pytest.raises(StacksError, match=said):
        read_stacks(tmp_path)


def test_stored_results_are_of_jobs_that_exist() -> None:
    store = ROOT / "docs" / "stacks.json"
    names = {stack.name for stack in read_stacks(STACKS)}

    assert set(json.loads(store.read_text())) <= names
    assert (ROOT / "docs" / "stacks.md").read_text() == page(read_stacks(STACKS), read_results(store))

"""The fault catalogue: the file and the folder agree, both programs of every entry differ in the mistake alone, and a few faults are tried for real."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.criterion import discover
from suite.matrix.command import CATALOGUE, ROOT, surroundings
from suite.matrix.entries import CatalogueError, Entry, broken_source, clean_source, job_toml, orphans, read_catalogue, write_job
from suite.matrix.sheet import alarms, outcome_of, page, problems
from suite.matrix.trial import Row, Said, Surroundings, try_entry

ENTRIES = read_catalogue(CATALOGUE)
MOST_LINES = 12  # of the two programs together that belong to the mistake
FEWEST_OF_NUMBERS = 40
NOT_NUMBERS = {"resume", "saving", "hang", "inputs", "scaling"}


def test_every_file_is_in_the_catalogue_and_every_entry_has_its_file() -> None:
    assert orphans(CATALOGUE, ENTRIES) == ([], [])


def test_no_file_is_forgotten_and_none_invented(tmp_path: Path) -> None:
    folder = tmp_path / "sync"
    folder.mkdir()
    (folder / "there.py").write_text("")
    absent = Entry("absent", "sync", folder / "absent.py", "", "", "", "equivalence.gradient", "x", ())
    assert orphans(tmp_path / "catalogue.toml", [absent]) == (["sync/there.py"], ["sync/absent.py"])


def test_at_least_forty_faults_are_about_what_is_computed() -> None:
    assert sum(entry.family not in NOT_NUMBERS for entry in ENTRIES) >= FEWEST_OF_NUMBERS


def test_names_are_unique_since_results_are_kept_by_name() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_every_expected_criterion_exists() -> None:
    known = {one.id for one in discover(ROOT / "suite")}
    assert {entry.criterion for entry in ENTRIES} - known == set()


def test_every_cause_says_something() -> None:
    assert [entry.name for entry in ENTRIES if len(entry.cause) < 3 or re.search(entry.cause, "")] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_two_programs_differ_in_the_mistake_alone(entry: Entry) -> None:
    text = entry.file.read_text()
    broken, clean = broken_source(text), clean_source(text)
    changed = [line for line in difflib.ndiff(broken.splitlines(), clean.splitlines()) if line.startswith(("+", "-"))]
    assert 1 <= len(changed) <= MOST_LINES, changed
    assert "the mistake" not in broken + clean
    assert "# right:" not in broken + clean
    for program in (broken, clean):
        ast.parse(program)
    assert entry.did, "the file has no docstring that says what the user did"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_is_a_job(entry: Entry, tmp_path: Path) -> None:
    from fixtures.job import load_job

    job = load_job(write_job(entry, entry.file.read_text(), tmp_path / entry.name))
    assert job.name == entry.name


def test_the_right_lines_take_the_indentation_of_their_comment() -> None:
    text = "if a:\n    b()  # the mistake\n    # right: if c:\n    # right:     d()\n    e()\n"
    assert clean_source(text) == "if a:\n    if c:\n        d()\n    e()\n"
    assert broken_source(text) == "if a:\n    b()\n    e()\n"


def test_an_entry_without_a_cause_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.toml"
    path.write_text('[families]\n[faults.sync]\nx = { criterion = "equivalence.gradient" }\n')
    with pytest.raises(CatalogueError, match=r"\[faults.sync.x\] lacks 'cause'"):
        read_catalogue(path)


def test_a_pattern_that_names_nothing_is_refused() -> None:
    with pytest.raises(CatalogueError, match=r"no entry of catalogue\.toml matches nonsense"):
        read_catalogue(CATALOGUE, ["nonsense"])


def _entry() -> Entry:
    return Entry("x", "sync", ROOT / "x.py", "Y01", "", "did", "equivalence.gradient", "factor 2", ("equivalence.*",))


def _row(outcome: str, explanation: str = "factor 2", clean: str = "accepted") -> Row:
    said = (Said("equivalence.gradient", outcome, explanation), Said("equivalence.data_order", "rejected", "another"))
    return Row("x", "", said, ((Said("equivalence.gradient", clean, "clean"), Said("equivalence.data_order", "accepted", "")),))


@pytest.mark.parametrize(
    ("outcome", "explanation", "word"),
    [
        ("rejected", "off by factor 2", "found"),
        ("rejected", "off by factor 3", "wrong cause"),
        ("accepted", "fine", "missed"),
        ("inconclusive", "not seen", "undecided"),
        ("crashed", "a bug", "undecided"),
    ],
)
def test_a_fault_counts_as_found_only_by_its_criterion_and_for_its_cause(outcome: str, explanation: str, word: str) -> None:
    assert outcome_of(_entry(), _row(outcome, explanation)) == word
    assert bool(problems(_entry(), _row(outcome, explanation))) == (word != "found")


def test_a_rejected_clean_twin_is_a_false_alarm_and_an_undecided_one_a_problem() -> None:
    alarmed, unsure = _row("rejected", clean="rejected"), _row("rejected", clean="inconclusive")
    assert alarms(alarmed) == [(0, "equivalence.gradient", "clean")]
    assert [line.split(" of ")[0] for line in problems(_entry(), alarmed)] == ["false alarm"]
    assert problems(_entry(), unsure)[0].startswith("clean twin inconclusive")


def test_the_page_says_what_was_missed_and_repeats_byte_for_byte() -> None:
    rows = {"x": _row("accepted", "fine")}
    shown = page([_entry()], rows)
    assert "1 faults: 1 missed." in shown
    assert "- `x`: missed by equivalence.gradient: fine" in shown
    assert page([_entry()], rows) == shown
    assert "1 faults: 1 not run." in page([_entry()], {})


def test_a_job_toml_holds_what_the_entry_says() -> None:
    text = job_toml(
        Entry("x", "s", ROOT / "x.py", "", "", "", "c", "d", (), job={"steps": 12, "checkpoint": {"every": 4}, "files": ["v.py"]})
    )
    assert "steps = 12\n" in text
    assert "[checkpoint]\nevery = 4\n" in text
    assert "files" not in text


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    folder: Path = tmp_path_factory.mktemp("matrix")
    with surroundings(folder) as given:
        yield given


FEW = ("inner_forward", "summed_over_ranks", "tokens_of_one_rank", "no_sampler", "no_set_epoch", "optimizer_not_restored")


@pytest.mark.parametrize("name", FEW)
def test_a_planted_fault_is_found_and_its_clean_twin_is_not(around: Surroundings, name: str) -> None:
    found = next(one for one in ENTRIES if one.name == name)
    entry = replace(found, criteria=(found.criterion,))
    row = try_entry(entry, around, seeds=1)
    assert problems(entry, row) == []

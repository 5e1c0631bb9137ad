"""The releases with a history: the catalogue is whole, the page says what was found, and a release stands first on the path of what tries it."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

import pytest

from fixtures.criterion import discover
from suite.history.command import ROOT, Told, installed, page, run_history
from suite.history.releases import CATALOGUE, releases, trials
from suite.matrix.entries import CatalogueError, broken_source, clean_source, orphans, read_catalogue

TRIALS = trials()


def test_every_job_has_its_file_and_every_file_its_entry() -> None:
    assert orphans(CATALOGUE, read_catalogue(CATALOGUE)) == ([], [])


def test_both_programs_of_every_job_are_programs() -> None:
    for tried in TRIALS:
        text = tried.entry.file.read_text()
        for program in (broken_source(text), clean_source(text)):
            ast.parse(program)


def test_every_criterion_exists_and_every_release_is_tried() -> None:
    known = {one.id for one in discover(ROOT / "suite")}
    assert {tried.entry.criterion for tried in TRIALS} <= known
    assert {tried.release for tried in TRIALS} == set(releases())


def test_a_faulty_job_is_tried_put_right_or_under_a_sound_release_or_stands_alone_by_name() -> None:
    alone = {tried.entry.name for tried in TRIALS} - {tried.entry.name for tried in TRIALS if not tried.rejected}
    assert alone == {"short_last_window", "data_from_the_start"}, (
        "a job that nothing accepts proves little: add a sound release or the right lines"
    )


def test_an_unknown_release_is_named(tmp_path: Path) -> None:
    text = CATALOGUE.read_text().replace('faulty = ["torchdata==0.10.1"]', 'faulty = ["torchdata==9"]')
    shutil.copytree(CATALOGUE.parent, tmp_path, dirs_exist_ok=True)
    (tmp_path / "catalogue.toml").write_text(text)
    with pytest.raises(CatalogueError, match="torchdata==9"):
        trials(tmp_path / "catalogue.toml")
    (tmp_path / "catalogue.toml").write_text(text.replace("\nacts_by_index = { faulty", "\nother = { faulty"))
    with pytest.raises(CatalogueError, match="lacks"):
        trials(tmp_path / "catalogue.toml")


def test_a_pattern_that_matches_nothing_is_usage(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="no job under a release matches nothing"):
        run_history(["nothing"], tmp_path / "history.md", tmp_path)


def test_a_release_that_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CatalogueError, match=r"could not install accelerate==1\.15\.0"):
        installed("accelerate==1.15.0", tmp_path)


def test_an_installed_release_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (tmp_path / "accelerate-1.15.0").mkdir()
    (tmp_path / "accelerate-1.15.0" / ".installed").touch()
    assert installed("accelerate==1.15.0", tmp_path) == tmp_path / "accelerate-1.15.0"


def test_the_page_says_what_is_not_as_expected() -> None:
    good = Told(
        "a under p==1", "B1 o/r#1", "p==1", "It does.", False, "equivalence.schedule", "rejected", "because", "rejected for 'b'", True
    )
    bad = Told("a under p==2", "B1 o/r#1", "p==2", "It does.", True, "equivalence.schedule", "rejected", "since", "accepted", False)
    text = page([good, bad])

    assert "2 trials, 1 as expected." in text
    assert "| p==1 | as it stands | equivalence.schedule | rejected | yes |" in text
    assert "| p==2 | put right | equivalence.schedule | rejected | **no**, accepted |" in text
    assert "- `a under p==2`: since" in text

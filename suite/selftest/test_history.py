"""`python -m reports history`: the change points lie between the right two commits, and a broken line is not joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.__main__ import main
from reports.compare_find import Side
from reports.compare_policy import load_bounds
from reports.evidence import Finding
from reports.history import History, as_text, histories
from reports.policy import load_policy
from suite.selftest.compared import EXACT, SCALING, audited, side
from suite.selftest.fabricated import fabricate


def _side(day: int, *, slower: float = 1.0, exact: bool = True, **meta: Any) -> Side:
    """The audit of day `day`, on a commit of its own. slower: what a step takes; exact: whether the resumed run was bitwise equal."""
    findings = audited(np.random.default_rng(day), slower=slower)
    if not exact:
        findings[EXACT] = Finding(False, 3.0, "bits", 0.0, "equal", "Step 7 differs.", samples=2)
    started = f"2026-08-{day:02}T09:00:00+00:00"
    one = side(findings, identity={"code_commit": f"{day:040x}"}, session={"started_utc": started, "finished_utc": started}, **meta)
    return replace(one, title=replace(one.title, commit=f"{day:02}" + "a" * 38, started_utc=started, folder=f"audits/{day}"))


def _history(*sides: Side) -> History:
    [found] = histories(sides, load_policy(), load_bounds())
    return found


def _changes(found: History) -> list[str]:
    """The lines below the legend."""
    return [line.strip() for line in as_text(found).split("not in the catalogue)\n\n")[1].splitlines()]


def test_a_verdict_that_changed_lies_between_two_commits() -> None:
    found = _history(_side(3, exact=False), _side(1), _side(2))

    assert found.strips[EXACT, "gloo"] == "✓✓✗"
    [change] = [line for line in _changes(found) if EXACT in line]
    assert change.startswith("2 to 3 (02aaaaaaaaaa..03aaaaaaaaaa)  regressed")
    assert change.endswith("passed -> failed")


def test_the_decision_is_the_one_of_its_day() -> None:
    """An old audit does not turn into `hold` by growing old."""
    found = _history(_side(1), _side(2, exact=False))

    assert found.decisions[1] == "reject"
    assert found.decisions[0] != "reject"


def test_a_slower_step_is_a_change_point_and_noise_is_none() -> None:
    found = _history(_side(1), _side(2), _side(3, slower=1.5))

    assert [line[:6] for line in _changes(found) if SCALING in line and "regressed" in line] == ["2 to 3"]


def test_an_audit_is_held_against_the_last_one_like_it() -> None:
    """Audits of two and of four ranks taken in turns are two lines, not one that is broken everywhere."""
    four = {"world_size": 4, "world_sizes": [1, 2, 4]}
    found = _history(_side(1), _side(2, world=four), _side(3, exact=False), _side(4, world=four))

    assert [(step.base, step.head) for step in found.steps] == [(0, 1), (0, 2), (1, 3)]
    assert "not compared: world_sizes" in _changes(found)[0]
    assert any(line.startswith("1 to 3") and "passed -> failed" in line for line in _changes(found))


def test_nothing_changed_is_said() -> None:
    assert _changes(_history(_side(1), _side(1))) == ["no verdict changed, and no number by more than noise"]
    assert _changes(_history(_side(1))) == ["one audit has no history yet"]


def test_the_command_reads_a_folder_of_audits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path / "first", sound=True)
    (tmp_path / "notes").mkdir()

    assert main(["history", str(tmp_path)]) == 0
    assert "1 audit, oldest first" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"), [(["absent"], "is no directory"), (["."], "no audit below"), ([".", "--job", "x"], "no audit of job 'x'")]
)
def test_a_folder_without_audits_is_wrong_use(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["history", *arguments]) == 2
    assert said in capsys.readouterr().err

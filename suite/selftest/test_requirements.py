"""What was asked for has an answer: every row names criteria, tests and commands that exist, and the table in docs/ has every row."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.criterion import Criterion, catalogue_entry, discover
from fixtures.plugin import ROOT
from suite.requirements import Line, RequirementsError, Shown, commands, lines, show, table

ROOMS = {"suite", "fixtures", "workloads", "reports"}
PACKAGES = ("pytest", "pytest_benchmark", "torch", "pandas", "matplotlib", "jinja2", "pynvml", "xdist")
LINE = Line("The suite", "That it adds up", "", (), "python -c \"print('2 and 2 are', 2 + 2)\"", (r"are \d+",), 0)


def test_every_file_named_exists() -> None:
    named = {word for line in lines() for command, _, _ in commands(line) for word in shlex.split(command) if word.startswith("suite/")}

    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_a_line_that_holds_is_printed_with_what_the_command_said() -> None:
    result = show(*next(commands(LINE)), {})

    assert result == Shown(LINE.command, ("2 and 2 are 4",), held=True)
    assert "2 and 2 are 4 |" in table([LINE], [[result]], "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (replace(LINE, shows=("are five",)), ""),
        (replace(LINE, command="python -c \"import sys; print('are 4'); sys.exit(3)\""), "exit 3, expected 0"),
        (replace(LINE, command="no-such-program"), "No such file"),
    ],
    ids=["another output", "another exit code", "no such program"],
)
def test_a_line_that_does_not_hold_is_not_shown(line: Line, said: str) -> None:
    result = show(*next(commands(line)), {})

    assert not result.held
    assert said in " ".join(result.printed)
    assert "**NOT SHOWN**" in table([line], [[result]], "")


@pytest.mark.parametrize(("row", "said"), [('asked = "x"\nanswr = "y"', "unknown key 'answr'"), ('asked = "x"', "a row needs")])
def test_a_row_that_nothing_answers_is_refused(row: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(f"[[line]]\n{row}\n")

    with pytest.raises(RequirementsError, match=f"rows.toml, row 1: {said}"):
        lines(path)


def test_the_packages_are_used() -> None:
    """Each of the packages that the suite is built on is imported, or loaded as a plugin, by the code of a room."""
    code = "\n".join(path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py") if "selftest" not in path.parts)
    plugins = {"pytest_benchmark": "benchmark(", "xdist": "workerinput"}

    assert [
        name
        for name in PACKAGES
        if not re.search(rf"^\s*(?:import|from) {name}\b", code, re.MULTILINE) and plugins.get(name, "\0") not in code
    ] == []


def test_the_top_level_holds_the_rooms_and_nothing_else() -> None:
    """All code lies in the four rooms; the top level has conftest.py alone."""
    wanted = {"pyproject.toml", "conftest.py", "tox.ini", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"} | ROOMS

    assert sorted(name for name in wanted if not (ROOT / name).exists()) == []
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["conftest.py"]


def test_the_gate_runs_the_cpu_subset() -> None:
    """CI calls what the README names."""
    workflow = (ROOT / ".github" / "workflows" / "gate.yml").read_text()

    assert "test command" in (ROOT / ".ci" / "run").read_text()
    assert re.search(r"tox .*-e cpu|pytest -m cpu", workflow)


def test_the_entry_points_are_separate() -> None:
    """Training, evaluation and inference are programs of their own, and inference imports none of the training."""
    flights = ROOT / "workloads" / "flights"
    infer = (flights / "infer.py").read_text()

    assert all((flights / name).exists() for name in ("train.py", "evaluate.py", "infer.py"))
    assert not re.search(r"^\s*(?:import|from) train\b", infer, re.MULTILINE)


@pytest.mark.parametrize("one", discover(ROOT / "suite"), ids=lambda one: one.id)
def test_every_criterion_has_its_five_parts(one: Criterion) -> None:
    """Claim, what is assumed or required, the counterexample with the reason it is rejected for, where it is written, how it is run again."""
    entry = catalogue_entry(one, "gloo", "job.toml", 2)

    assert entry["claim"].endswith(".")
    assert entry["threshold"]
    assert entry["twin"]["words"]
    assert re.compile(entry["because"])
    assert (ROOT / entry["source"].split("::")[0]).is_file()
    assert entry["rerun"].startswith("pytest -m cpu ")


def test_what_would_overturn_a_verdict_is_on_every_card() -> None:
    """No criterion leaves it open what would change its verdict."""
    assert [one.id for one in discover(ROOT / "suite") if not one.overturned_by] == []


def test_pyproject_names_the_packages() -> None:
    stated = " ".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])

    assert [
        name
        for name in PACKAGES
        if {"pynvml": "nvidia-ml-py", "xdist": "pytest-xdist", "pytest_benchmark": "pytest-benchmark"}.get(name, name) not in stated
    ] == []

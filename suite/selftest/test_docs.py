"""The documents are checked against the code: what is missing in README.md does not exist for a reader."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from fixtures.criterion import discover
from fixtures.plugin import ROOT

README = (ROOT / "README.md").read_text()


def options_of_the_plugin() -> list[str]:
    plugin = (ROOT / "fixtures" / "plugin.py").read_text()
    return sorted(set(re.findall(r'"(--[a-z-]+)"', plugin.split("def pytest_configure")[0])))


def commands_in_readme() -> list[str]:
    """Every `python -m ...` command that the README names, its placeholders left in."""
    return sorted(set(re.findall(r"`(python -m (?:suite|reports) [a-z]+)", README)))


def test_every_option_is_explained() -> None:
    """An option that no reader can find is no option."""
    options = options_of_the_plugin()

    assert options
    assert [name for name in options if f"| `{name}" not in README] == []


def test_every_criterion_has_its_row() -> None:
    """The README's table is the catalogue: id, claim and twin, word for word."""
    rows = [f"| `{one.id}` | {one.claim} | {one.planted} |" for one in discover(ROOT / "suite")]

    assert [row for row in rows if row not in README] == []
    assert len(re.findall(r"^\| `(?:equivalence|efficiency|recovery|stragglers|inputs|release)\.", README, flags=re.MULTILINE)) == len(rows)


@pytest.mark.parametrize("command", commands_in_readme())
def test_every_command_exists(command: str) -> None:
    """Each verb answers to --help."""
    words = [sys.executable, *shlex.split(command)[1:], "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


def test_both_readme_commands_name_environments_that_exist() -> None:
    """The two commands of the README are tox environments of this repository."""
    named = re.findall(r"tox -qq -e ([a-z]+)", README)
    known = re.findall(r"^\[testenv:([a-z]+)\]", (ROOT / "tox.ini").read_text(), flags=re.MULTILINE)

    assert {"audit", "test"} <= set(named) <= set(known)

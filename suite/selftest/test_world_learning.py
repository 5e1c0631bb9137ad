"""Warm ranks are forked with what the job's first run imported, where that makes no difference to a rank; each reason against it is told."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import learning
from fixtures.learning import MOST_LESSONS, Learnt, learn, lesson_of, note_imports, rebound, take_lesson


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path for modules made by hand; what was imported of it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("VALUE = 1", ""),
        ("import os\nHOME = os.environ.get('HOME')", ""),
        ("import os\nRANK = int(os.environ.get('RANK', 0))", "its import reads RANK"),
        ("import os\nHAS = 'LOCAL_RANK' in os.environ", "its import reads LOCAL_RANK"),
        ("import os\nOWN = os.getenv('SHARD')", "its import reads SHARD"),
        ("import os\nALL = dict(os.environ)", "its import reads the whole environment"),
        ("import os\nos.environ['TUNED'] = '1'", "its import changes the environment"),
        ("import sys\nsys.path.append('/nowhere')", "its import changes sys.path"),
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "its import starts a thread"),
        ("raise SystemExit(0)", "its import ended the process"),
        ("import os\nos.kill(os.getpid(), 9)", "its import ended the process"),
    ],
)
def test_an_import_is_tried_before_it_is_made(packages: Path, text: str, reason: str) -> None:
    (packages / "tried_library.py").write_text(text)
    before = dict(os.environ)

    assert learning._tried(["tried_library"], ["SHARD"]) == reason
    assert "tried_library" not in sys.modules
    assert dict(os.environ) == before


def test_an_import_that_takes_too_long_is_ended(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (packages / "endless_library.py").write_text("while True:\n    pass")
    monkeypatch.setattr(learning, "TRIAL_S", 0.2)

    assert learning._tried(["endless_library"], []) == "its import took more than 0 s"


def test_what_the_first_rank_imported_is_imported_but_for_what_reads_its_rank(packages: Path) -> None:
    (packages / "plain_library.py").write_text("VALUE = 1")
    (packages / "ranked_library.py").write_text("import os, plain_library\nRANK = os.environ.get('RANK')")
    learnt = Learnt()
    learn(learnt, ["ranked_library", "plain_library", *(f"absent_{number}" for number in range(60))], [])

    assert "plain_library" in learnt.names
    assert learnt.refused == {"ranked_library": "its import reads RANK"}
    assert "ranked_library" not in sys.modules
    assert learnt.lessons == 1


def test_few_modules_are_not_worth_a_trial(packages: Path) -> None:
    (packages / "plain_library.py").write_text("VALUE = 1")
    learnt = Learnt()
    learn(learnt, ["plain_library"], [])

    assert (learnt.names, learnt.lessons) == ([], MOST_LESSONS)
    assert lesson_of(learnt, packages) is None


def test_a_lesson_is_taken_out_of_the_runs_folder(tmp_path: Path) -> None:
    """A rank that did not come to its end has said nothing."""
    (tmp_path / "imports").write_text('["numpy"]')

    assert take_lesson(tmp_path / "imports") == ["numpy"]
    assert not (tmp_path / "imports").exists()
    assert take_lesson(tmp_path / "imports") is None
    assert take_lesson(None) is None


def test_what_there_is_no_time_for_is_left_to_the_ranks(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (packages / "plain_library.py").write_text("VALUE = 1")
    monkeypatch.setattr(learning, "LESSON_S", -1.0)
    learnt = Learnt()
    learn(learnt, ["plain_library", *(f"absent_{number}" for number in range(60))], [])

    assert (learnt.names, learnt.refused, learnt.lessons) == ([], {}, 1)


def test_only_installed_modules_are_noted(packages: Path) -> None:
    """The job's own modules, and Python's, are its own to import."""
    (packages / "own_module.py").write_text("")
    __import__("own_module")
    note_imports(packages / "imports", set(sys.modules) - {"own_module", "json", "pytest"})

    assert json.loads((packages / "imports").read_text()) == ["pytest"]


def test_names_that_a_library_took_lead_to_what_stands_there_now(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("library")
    library.__dict__.update(taken=os.getpid, other=os.getppid)
    monkeypatch.setitem(sys.modules, "library", library)
    original = os.getpid
    try:
        with rebound(Learnt(names=["library"])):
            os.getpid = lambda: 7
        assert library.taken() == 7
        assert library.other is os.getppid
    finally:
        os.getpid = original

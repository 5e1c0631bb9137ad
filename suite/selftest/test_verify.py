"""`python -m reports verify`: whatever was changed, lost or added in an audit since it was written is named, and nothing else is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import reports.__main__ as command
from reports.evidence import file_hashes, write_run
from reports.finish import finish
from suite.selftest.fabricated import fabricate


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """An audit with one run whose trace files are on disk."""
    fabricate(tmp_path, sound=True)
    with closing(sqlite3.connect(tmp_path / "evidence.sqlite")) as connection:
        connection.execute("DELETE FROM runs")
        connection.commit()
    trace = tmp_path / "traces" / "w2-abc"
    trace.mkdir(parents=True)
    for name in ("spec.json", "ended.json", "rank0.jsonl"):
        (trace / name).write_text(f"{name}\n")
    write_run(tmp_path, run_id="w2-abc", spec={"world_size": 2}, ended={}, sha256=file_hashes(trace))
    return tmp_path


def test_verify_command_accepts_untouched_traces(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["verify", str(traced)]) == 0
    assert capsys.readouterr().out == "3 files checked, all as they were judged\n"


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        ("echo", "rank0.jsonl: changed"),
        ("remove", "rank0.jsonl: missing"),
        ("add", "rank9.jsonl: extra"),
        ("run", "traces/w2-def: extra, no run"),
    ],
)
def test_verify_command_names_what_was_changed_removed_or_added(
    traced: Path, capsys: pytest.CaptureFixture[str], tamper: str, words: str
) -> None:
    trace = traced / "traces" / "w2-abc"
    if tamper == "echo":
        (trace / "rank0.jsonl").write_text("another loss\n")
    elif tamper == "remove":
        (trace / "rank0.jsonl").unlink()
    elif tamper == "add":
        (trace / "rank9.jsonl").write_text("")
    else:
        (traced / "traces" / "w2-def").mkdir()

    assert command.main(["verify", str(traced)]) == 1
    assert words in capsys.readouterr().out


def _write(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + "\n" if (folder / name).exists() else "new\n")


def _execute(statement: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "evidence.sqlite")) as connection:
            assert connection.execute(statement).rowcount > 0
            connection.commit()

    return change


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (_write("audit.html"), "audit.html: changed"),
        (_write("audit.json"), "audit.json: changed"),
        (_write("RUNBOOK.md"), "RUNBOOK.md: changed"),
        (_write("alerts.yml"), "alerts.yml: changed"),
        (_write("job/job.toml"), "job/job.toml: changed"),
        (_write("job/more.toml"), "job/more.toml: extra"),
        (lambda folder: (folder / "audit.html").unlink(), "audit.html: missing"),
        (_execute("UPDATE records SET outcome = 'accepted', duration_s = 2.0"), "evidence.sqlite: changed"),
        (_execute("DELETE FROM records WHERE id = 'equivalence.gradient'"), "evidence.sqlite: changed"),
        (_execute("DELETE FROM catalogue WHERE id = 'equivalence.gradient'"), "evidence.sqlite: changed"),
        (_execute("UPDATE audit SET value = '{}' WHERE key = 'identity'"), "evidence.sqlite: changed"),
    ],
)  # fmt: skip
def test_what_was_concluded_is_sealed(
    traced: Path, capsys: pytest.CaptureFixture[str], tamper: Callable[[Path], object], words: str
) -> None:
    """A page, a runbook or a record that was edited by hand is refused."""
    (traced / "job").mkdir()
    (traced / "job" / "job.toml").write_text("[job]\n")
    finish(traced)
    assert command.main(["verify", str(traced)]) == 0
    tamper(traced)
    capsys.readouterr()

    assert command.main(["verify", str(traced)]) == 1
    assert words in capsys.readouterr().out


def test_writing_the_page_or_the_runbook_again_keeps_the_seal(traced: Path) -> None:
    for verb in ("page", "runbook", "page"):
        assert command.main([verb, str(traced)]) == 0
        assert command.main(["verify", str(traced)]) == 0

"""The job as it was beside the job as it is: claim by claim on the later audit's page, kept in its evidence, refused where it would mislead."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.before_after import before_after, keep_before
from reports.compare_find import open_side
from reports.evidence import EvidenceError, set_meta
from reports.finish import finish
from suite.selftest.fabricated import HOSTILE, fabricate

NOW = datetime(2026, 8, 22, tzinfo=UTC)


@pytest.fixture
def audits(tmp_path: Path) -> tuple[Path, Path]:
    """The naive job's audit, of which much failed, and that of the job repaired."""
    naive, repaired = fabricate(tmp_path / "naive"), fabricate(tmp_path / "flights", sound=True)
    set_meta(naive, "job", {"name": "naive", "command": "train.py", "global_batch": 16, "steps": 24, "seed": 0})
    return naive, repaired


def test_each_claim_has_its_two_verdicts_and_what_was_mended_comes_first(audits: tuple[Path, Path]) -> None:
    naive, repaired = audits
    told = before_after(open_side(naive), open_side(repaired))
    by_id = {row["id"]: row for row in told["rows"]}

    assert (told["before"]["job"], told["after"]["job"]) == ("naive", "flights")
    assert (by_id["efficiency.scaling"]["was"], by_id["efficiency.scaling"]["now"]) == ("failed", "passed")
    assert "Two ranks are only 1.04 times as fast as one" in by_id["efficiency.scaling"]["said_was"]
    assert by_id["efficiency.scaling"]["value_now"] == "0.87"
    assert told["rows"][0]["was"] == "failed"
    assert told["counts"]["failed, now passed"] == 3
    assert (by_id["inputs.missing"]["was"], by_id["inputs.missing"]["now"]) == ("not_run", "passed")


def test_the_page_shows_it_and_is_the_same_however_often_it_is_written(
    audits: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    naive, repaired = audits
    finish(repaired, None, NOW)
    assert "Before and after" not in (repaired / "audit.html").read_text()

    assert main(["page", str(repaired), "--before", str(naive)]) == 0
    finish(repaired, None, NOW)
    page = (repaired / "audit.html").read_bytes()
    shutil.rmtree(naive)
    finish(repaired, None, NOW)

    assert (repaired / "audit.html").read_bytes() == page, "the earlier audit may go"
    text = page.decode()
    assert "Before: the job naive, audit <code>naive</code>" in text
    assert text.count("Two ranks are only 1.04 times as fast as one") >= 1
    assert HOSTILE not in text
    assert json.loads((repaired / "audit.json").read_text())["before"]["counts"]["failed, now passed"] == 3
    assert "decision: " in capsys.readouterr().out


def test_audits_of_other_machines_or_worlds_are_not_set_side_by_side(
    audits: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    naive, repaired = audits
    set_meta(naive, "world", {"world_size": 4, "world_sizes": [1, 2, 4], "hosts": 1, "launcher": "warm", "backends": ["gloo"]})

    assert main(["page", str(repaired), "--before", str(naive)]) == 2
    assert "they differ in world_sizes: [1, 2, 4] in the base, [1, 2] in the head" in capsys.readouterr().err
    assert main(["page", str(repaired), "--before", str(tmp_path / "absent")]) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(EvidenceError, match="measured nothing, so it cannot be the before"):
        keep_before(repaired, tmp_path / "empty")

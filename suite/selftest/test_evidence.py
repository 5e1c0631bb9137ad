"""The store keeps what it is given, whoever writes at once and whoever is killed, and a finding cannot contradict itself."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports import evidence
from reports.evidence import EvidenceError, Finding, from_json, to_json
from suite.selftest.fabricated import STARTED, fabricate

ROOT = Path(__file__).resolve().parents[2]
ENTRY = {
    "id": "a.b",
    "backend": "gloo",
    "claim": "It holds.",
    "twins": [{"part": "twin", "fault": {}, "words": "a fault", "because": "fault"}],
}


def _store(folder: Path, finding: Finding, part: Any = "as_is", **changes: Any) -> None:
    values = {"id": "a.b", "backend": "gloo", "fired": None, "runs": ["r1"], "started_utc": STARTED, "duration_s": 1.0} | changes
    evidence.write_record(folder, part=part, finding=finding, **values)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    evidence.create(tmp_path)
    evidence.write_catalogue(tmp_path, [ENTRY])
    return tmp_path


@pytest.mark.parametrize(
    ("direction", "value", "bound", "margin"),
    [("at_most", 1.0, 3.0, 2.0), ("at_most", 4.0, 3.0, -1.0), ("at_least", 4.0, 3.0, 1.0), ("at_least", 2.0, 3.0, -1.0), ("equal", 3.0, 3.0, 0.0),
     ("equal", 2.0, 3.0, -1.0), ("at_most", None, 3.0, None), ("at_most", 1.0, None, None), ("at_most", math.inf, 3.0, None)],
)  # fmt: skip
def test_margin_is_positive_on_the_accepted_side(direction: Any, value: float | None, bound: float | None, margin: float | None) -> None:
    assert Finding(None, value, "s", bound, direction, "why").margin == margin


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"explanation": " "}, "explanation is empty"),
        ({"direction": "below"}, "direction is 'below'"),
        ({"provenance": "guessed"}, "provenance is 'guessed'"),
        ({"interval": (2.0, 1.0)}, "interval is"),
        ({"samples": -1}, "samples is -1"),
        ({"value": math.nan}, "accepted although nan"),
        ({"value": 3.0, "bound": 2.0}, "accepted although 3.0"),
        ({"value": 1.0, "bound": 2.0, "direction": "at_least"}, "not at least 2.0"),
        ({"value": 1.0, "bound": 2.0, "direction": "equal"}, "not equal 2.0"),
    ],
)
def test_a_finding_that_contradicts_itself_is_refused(values: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"accepted": True, "explanation": "why"}
    with pytest.raises(ValueError, match=message):
        Finding(**(given | values))


def test_details_that_json_cannot_hold_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"details\.a\[1\] is a set"):
        Finding(None, explanation="why", details={"a": [1, {2}]})


def test_a_finding_survives_the_store_with_numpy_and_non_finite_numbers(store: Path) -> None:
    details = {"array": np.arange(3), "number": np.float32(0.5), "bad": math.nan, "nested": [(1, -math.inf)]}
    written = Finding(False, math.inf, "s", 2.0, "at_most", "why", (1.0, math.inf), np.int64(3), "calculated", "power", details)  # type: ignore[arg-type]
    _store(store, written)

    read = evidence.load(store).records["a.b", "gloo", "as_is"].finding

    assert read == written
    assert read.details == {"array": [0, 1, 2], "number": 0.5, "bad": "nan", "nested": [[1, "-inf"]]}
    assert from_json(json.loads(json.dumps(to_json(written), allow_nan=False))) == written


def test_a_later_record_replaces_the_earlier_one_and_the_catalogue_keeps_its_order(store: Path) -> None:
    evidence.write_catalogue(store, [ENTRY | {"id": "z.z"}, ENTRY, ENTRY | {"backend": "nccl"}])
    _store(store, Finding(True, explanation="first"))
    _store(store, Finding(False, explanation="second"))

    loaded = evidence.load(store)

    assert [(entry.id, entry.backend) for entry in loaded.catalogue] == [("z.z", "gloo"), ("a.b", "gloo"), ("a.b", "nccl")]
    assert loaded.records["a.b", "gloo", "as_is"].finding.explanation == "second"


@pytest.mark.parametrize(
    ("entry", "message"),
    [({**ENTRY, "colour": 1}, "unknown keys colour; known are assumptions"), ({"id": "a.b", "backend": "gloo"}, "incomplete")],
)
def test_a_wrong_catalogue_entry_is_refused(store: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        evidence.write_catalogue(store, [entry])


def test_wrong_parts_and_accepted_crashes_are_refused(store: Path) -> None:
    with pytest.raises(EvidenceError, match="part is 'both'"):
        _store(store, Finding(True, explanation="x"), part="both")
    with pytest.raises(EvidenceError, match="must be None"):
        _store(store, Finding(True, explanation="x"), crashed=True)


@pytest.mark.parametrize(
    "change",
    [
        """UPDATE records SET outcome = 'accepted'""",
        """UPDATE records SET finding = replace(finding, '"accepted": false', '"accepted": true')""",
    ],
)
def test_a_record_changed_by_hand_against_its_finding_counts_as_broken(store: Path, change: str) -> None:
    _store(store, Finding(False, 3.0, "", 2.0, explanation="too much"))
    with closing(sqlite3.connect(store / "evidence.sqlite")) as connection:
        connection.execute(change)
        connection.commit()

    record = evidence.load(store).records["a.b", "gloo", "as_is"]

    assert record.outcome == "crashed"
    assert "contradicts itself" in record.finding.explanation


def test_only_a_session_that_said_so_is_finished(store: Path) -> None:
    assert not evidence.load(store).finished
    evidence.begin_session(store, STARTED)
    assert not evidence.load(store).finished
    evidence.finish_session(store, STARTED, complete=False)
    assert not evidence.load(store).finished
    evidence.finish_session(store, STARTED)
    assert evidence.load(store).finished
    evidence.begin_session(store, STARTED)
    assert not evidence.load(store).finished, "evidence that is being gathered again is not finished"


def test_missing_and_damaged_evidence_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"evidence\.sqlite does not exist"):
        evidence.load(tmp_path)
    with pytest.raises(EvidenceError, match="call create first"):
        evidence.set_meta(tmp_path, "a", 1)
    (tmp_path / "evidence.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(EvidenceError, match="cannot be read as evidence"):
        evidence.load(tmp_path)


WRITER = """
import sys; from pathlib import Path; from reports.evidence import Finding, write_record
for number in range(int(sys.argv[3])):
    write_record(Path(sys.argv[1]), id=f"w{sys.argv[2]}.{number}", backend="gloo", part="as_is", finding=Finding(True, explanation="x"),
                 fired=None, runs=[], started_utc="2026-01-01T00:00:00+00:00", duration_s=0.0)
    print(number, flush=True)
"""


def _writer(store: Path, name: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(store), str(name), str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_processes_that_write_at_once_lose_nothing(store: Path) -> None:
    writers = [_writer(store, name, 25) for name in range(4)]
    for writer in writers:
        writer.communicate(timeout=120)

    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(evidence.load(store).records) == 100


def test_a_writer_killed_at_any_moment_leaves_every_record_it_had_reported(store: Path) -> None:
    with _writer(store, 0, 100_000) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        reported += writer.stdout.readlines()

    assert len(evidence.load(store).records) >= len(reported)


def test_a_trace_folder_is_hashed_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "0").write_bytes(b"abc")

    assert evidence.file_hashes(tmp_path) == {"files/0": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}


def test_one_query_joins_a_record_to_its_runs_and_the_identity_of_the_code(tmp_path: Path) -> None:
    fabricate(tmp_path)
    query = """
        SELECT records.id, runs.run_id, json_extract(runs.spec, '$.world_size'), json_extract(audit.value, '$.code_commit')
        FROM records, json_each(records.runs) AS used JOIN runs ON runs.run_id = used.value JOIN audit ON audit.key = 'identity'
        WHERE records.id = 'recovery.continuation' AND records.part = 'as_is' ORDER BY 3
    """
    with closing(sqlite3.connect(tmp_path / "evidence.sqlite")) as connection:
        rows = connection.execute(query).fetchall()

    assert [(row[0], row[2], row[3][:7]) for row in rows] == [
        ("recovery.continuation", 1, "5f3c0e9"),
        ("recovery.continuation", 2, "5f3c0e9"),
    ]

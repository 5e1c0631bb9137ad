"""The evidence of an audit: `evidence.sqlite`, what is written into it while an audit runs, and how it is read back.

Every write is one short transaction, so any number of processes may write at once and a killed one leaves nothing half written.
The catalogue is written before anything runs; a session that never says it finished does not read as complete.

Audit-wide facts are kept by key (`set_meta`), each a JSON value:
    job          name command capabilities targets global_batch steps ...   (as in job.toml)
    identity     code_commit dirty job_hash data_hash config_hash suite_version ...
    environment  cores gpus python torch platform host_name ...
    world        world_size world_sizes hosts launcher
    decision     verdict owner policy_sha256 of the last judging; verdict "pending" before it
    before       what an earlier audit, of the job as it was, said of the same claims (reports/before_after.py)
    seal         digests of the evidence and of the files beside it, when the page was last written
    directory    how the audit directory is called        (kept by create)
    session      started_utc finished_utc complete      (kept by begin_session and finish_session)
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from reports.finding import Direction, Finding, Provenance, from_json, storable, to_json

__all__ = [
    "Direction", "Entry", "Evidence", "EvidenceError", "Finding", "Outcome", "Part", "Provenance", "Record", "Run",
    "begin_session", "content_digest", "create", "file_hashes", "finish_session", "from_json", "lineage_rows", "load", "set_meta", "storable", "to_json", "trace_hashes",
    "write_artifact", "write_catalogue", "write_record", "write_run",
]  # fmt: skip

Part = str
"""as_is, twin, or twin-<name> where a criterion has several."""
PART = re.compile(r"as_is|twin(-[a-z0-9_]+)?")
Outcome = Literal["accepted", "rejected", "undecided", "not_applicable", "crashed"]
SEAL = "seal"
BUSY_TIMEOUT_S = 60.0  # a writer waits this long for another one; each holds the file for milliseconds

TABLES = """
CREATE TABLE IF NOT EXISTS audit (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS catalogue (id TEXT, backend TEXT, position INTEGER NOT NULL, version INTEGER NOT NULL, data TEXT NOT NULL,
    PRIMARY KEY (id, backend));
CREATE TABLE IF NOT EXISTS records (id TEXT, backend TEXT, part TEXT, outcome TEXT NOT NULL, finding TEXT NOT NULL, fired INTEGER,
    runs TEXT NOT NULL, started_utc TEXT NOT NULL, duration_s REAL NOT NULL, PRIMARY KEY (id, backend, part));
CREATE TABLE IF NOT EXISTS runs (run_id TEXT PRIMARY KEY, spec TEXT NOT NULL, ended TEXT NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS artifacts (name TEXT PRIMARY KEY, run_id TEXT, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, data TEXT NOT NULL);
"""

LINEAGE = """
SELECT a.name AS artifact, a.sha256 AS artifact_sha256, r.run_id AS run, json_extract(identity.value, '$.code_commit') AS code_commit,
    json_extract(a.data, '$.code') AS code, json_extract(a.data, '$.data') AS data, json_extract(a.data, '$.features') AS features,
    json_extract(a.data, '$.configuration') AS configuration, json_extract(identity.value, '$.config_hash') AS job_configuration,
    json_extract(a.data, '$.environment') AS environment, json_extract(environment.value, '$.torch') AS audited_environment,
    json_extract(decision.value, '$.verdict') AS decision
FROM artifacts a LEFT JOIN runs r ON r.run_id = a.run_id LEFT JOIN audit identity ON identity.key = 'identity'
    LEFT JOIN audit environment ON environment.key = 'environment' LEFT JOIN audit decision ON decision.key = 'decision' ORDER BY a.name
"""


class EvidenceError(Exception):
    """The evidence cannot be read or written; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One criterion on one backend, as the catalogue promises it before anything runs.

    twins: the counterexamples, each {"part": under which its record is kept, "fault": as JSON, "words": the same for a reader, "because": the
        regular expression that its explanation must match}.
    needs: parts of job.toml without which the claim means nothing.
    source: where the criterion is written. rerun: the command that runs it again.
    why: one sentence on what goes wrong in practice where the claim does not hold.
    """

    id: str
    backend: str
    claim: str
    twins: tuple[Mapping[str, Any], ...]
    version: int = 1
    threshold: str = ""
    needs: tuple[str, ...] = ()
    timed: bool = False
    assumptions: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    overturned_by: str = ""
    source: str = ""
    rerun: str = ""
    why: str = ""
    min_world: int = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What one part (as is, or the twin) of a criterion gave. fired: whether the planted fault happened; None where none was planted."""

    id: str
    backend: str
    part: Part
    outcome: Outcome
    finding: Finding
    fired: bool | None
    runs: tuple[str, ...]
    started_utc: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run behind the records. sha256: file name -> hex digest of the files in `traces/<run_id>`."""

    run_id: str
    spec: Mapping[str, Any]
    ended: Mapping[str, Any]
    sha256: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything an audit has established, as loaded. `records` is keyed by (id, backend, part)."""

    meta: Mapping[str, Any]
    catalogue: tuple[Entry, ...]
    records: Mapping[tuple[str, str, str], Record]
    runs: Mapping[str, Run]

    @property
    def finished(self) -> bool:
        """Whether the session that gathered it came to its end; a killed or interrupted one did not."""
        session = self.meta.get("session") or {}
        return bool(session.get("complete")) and bool(session.get("finished_utc"))

    def record(self, entry: Entry, part: Part) -> Record | None:
        return self.records.get((entry.id, entry.backend, part))


def create(path: Path) -> Path:
    """Make `evidence.sqlite` in the audit directory `path` (or at `path`, if that ends in .sqlite); harmless where it exists.

    Notes under "directory" how the audit is called from where it was started, for the commands that the page gives.
    """
    file = _database(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S)) as connection:
        connection.executescript("BEGIN IMMEDIATE;" + TABLES + "COMMIT;")
        folder, here = file.parent.resolve(), Path.cwd()
        shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
        connection.execute("INSERT OR IGNORE INTO audit VALUES ('directory', ?)", (_dump(shown.as_posix()),))
        connection.commit()
    return file


def write_catalogue(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    """Store the criteria in the order in which the page shows them. Raises EvidenceError for keys that `Entry` lacks or needs."""
    rows = []
    for position, data in enumerate(entries):
        entry = _entry(data)
        kept = {item.name: getattr(entry, item.name) for item in fields(Entry)}
        rows.append((entry.id, entry.backend, position, entry.version, _dump(kept)))
    with _transaction(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO catalogue VALUES (?, ?, ?, ?, ?)", rows)


def write_record(
    path: Path,
    *,
    id: str,
    backend: str,
    part: Part,
    finding: Finding,
    fired: bool | None,
    runs: Iterable[str],
    started_utc: str,
    duration_s: float,
    crashed: bool = False,
    not_applicable: bool = False,
) -> None:
    """Store what one part gave; a later record of the same part replaces it.

    crashed: the suite, not the job, broke; not_applicable: the part does not concern the job. The finding then has accepted=None and says why.
    started_utc: ISO 8601 with zone.
    """
    if not PART.fullmatch(part):
        raise EvidenceError(f"part is {part!r}; use as_is, twin, or twin-<name> where there are several.")
    if (crashed or not_applicable) and finding.accepted is not None:
        what = "crashed" if crashed else "is not applicable"
        raise EvidenceError(f"{id} [{backend}-{part}] {what}, yet its finding has accepted={finding.accepted}; it must be None.")
    row = (
        id, backend, part, _outcome(finding, crashed, not_applicable), _dump(to_json(finding)), None if fired is None else int(fired),
        _dump(sorted(set(runs))), started_utc, float(duration_s),
    )  # fmt: skip
    with _transaction(path) as connection:
        connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def write_run(path: Path, *, run_id: str, spec: Mapping[str, Any], ended: Mapping[str, Any], sha256: Mapping[str, str]) -> None:
    """Store one run; `sha256` as `file_hashes` gives it for its trace folder."""
    with _transaction(path) as connection:
        connection.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", (run_id, _dump(spec), _dump(ended), _dump(sha256)))


def write_artifact(path: Path, *, name: str, run_id: str | None, sha256: str, bytes: int, data: Mapping[str, Any]) -> None:
    """Store one file that the audit vouches for; `data` holds what it joins to (code, data, features, configuration)."""
    with _transaction(path) as connection:
        connection.execute("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)", (name, run_id, sha256, bytes, _dump(data)))


def lineage_rows(path: Path, *, without_runs: bool = False) -> tuple[list[dict[str, Any]], bool]:
    """What each artifact joins to (the query LINEAGE), None where it joins to nothing; and whether any run was taken away.

    without_runs: as if the runs that made the artifacts had gone from the evidence; done in a copy, the evidence stays as it is.
    """
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(_database(path), timeout=BUSY_TIMEOUT_S)) as connection:
            connection.backup(copy)
        gone = copy.execute("DELETE FROM runs WHERE run_id IN (SELECT run_id FROM artifacts)").rowcount if without_runs else 0
        found = copy.execute(LINEAGE)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found], gone > 0


def set_meta(path: Path, key: str, value: Any) -> None:
    """Store one fact about the whole audit; see the top of this file for the keys that are used."""
    with _transaction(path) as connection:
        connection.execute("INSERT OR REPLACE INTO audit VALUES (?, ?)", (key, _dump(value)))


def begin_session(path: Path, started_utc: str) -> None:
    """Say that gathering began: until `finish_session` the evidence reads as unfinished."""
    set_meta(path, "session", {"started_utc": started_utc, "finished_utc": None, "complete": False})


def finish_session(path: Path, finished_utc: str, complete: bool = True) -> None:
    """Say that gathering came to its end; `complete=False` where it was interrupted."""
    with _transaction(path) as connection:
        row = connection.execute("SELECT value FROM audit WHERE key = 'session'").fetchone()
        session = {**(json.loads(row[0]) if row else {}), "finished_utc": finished_utc, "complete": complete}
        connection.execute("INSERT OR REPLACE INTO audit VALUES ('session', ?)", (_dump(session),))


def load(path: Path) -> Evidence:
    """Read the evidence of the audit directory `path`. Raises EvidenceError where there is none or it is damaged."""
    file = _database(path)
    if not file.is_file():
        raise EvidenceError(f"{file} does not exist; give the directory of an audit.")
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            connection.execute("BEGIN")  # one snapshot, even while others write
            return _read(connection)
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise EvidenceError(f"{file} cannot be read as evidence: {error}.") from error


def _read(connection: sqlite3.Connection) -> Evidence:
    entries = connection.execute("SELECT data FROM catalogue ORDER BY position, id, backend")
    records = [_record(row) for row in connection.execute("SELECT * FROM records ORDER BY id, backend, part")]
    return Evidence(
        meta={key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM audit ORDER BY key")},
        catalogue=tuple(_entry(json.loads(data)) for (data,) in entries),
        records={(record.id, record.backend, record.part): record for record in records},
        runs={row[0]: Run(row[0], *map(json.loads, row[1:])) for row in connection.execute("SELECT * FROM runs ORDER BY run_id")},
    )


def content_digest(path: Path) -> str:
    """sha256 over every row of every table of the audit directory `path`, its seal left out. Raises EvidenceError."""
    file, digest = _database(path), hashlib.sha256()
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            connection.execute("BEGIN")
            for table, where in (("audit", f"WHERE key != '{SEAL}'"), ("catalogue", ""), ("records", ""), ("runs", ""), ("artifacts", "")):
                for row in sorted(connection.execute(f"SELECT * FROM {table} {where}"), key=repr):
                    digest.update(f"{table} {row!r}\n".encode())
    except sqlite3.Error as error:
        raise EvidenceError(f"{file} cannot be read as evidence: {error}.") from error
    return digest.hexdigest()


def file_hashes(folder: Path, skip: Iterable[str] = ()) -> dict[str, str]:
    """sha256 of every file below `folder`, by its relative name with forward slashes. skip: what lies directly in `folder` and is left out."""
    hashes = {}
    for file in sorted(item for item in folder.rglob("*") if item.is_file() and item.relative_to(folder).parts[0] not in skip):
        with file.open("rb") as stream:
            hashes[file.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return hashes


def trace_hashes(audit_dir: Path, run_id: str) -> dict[str, str]:
    """`file_hashes` of a run's traces as they lie there now; empty where they are gone."""
    folder = audit_dir / "traces" / run_id
    return file_hashes(folder) if folder.is_dir() else {}


def _database(path: Path) -> Path:
    return path if path.suffix == ".sqlite" else path / "evidence.sqlite"


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection inside one write transaction: all of it is stored, or nothing."""
    file = _database(path)
    if not file.is_file():
        raise EvidenceError(f"{file} does not exist; call create first.")
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # on a full disk SQLite has rolled back already
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _dump(value: Any) -> str:
    return json.dumps(storable(value), sort_keys=True, allow_nan=False, ensure_ascii=False)


def _outcome(finding: Finding, crashed: bool, not_applicable: bool) -> Outcome:
    if crashed or not_applicable:
        return "crashed" if crashed else "not_applicable"
    return {True: "accepted", False: "rejected", None: "undecided"}[finding.accepted]  # type: ignore[return-value]


def _entry(data: Mapping[str, Any]) -> Entry:
    known = {item.name for item in fields(Entry)}
    if unknown := sorted(set(data) - known):
        names = ", ".join(unknown)
        raise EvidenceError(f"catalogue entry {data.get('id')!r} has unknown keys {names}; known are {', '.join(sorted(known))}.")
    lists = {key: tuple(data[key]) for key in ("twins", "needs", "assumptions", "limitations") if key in data}
    try:
        return Entry(**{**data, **lists})
    except TypeError as error:
        raise EvidenceError(f"catalogue entry {data.get('id')!r} is incomplete: {error}.") from error


def _record(row: Sequence[Any]) -> Record:
    """A stored record. One that contradicts itself is kept, but counts as broken: it can never pass."""
    id, backend, part, outcome, stored, fired, runs, started_utc, duration_s = row
    try:
        finding = from_json(json.loads(stored))
        if outcome not in ("crashed", _outcome(finding, False, finding.accepted is None and outcome == "not_applicable")):
            raise ValueError(f"its outcome is {outcome!r}, but its finding has accepted={finding.accepted}")
    except (ValueError, TypeError) as error:
        outcome, finding = "crashed", Finding(None, explanation=f"The stored record contradicts itself: {error}.")
    return Record(
        id=id, backend=backend, part=part, outcome=outcome, finding=finding, fired=None if fired is None else bool(fired),
        runs=tuple(json.loads(runs)), started_utc=started_utc, duration_s=duration_s,
    )  # fmt: skip

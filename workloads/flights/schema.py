"""Reading an events file, with everything malformed stopped at the edge.

`read_events` returns arrays only if every row that is used passes. Otherwise it raises MalformedInput, whose message is one sentence:
file, row (0-based), column, entity, value, what must be true and what to do. Payloads are checked on the rows that were available by the
reader's own cutoff: what a training could not have known then cannot stop it either. Identity and times are checked on every row.
Unusual but possible values do not stop here; distribution.py counts, clips and reports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from workloads.flights.task import ALWAYS_REQUIRED, COLUMNS, RANGES, REQUIRED

NO_TIME = np.iinfo(np.int64).min
"""Stands for a null in an int64 time column."""


class MalformedInput(ValueError):
    """An events file that must not be used; the message is one sentence that names the place, the value and the fix."""


@dataclass(frozen=True, slots=True)
class Words:
    """A text column: `codes` int32 [rows] into `values`, -1 where null."""

    codes: np.ndarray
    values: tuple[str, ...]

    def at(self, row: int) -> str | None:
        """The text in a row."""
        code = int(self.codes[row])
        return None if code < 0 else self.values[code]

    def where(self, value: str) -> np.ndarray:
        """bool [rows]: the rows that hold `value`."""
        rows: np.ndarray = self.codes == (self.values.index(value) if value in self.values else -2)
        return rows

    def take(self, rows: np.ndarray) -> Words:
        """The same column for a choice of rows."""
        return Words(self.codes[rows], self.values)


@dataclass(frozen=True, slots=True)
class Events:
    """An events file as arrays [rows]: `words` text, `numbers` float64 (NaN = null), `times` int64 microseconds since 1970 UTC (NO_TIME =
    null); `rows` the 0-based row in the file that each entry came from.
    """

    file: str
    rows: np.ndarray
    words: Mapping[str, Words]
    numbers: Mapping[str, np.ndarray]
    times: Mapping[str, np.ndarray]

    def take(self, chosen: np.ndarray) -> Events:
        """The events of a bool mask or index array."""
        return Events(
            self.file,
            self.rows[chosen],
            {name: column.take(chosen) for name, column in self.words.items()},
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: column[chosen] for name, column in self.times.items()},
        )

    def of(self, kind: str) -> Events:
        """The events of one kind."""
        return self.take(self.words["kind"].where(kind))

    def known_by(self, microseconds: int) -> Events:
        """What was available at a time."""
        return self.take(self.times["availability_time"] <= microseconds)


def microseconds(time: str) -> int:
    """An ISO 8601 UTC time such as 2013-10-01T04:00:00Z as int64 microseconds since 1970."""
    return int(np.datetime64(time.removesuffix("Z"), "us").astype(np.int64))


def iso(time: int) -> str:
    """int64 microseconds since 1970 as ISO 8601 UTC."""
    return f"{np.datetime64(int(time), 'us').astype('datetime64[s]')}Z"


def read_events(path: Path, *, cutoff: int | None = None) -> Events:
    """All events of a Parquet or CSV file, checked. With `cutoff` (microseconds) payload checks cover only what was available by then.

    Raises MalformedInput.
    """
    table = _read(path)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise MalformedInput(
            f"{path} row 0: column {missing[0]} is missing (entity_id and value therefore unknown); found {', '.join(table.column_names)}; write the file again with prepare.py"
        )
    events = _columns(path, table)
    _check_identity(events)
    _check_duplicates(events)
    _check_payload(events if cutoff is None else events.known_by(cutoff))
    return events


def _read(path: Path) -> pa.Table:
    if not path.is_file():
        raise MalformedInput(
            f"{path} is missing (no row, column, entity_id or value can be read); write it with: prepare.py --events {path}"
        )
    try:
        if path.suffix != ".csv":
            return pq.read_table(path)
        with path.open("rb") as file:
            names = file.readline().decode().strip().split(",")
        text = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=True
        )
        return pyarrow.csv.read_csv(path, convert_options=text)
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise MalformedInput(
            f"{path} cannot be read as {path.suffix.lstrip('.') or 'parquet'} ({reason}); write it again with prepare.py"
        ) from error


def _columns(path: Path, table: pa.Table) -> Events:
    words, numbers, times = {}, {}, {}
    for name, declared in COLUMNS.items():
        column = table[name].combine_chunks()
        if pa.types.is_string(declared):
            words[name] = _words(_converted(path, table, name, column, pa.string()))
        elif pa.types.is_timestamp(declared):
            values = _converted(path, table, name, column, declared)
            times[name] = values.cast(pa.int64()).fill_null(NO_TIME).to_numpy(zero_copy_only=False)
        else:
            numbers[name] = _converted(path, table, name, column, pa.float64()).to_numpy(zero_copy_only=False)
    return Events(path.name, np.arange(table.num_rows), words, numbers, times)


def _words(column: pa.Array) -> Words:
    encoded = column.dictionary_encode()
    return Words(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), tuple(encoded.dictionary.to_pylist()))


def _converted(path: Path, table: pa.Table, name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column in the declared type. A CSV's text is read as that type; in Parquet text in place of a number or time is a wrong type."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    actual = column.type
    is_text = pa.types.is_string(actual) or pa.types.is_large_string(actual)
    if pa.types.is_string(wanted):
        fits = is_text or pa.types.is_null(actual)
    elif pa.types.is_timestamp(wanted):
        fits = pa.types.is_null(actual) or (pa.types.is_timestamp(actual) and actual.tz is not None) or (is_text and path.suffix == ".csv")
    else:
        is_number = pa.types.is_integer(actual) or pa.types.is_floating(actual) or pa.types.is_decimal(actual)
        fits = pa.types.is_null(actual) or is_number or (is_text and path.suffix == ".csv")
    row = _first(column.is_valid().to_numpy(zero_copy_only=False)) if not fits else 0
    if fits:
        try:
            return pc.cast(column, options=pc.CastOptions(target_type=wanted, allow_time_truncate=True, allow_float_truncate=True))
        except pa.ArrowInvalid:
            row = _first_uncastable(column, wanted)
    entity = table["entity_id"][row] if table.num_rows else None
    value = column[row].as_py() if table.num_rows else None
    raise MalformedInput(_sentence(path.name, row, name, entity, value, f"stored as {actual}, but must be {wanted}"))


def _first_uncastable(column: pa.Array, wanted: pa.DataType) -> int:
    for row, value in enumerate(column):
        try:
            pc.cast(value, wanted)
        except pa.ArrowInvalid:
            return row
    return 0


def _first(mask: np.ndarray) -> int:
    return int(np.argmax(mask)) if len(mask) else 0


def _sentence(file: str, row: int, column: str, entity: object, value: object, must: str) -> str:
    return f"{file} row {row}: column {column} of entity_id {entity} is {value!r}, {must}; correct or drop this row and start again"


def _stop(events: Events, index: int, column: str, must: str) -> NoReturn:
    value: Any
    if column in events.words:
        value = events.words[column].at(index)
    elif column in events.times:
        time = int(events.times[column][index])
        value = None if time == NO_TIME else iso(time)
    else:
        value = float(events.numbers[column][index])
        value = None if np.isnan(value) else value
    entity = events.words["entity_id"].at(index)
    raise MalformedInput(_sentence(events.file, int(events.rows[index]), column, entity, value, must))


def _is_null(events: Events, column: str) -> np.ndarray:
    nulls: np.ndarray
    if column in events.words:
        nulls = events.words[column].codes < 0
    elif column in events.times:
        nulls = events.times[column] == NO_TIME
    else:
        nulls = np.isnan(events.numbers[column])
    return nulls


def _check(events: Events, bad: np.ndarray, column: str, must: str) -> None:
    if bad.any():
        _stop(events, _first(bad), column, must)


def _check_identity(events: Events) -> None:
    """Who, what and when of every row."""
    if not len(events.rows):
        raise MalformedInput(f"{events.file} has no row, so no column, entity_id or value; write it again with prepare.py")
    for column in ALWAYS_REQUIRED:
        _check(events, _is_null(events, column), column, "but must not be null")
    kinds = events.words["kind"]
    unknown = np.array([value not in REQUIRED for value in kinds.values])
    _check(events, unknown[kinds.codes], "kind", f"but must be one of {', '.join(REQUIRED)}")
    version = events.numbers["version"]
    _check(events, (version < 1) | (version != np.floor(version)), "version", "but must be a whole number from 1 on")
    early = events.times["availability_time"] < events.times["event_time"]
    _check(events, early, "availability_time", "which is before its event_time, but nothing is known before it happens")


def _check_duplicates(events: Events) -> None:
    entity, kind, version = events.words["entity_id"].codes, events.words["kind"].codes, events.numbers["version"]
    order = np.lexsort((np.arange(len(entity)), version, kind, entity))
    same = np.ones(len(order) - 1, dtype=bool)
    for column in (entity, kind, version):
        same &= column[order][1:] == column[order][:-1]
    repeated = np.zeros(len(order), dtype=bool)
    repeated[order[1:]] = same
    _check(events, repeated, "version", "the same entity_id, kind and version as an earlier row, but each may occur once")


def _check_payload(events: Events) -> None:
    """Required values are there, numbers are finite and possible."""
    for kind, columns in REQUIRED.items():
        is_kind = events.words["kind"].where(kind)
        for column in columns:
            _check(events, is_kind & _is_null(events, column), column, f"but must not be null in a {kind} event")
    for column, allowed in RANGES.items():
        values = events.numbers[column]
        _check(
            events,
            np.isinf(values) | (values < allowed.impossible_below),
            column,
            f"but must be finite and at least {allowed.impossible_below:g}",
        )
    outcome = events.numbers["outcome"]
    _check(events, ~np.isnan(outcome) & (outcome != 0) & (outcome != 1), "outcome", "but must be 0 or 1")
    departs, arrives = events.times["scheduled_departure"], events.times["scheduled_arrival"]
    _check(
        events,
        (departs != NO_TIME) & (arrives != NO_TIME) & (arrives <= departs),
        "scheduled_arrival",
        "which is not after its scheduled_departure",
    )
    mature = events.times["outcome_time"]
    _check(events, (mature != NO_TIME) & (mature < events.times["event_time"]), "outcome_time", "which is before its event_time")

"""Values that are possible but outside what training declared: counted, reported in one line, clipped or sent to the unknown bucket.

Late and missing records are reported in the same way. More than a small share of unusual values in a column stops the run: then it is
the feed that changed, not a few records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workloads.flights.assumptions import LONGEST_MINUTES
from workloads.flights.schema import Events, MalformedInput, iso
from workloads.flights.task import ORIGINS, RANGES, VOCABULARIES

LIMIT_SHARE = 0.05
LIMIT_COUNT = 20
"""A column may have up to 5 % of its values outside, and always up to 20 (small files)."""

MINUTE = 60_000_000


@dataclass(frozen=True, slots=True)
class Unusual:
    """Values of one column outside its declared range or vocabulary: how many of how many, and the first one."""

    column: str
    count: int
    of: int
    row: int
    entity_id: str
    value: str
    declared: str


def into_range(events: Events) -> tuple[Events, tuple[Unusual, ...]]:
    """The events with numbers clipped to their declared range, and what was outside. Unknown words stay: they get code 0 later.

    Raises MalformedInput when a column has too many.
    """
    numbers, found = dict(events.numbers), []
    for column, allowed in RANGES.items():
        values = events.numbers[column]
        outside = (values < allowed.low) | (values > allowed.high)
        if outside.any():
            found.append(_first(events, column, outside, ~np.isnan(values), f"{allowed.low:g} to {allowed.high:g}"))
            numbers[column] = np.clip(values, allowed.low, allowed.high)
    for column, known in VOCABULARIES.items():
        words = events.words[column]
        unknown = np.array([*(value not in known for value in words.values), False])
        outside = unknown[words.codes]
        if outside.any():
            found.append(_first(events, column, outside, words.codes >= 0, f"one of {len(known)} known"))
    for one in found:
        _check_share(events.file, one)
    return replace(events, numbers=numbers), tuple(found)


def _first(events: Events, column: str, outside: np.ndarray, present: np.ndarray, declared: str) -> Unusual:
    at = int(np.argmax(outside))
    value = str(events.words[column].at(at)) if column in events.words else f"{events.numbers[column][at]:g}"
    return Unusual(
        column, int(outside.sum()), int(present.sum()), int(events.rows[at]), str(events.words["entity_id"].at(at)), value, declared
    )


def _check_share(file: str, one: Unusual) -> None:
    if one.count > max(LIMIT_COUNT, LIMIT_SHARE * one.of):
        raise MalformedInput(
            f"{file} row {one.row}: column {one.column} of entity_id {one.entity_id} is {one.value} and {one.count} of {one.of} values are out of "
            f"distribution (declared: {one.declared}, at most {LIMIT_SHARE:.0%} tolerated); repair the feed or declare the new range in task.py"
        )


def out_of_distribution_line(found: tuple[Unusual, ...]) -> str:
    """One line naming every affected column with its first entity and value, or that there was none."""
    if not found:
        return "out of distribution: 0 values"
    each = "; ".join(
        f"{one.count} in column {one.column}, first entity_id {one.entity_id} value {one.value} (declared {one.declared})" for one in found
    )
    return f"out of distribution: {sum(one.count for one in found)} values, clipped or sent to the unknown bucket: {each}"


def late_line(events: Events, cutoff: int) -> str:
    """One line: rows that became available later after their event than their kind's declared delay."""
    kinds = events.words["kind"]
    allowed = np.array([LONGEST_MINUTES[value] * MINUTE for value in kinds.values], dtype=np.int64)
    waited = events.times["availability_time"] - events.times["event_time"]
    late = waited > allowed[kinds.codes]
    if not late.any():
        return "late: 0 rows"
    at = int(np.argmax(late))
    unused = int((late & (events.times["availability_time"] > cutoff)).sum())
    return (
        f"late: {int(late.sum())} rows became available later than their kind's declared delay, {unused} of them only after the cutoff "
        f"{iso(cutoff)} and so not used; first entity_id {events.words['entity_id'].at(at)} column availability_time value "
        f"{iso(events.times['availability_time'][at])}"
    )


def missing_line(events: Events) -> str:
    """One line: hours without a weather observation between an airport's first and last, moves without a schedule, aircraft unknown."""
    weather = events.of("weather")
    gaps = sum(_gaps(weather.times["event_time"][weather.words["origin"].where(origin)]) for origin in ORIGINS)
    scheduled = np.unique(events.of("schedule").words["entity_id"].codes)
    orphans = sum(int((~np.isin(events.of(kind).words["entity_id"].codes, scheduled)).sum()) for kind in ("departure", "arrival"))
    flown = np.unique(events.of("schedule").words["tail_number"].codes)
    unknown = int((~np.isin(flown[flown >= 0], events.of("plane").words["tail_number"].codes)).sum())
    return f"missing: {gaps} hours of weather, {orphans} departures or arrivals without a schedule, {unknown} of {int((flown >= 0).sum())} aircraft in no register"


def _gaps(times: np.ndarray) -> int:
    hours = np.unique(times // (60 * MINUTE))
    return int(hours[-1] - hours[0] + 1 - len(hours)) if len(hours) else 0

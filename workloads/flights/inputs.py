"""The inputs of the model, declared: which features there are, in which group, and how each is scaled.

`center` and `scale` are declared round numbers near the mean and spread of the training months. They are not fitted at start, so that a
row more or less in the events never moves another row's input. A missing value becomes 0 after scaling; a `..._known` input says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.flights.task import CARRIERS, DESTINATIONS, MANUFACTURERS, ORIGINS


@dataclass(frozen=True, slots=True)
class Feature:
    """A numeric input: (raw - center) / scale."""

    name: str
    center: float
    scale: float


GROUPS: dict[str, tuple[Feature, ...]] = {
    "schedule": (
        Feature("distance_miles", 1000, 700),
        Feature("block_minutes", 190, 100),
        Feature("departs_sine", 0, 1),
        Feature("departs_cosine", 0, 1),
    ),
    "aircraft": (
        Feature("aircraft_known", 0, 1),
        Feature("age_years", 12, 7),
        Feature("seats", 140, 70),
        Feature("engines", 2, 1),
    ),
    "incoming": (
        Feature("incoming_known", 0, 1),
        Feature("last_departure_delay_minutes", 10, 40),
        Feature("hours_since_last_departure", 12, 12),
        Feature("last_arrival_delay_minutes", 5, 45),
        Feature("hours_since_last_arrival", 12, 12),
    ),
    "weather": (
        Feature("weather_known", 0, 1),
        Feature("weather_age_hours", 2, 2),
        Feature("temperature_f", 55, 18),
        Feature("dew_point_f", 41, 19),
        Feature("humidity_percent", 62, 19),
        Feature("wind_east_mph", 0, 8),
        Feature("wind_north_mph", 0, 8),
        Feature("wind_speed_mph", 10, 6),
        Feature("wind_gust_mph", 25, 8),
        Feature("precipitation_inches", 0, 0.1),
        Feature("pressure_millibars", 1018, 8),
        Feature("visibility_miles", 9, 2),
    ),
    "airport": (
        Feature("origin_departures_3h", 45, 20),
        Feature("origin_departure_delay_1h_minutes", 12, 25),
        Feature("origin_departure_delay_3h_minutes", 12, 25),
        Feature("origin_late_share_3h", 0.2, 0.2),
        Feature("origin_arrival_delay_3h_minutes", 7, 30),
        Feature("origin_backlog_3h", 2, 10),
        Feature("destination_departures_6h", 8, 8),
        Feature("destination_departure_delay_6h_minutes", 12, 30),
        Feature("destination_arrival_delay_6h_minutes", 7, 35),
    ),
    "carrier": (
        Feature("carrier_departure_delay_3h_minutes", 12, 25),
        Feature("carrier_arrival_delay_3h_minutes", 7, 30),
        Feature("carrier_origin_departure_delay_3h_minutes", 12, 30),
        Feature("flight_reports_28d", 15, 10),
        Feature("flight_late_share_28d", 0.24, 0.2),
        Feature("flight_arrival_delay_28d_minutes", 7, 25),
        Feature("route_late_share_28d", 0.24, 0.15),
        Feature("route_arrival_delay_28d_minutes", 7, 20),
    ),
}
"""Numeric inputs in the order of the model's second argument, by group; each group becomes one token of the model."""

FEATURES: tuple[Feature, ...] = tuple(feature for group in GROUPS.values() for feature in group)

CATEGORIES: dict[str, tuple[str, ...]] = {
    "carrier": CARRIERS,
    "origin": ORIGINS,
    "destination": DESTINATIONS,
    "hour": tuple(str(hour) for hour in range(24)),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "manufacturer": MANUFACTURERS,
}
"""Categorical inputs in the order of the model's first argument. Code 0 is the unknown bucket, code k + 1 the k-th value."""

CATEGORY_GROUP = {"manufacturer": "aircraft"}
"""The group of a category, where it is not "schedule"."""

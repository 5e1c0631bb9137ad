"""What one judge concluded: a value, its bound, and a sentence that explains the two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

Direction = Literal["at_most", "at_least", "equal"]
Provenance = Literal["measured", "calculated", "assumed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The conclusion of a judge about one claim.

    accepted: True the claim holds, False it does not, None the judge could not tell (the explanation says why).
    value, bound: in `unit`; `direction` says how the value must stand to the bound. Both may be None where a claim has no number.
    interval: (low, high) of the value. samples: how many independent observations the value rests on.
    provenance: how the value came about. power: in words, the smallest fault that would have been caught; "" if not known.
    absent: the trace shows that the job lacks what the claim is about (the explanation says what was looked at): the claim does not apply. What
    was merely not seen is no such evidence.
    details: JSON, plus numpy arrays and numbers, which become lists and numbers; `reports/charts.py` names the keys that are drawn.

    Raises ValueError where the parts contradict each other, TypeError where `details` cannot be stored.
    """

    accepted: bool | None
    value: float | None = None
    unit: str = ""
    bound: float | None = None
    direction: Direction = "at_most"
    explanation: str = ""
    interval: tuple[float, float] | None = None
    samples: int | None = None
    provenance: Provenance = "measured"
    power: str = ""
    absent: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _set(self, "accepted", None if self.accepted is None else bool(self.accepted))
        _set(self, "value", None if self.value is None else float(self.value))
        _set(self, "bound", None if self.bound is None else float(self.bound))
        _set(self, "samples", None if self.samples is None else int(self.samples))
        _set(self, "details", storable(self.details, "details"))
        if self.interval is not None:
            low, high = self.interval
            _set(self, "interval", (float(low), float(high)))
        _check(self)

    @property
    def margin(self) -> float | None:
        """Distance of the value from its bound in `unit`, positive on the accepted side; None where there is no such number."""
        if self.value is None or self.bound is None or not (math.isfinite(self.value) and math.isfinite(self.bound)):
            return None
        if self.direction == "equal":
            return 0.0 - abs(self.value - self.bound)
        return self.bound - self.value if self.direction == "at_most" else self.value - self.bound


def to_json(finding: Finding) -> dict[str, Any]:
    """The finding as JSON values; numbers that JSON has no word for become "nan", "inf" and "-inf"."""
    return {
        "accepted": finding.accepted,
        "value": storable(finding.value),
        "unit": finding.unit,
        "bound": storable(finding.bound),
        "direction": finding.direction,
        "margin": finding.margin,
        "explanation": finding.explanation,
        "interval": storable(finding.interval),
        "samples": finding.samples,
        "provenance": finding.provenance,
        "power": finding.power,
        "details": finding.details,
    } | ({"absent": True} if finding.absent else {})


def from_json(data: Mapping[str, Any]) -> Finding:
    """The inverse of `to_json`. Raises ValueError for what no judge could have concluded."""
    known = {item.name for item in fields(Finding)}
    values = {key: value for key, value in data.items() if key in known}
    if values.get("interval") is not None:
        values["interval"] = tuple(float(end) for end in values["interval"])
    return Finding(**values)


def storable(value: Any, where: str = "value") -> Any:
    """`value` as JSON values: numpy becomes plain, tuples become lists, non-finite numbers become strings. Raises TypeError."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): storable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy arrays and numbers, without importing numpy here
        return storable(value.tolist(), where)
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot hold; give numbers, text, lists and dicts.")


def _set(finding: Finding, name: str, value: Any) -> None:
    object.__setattr__(finding, name, value)


def _check(finding: Finding) -> None:
    if not finding.explanation.strip():
        raise ValueError("Finding.explanation is empty; say in one sentence what was expected and what was seen.")
    for name, choices in (("direction", get_args(Direction)), ("provenance", get_args(Provenance))):
        if getattr(finding, name) not in choices:
            raise ValueError(f"Finding.{name} is {getattr(finding, name)!r}; use one of {', '.join(choices)}.")
    if finding.interval is not None and finding.interval[0] > finding.interval[1]:
        raise ValueError(f"Finding.interval is {finding.interval}; give (low, high).")
    if finding.absent and finding.accepted is not None:
        raise ValueError(f"Finding is absent, yet accepted={finding.accepted}; what the job lacks can be neither right nor wrong.")
    if finding.samples is not None and finding.samples < 0:
        raise ValueError(f"Finding.samples is {finding.samples}; give a count.")
    if finding.accepted and not _inside(finding):
        raise ValueError(
            f"Finding is accepted although {finding.value} {finding.unit} is not {finding.direction.replace('_', ' ')} {finding.bound}; "
            "reject it or correct the bound."
        )


def _inside(finding: Finding) -> bool:
    """Whether value and bound, where given, allow acceptance. A value that is not a number never does."""
    if finding.value is None:
        return True
    if math.isnan(finding.value) or (finding.bound is not None and math.isnan(finding.bound)):
        return False
    if finding.bound is None:
        return True
    if finding.direction == "equal":
        return finding.value == finding.bound
    return finding.value <= finding.bound if finding.direction == "at_most" else finding.value >= finding.bound

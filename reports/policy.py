"""The decision policy: who owns what, which criteria are critical, how old evidence may be, what is waived."""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reports.evidence import Entry
from reports.verdicts import Waiver

DEFAULT_POLICY = Path(__file__).with_name("policy.toml")
CRITICAL = ["recovery.*", "equivalence.*"]  # where a policy names none
LADDER = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
_KNOWN = {
    "owners": None,  # any pattern is a key
    "critical": {"criteria"},
    "evidence": {"max_age_days"},
    "exposure": {"ladder"},
    "bounds": None,
    "economics": {"mean_interruption_h", "launch_s", "price_per_device_hour", "planned_steps", "deadline_h"},
    "compare": None,  # checked by compare_policy.py, which alone uses it
    "waiver": {"id", "backend", "reason", "owner", "expires"},
}
_WAIVER_NEEDS = ("id", "reason", "owner", "expires")


class PolicyError(ValueError):
    """The policy cannot be used as written; the message is one sentence that names the key, the value and the fix."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file, checked. owners: (pattern, owner), the first match counts. ladder: rank counts, rising. sha256: of the file.

    economics: what nobody measured, by name, as reports/outlook.py lists it.
    """

    decision_owner: str
    owners: tuple[tuple[str, str], ...]
    critical: tuple[str, ...]
    max_age_days: float
    ladder: tuple[int, ...]
    bounds: Mapping[str, float]
    waivers: tuple[Waiver, ...]
    sha256: str
    economics: Mapping[str, float] = field(default_factory=dict)

    def owner(self, criterion: str) -> str:
        return next((owner for pattern, owner in self.owners if fnmatchcase(criterion, pattern)), self.decision_owner)

    def is_critical(self, criterion: str) -> bool:
        return any(fnmatchcase(criterion, pattern) for pattern in self.critical)


def load_policy(path: Path | None = None) -> Policy:
    """Read a policy file, by default the one of the suite. Raises PolicyError."""
    file = path or DEFAULT_POLICY
    try:
        content = file.read_bytes()
        tables = tomllib.loads(content.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{file} cannot be read as a policy: {error}.") from error
    _check_keys(file, tables)
    owners = dict(tables.get("owners", {}))
    return Policy(
        decision_owner=str(owners.pop("decision", "model training lead")),
        owners=tuple((pattern, str(owner)) for pattern, owner in owners.items()),
        critical=tuple(_texts(file, "critical.criteria", tables.get("critical", {}).get("criteria", CRITICAL))),
        max_age_days=_positive(file, "evidence.max_age_days", tables.get("evidence", {}).get("max_age_days", 30)),
        ladder=_ladder(file, tables.get("exposure", {}).get("ladder", LADDER)),
        bounds={name: _number(file, f"bounds.{name}", value) for name, value in tables.get("bounds", {}).items()},
        waivers=tuple(_waiver(file, item) for item in tables.get("waiver", [])),
        sha256=hashlib.sha256(content).hexdigest(),
        economics={name: _number(file, f"economics.{name}", value) for name, value in tables.get("economics", {}).items()},
    )


def check_waivers(policy: Policy, catalogue: Sequence[Entry], now: datetime) -> None:
    """Raise PolicyError for a waiver of something that is not in the catalogue, or one that has expired at `now`."""
    for waiver in policy.waivers:
        if not any(entry.id == waiver.id and waiver.backend in ("", entry.backend) for entry in catalogue):
            known = ", ".join(sorted({entry.id for entry in catalogue})) or "none"
            shown = f"{waiver.id} [{waiver.backend}]" if waiver.backend else waiver.id
            raise PolicyError(f"waiver of {shown}: the catalogue has no such criterion; it has {known}.")
        if now.date() > date.fromisoformat(waiver.expires):
            raise PolicyError(f"waiver of {waiver.id} expired on {waiver.expires}; {waiver.owner} must renew or remove it.")


def _check_keys(file: Path, tables: Mapping[str, Any]) -> None:
    for name, table in tables.items():
        if name not in _KNOWN:
            raise PolicyError(f"{file}: unknown table [{name}]; known are {', '.join(sorted(_KNOWN))}.")
        rows = table if isinstance(table, list) else [table]
        if (name == "waiver") != isinstance(table, list) or not all(isinstance(row, dict) for row in rows):
            raise PolicyError(f"{file}: {name} must be written as {'[[waiver]]' if name == 'waiver' else f'[{name}]'}.")
        known = _KNOWN[name]
        for key in {key for row in rows for key in row}:
            if known is not None and key not in known:
                raise PolicyError(f"{file}: unknown key {name}.{key}; known are {', '.join(sorted(known))}.")


def _waiver(file: Path, item: Mapping[str, Any]) -> Waiver:
    for key in _WAIVER_NEEDS:
        if not str(item.get(key, "")).strip():
            raise PolicyError(f"{file}: waiver of {item.get('id', 'an unnamed criterion')} has no {key}; give {', '.join(_WAIVER_NEEDS)}.")
    expires = item["expires"]
    try:
        day = expires if isinstance(expires, date) else date.fromisoformat(str(expires))
    except ValueError as error:
        raise PolicyError(f"{file}: waiver of {item['id']} expires {expires!r}, which is no date; write 2026-12-31.") from error
    day = day.date() if isinstance(day, datetime) else day
    return Waiver(str(item["id"]), str(item["reason"]), str(item["owner"]), day.isoformat(), str(item.get("backend", "")))


def _number(file: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise PolicyError(f"{file}: {key} is {value!r}; give a number.")
    return float(value)


def _positive(file: Path, key: str, value: Any) -> float:
    if _number(file, key, value) <= 0:
        raise PolicyError(f"{file}: {key} is {value!r}; give a number above 0.")
    return float(value)


def _texts(file: Path, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise PolicyError(f'{file}: {key} is {value!r}; give a list of patterns such as "recovery.*".')
    return value


def _ladder(file: Path, value: Any) -> tuple[int, ...]:
    sound = isinstance(value, list) and value and all(type(item) is int and item > 0 for item in value)
    if not sound or any(low >= high for low, high in itertools.pairwise(value)):
        raise PolicyError(f"{file}: exposure.ladder is {value!r}; give rising rank counts such as [1, 2, 4, 8].")
    return tuple(value)

"""The [compare] table of the policy: how much slower is still accepted, overall and per criterion."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reports.policy import DEFAULT_POLICY, PolicyError

MAX_SLOWDOWN = 0.03  # where a policy file has no [compare] table
BETWEEN_AUDITS = 0.05
LEVEL = 0.99
_KNOWN = ("between_audits", "level", "max_slowdown", "max_worsening")


@dataclass(frozen=True, slots=True)
class CompareBounds:
    """max_slowdown: worsening still accepted of any number. max_worsening: the same for the first pattern that matches an id.

    between_audits: what times of two audits of the same code may differ by; it never applies to ratios formed inside one audit.
    level: of the intervals, two-sided.
    """

    max_slowdown: float = MAX_SLOWDOWN
    between_audits: float = BETWEEN_AUDITS
    level: float = LEVEL
    max_worsening: Mapping[str, float] = field(default_factory=dict)

    def named(self, id: str) -> float | None:
        """The bound that the policy sets for this criterion or benchmark in particular, if it does."""
        return next((bound for pattern, bound in self.max_worsening.items() if pattern == id or fnmatchcase(id, pattern)), None)

    def bound(self, id: str) -> float:
        named = self.named(id)
        return self.max_slowdown if named is None else named


def load_bounds(path: Path | None = None) -> CompareBounds:
    """Read the [compare] table of a policy file, by default the suite's. Raises PolicyError."""
    file = path or DEFAULT_POLICY
    try:
        table = tomllib.loads(file.read_text()).get("compare", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolicyError(f"{file} cannot be read as a policy: {error}.") from error
    return bounds_of(file, table)


def bounds_of(file: Path, table: Any) -> CompareBounds:
    """The table, checked. Raises PolicyError that names the key, the value and the fix."""
    if not isinstance(table, dict):
        raise PolicyError(f"{file}: compare must be written as [compare].")
    if unknown := sorted(set(table) - set(_KNOWN)):
        raise PolicyError(f"{file}: unknown key compare.{unknown[0]}; known are {', '.join(_KNOWN)}.")
    named = table.get("max_worsening", {})
    if not isinstance(named, dict):
        raise PolicyError(f"{file}: compare.max_worsening is {named!r}; write it as [compare.max_worsening] with one pattern per line.")
    level = _share(file, "level", table.get("level", LEVEL))
    if not 0.5 <= level < 1.0:
        raise PolicyError(f"{file}: compare.level is {level!r}; give a number from 0.5 to below 1, such as 0.99.")
    return CompareBounds(
        max_slowdown=_share(file, "max_slowdown", table.get("max_slowdown", MAX_SLOWDOWN)),
        between_audits=_share(file, "between_audits", table.get("between_audits", BETWEEN_AUDITS)),
        level=level,
        max_worsening={str(pattern): _share(file, f"max_worsening.{pattern}", value) for pattern, value in named.items()},
    )


def _share(file: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
        raise PolicyError(f"{file}: compare.{key} is {value!r}; give a number from 0, such as 0.03 for 3 %.")
    return float(value)

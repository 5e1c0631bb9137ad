"""What a load test measures of one constrained path, and how several paths become one finding: none makes up for another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.evidence import Finding
from reports.statistics import Interval

COLUMNS = ["path", "value", "low", "high", "required", "unit", "verdict"]


@dataclass(frozen=True, slots=True)
class LoadedPath:
    """One path under load. `holds` None: it cannot be told, `words` say why. `measured` None: this path has no number, only an outcome."""

    name: str
    holds: bool | None
    words: str
    measured: Interval | None = None
    required: str = ""
    unit: str = ""

    @property
    def row(self) -> list[object]:
        """The path's row of a table with COLUMNS."""
        seen = self.measured
        numbers = [None] * 3 if seen is None else [one if math.isfinite(one) else None for one in (seen.estimate, seen.low, seen.high)]
        return [self.name, *numbers, self.required, self.unit, {True: "holds", False: "broken", None: "cannot be told"}[self.holds]]


def all_hold(paths: Sequence[LoadedPath]) -> Finding:
    """Accepted where every path holds; `value` is the number of broken ones."""
    broken, unsure = ([path for path in paths if path.holds is state] for state in (False, None))
    details = {"table": {"columns": COLUMNS, "rows": [path.row for path in paths]}}
    samples = sum(path.measured.samples for path in paths if path.measured)
    if broken or unsure:
        text = "; ".join(f"{path.name}: {path.words}" for path in broken or unsure)
        return Finding(
            accepted=False if broken else None, value=len(broken) if broken else None, unit="paths" if broken else "",
            bound=0 if broken else None, explanation=text, samples=samples, details=details,
        )  # fmt: skip
    text = "; ".join(f"{path.name}: {path.words}" for path in paths)
    return Finding(accepted=True, value=0, unit="paths", bound=0, explanation=text, samples=samples, details=details)

"""Judge: latency, cost, capacity, freshness and the worst subgroup stay inside their bounds, each by itself; none makes up for another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from fixtures.audit import Program
from reports.evidence import Finding

DOLLARS_PER_CORE_HOUR = 0.05
SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Guardrail:
    """One bound: how the value stands to it, where the value comes from."""

    name: str
    value: float
    bound: float
    direction: str
    unit: str
    provenance: str

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.direction == "at_most" else self.value >= self.bound


def measured(served: Mapping[str, Any], wall_s: float, subgroup: Finding, bounds: Mapping[str, float]) -> tuple[Guardrail, ...]:
    """The guardrails from what the service said of itself, how long its process took, and the finding on slices."""
    flights = int(served["flights"])
    age = datetime.fromisoformat(served["newest_decision"]) - datetime.fromisoformat(served["identity"]["trained_until"])
    found = {
        "serving_latency_ms": (float(np.quantile(served["latencies_ms"], 0.95)), "at_most", "ms", "measured by the job"),
        "serving_cost": (
            wall_s / flights * 1e6 / 3600 * DOLLARS_PER_CORE_HOUR,
            "at_most",
            "US dollars a million",
            "calculated, price assumed",
        ),
        "serving_capacity": (flights / wall_s, "at_least", "records a second", "measured"),
        "model_age_days": (age.total_seconds() / SECONDS_PER_DAY, "at_most", "days", "measured"),
        "subgroup_regression": (subgroup.value if subgroup.value is not None else float("nan"), "at_most", "nats, lower end", "measured"),
    }
    return tuple(Guardrail(name, value, bounds[name], *rest) for name, (value, *rest) in found.items())


def stays_inside(program: Program, subgroup: Finding, *, served: str, bounds: Mapping[str, float]) -> Finding:
    """Every guardrail holds. `value` is the share of its bound that the tightest one uses (above 1: broken)."""
    written = program.files.get(served)
    if program.exit_code != 0 or written is None:
        return Finding(accepted=None, explanation=f"the service did not run: exit code {program.exit_code}, {program.said()}")
    if subgroup.value is None:
        return Finding(accepted=None, explanation=f"the subgroups were not judged: {subgroup.explanation}")
    try:
        rails = measured(json.loads(written), program.wall_s, subgroup, bounds)
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        return Finding(accepted=None, explanation=f"what the service says of itself cannot be used ({type(error).__name__}: {error})")
    rows = [[rail.name, rail.value, rail.direction.replace("_", " "), rail.bound, rail.unit, rail.provenance] for rail in rails]
    details = {"table": {"columns": ["guardrail", "value", "", "bound", "unit", "provenance"], "rows": rows}}
    broken = [rail for rail in rails if not rail.holds]
    told = "; ".join(
        f"{rail.name} {rail.value:.3g} ({rail.direction.replace('_', ' ')} {rail.bound:g} {rail.unit})" for rail in broken or rails
    )
    options: dict[str, Any] = {"value": len(broken), "unit": "guardrails broken", "bound": 0, "samples": len(rails), "details": details}
    if broken:
        return Finding(accepted=False, explanation=f"guardrail broken: {told}", **options)
    return Finding(accepted=True, explanation=f"all {len(rails)} guardrails hold: {told}", **options)

"""Judge: a bad artifact in service is noticed, and the one before is back in service within the allowed time; a good one is left alone."""

from __future__ import annotations

import json

from fixtures.audit import Program
from reports.evidence import Finding


def in_service(program: Program, pointer: str) -> str:
    """The artifact that the registry's pointer names after the program; "" where there is none."""
    try:
        return str(json.loads(program.files.get(pointer) or b"{}").get("artifact") or "")
    except (ValueError, AttributeError):
        return ""


def goes_back(before: Program, healthy: Program, incident: Program, rolled: Program, *, pointer: str, within_s: float) -> Finding:
    """`healthy`: the monitor while the good artifact serves; `incident`: a bad one put into service; `rolled`: the monitor after that."""
    good, bad = in_service(before, pointer), in_service(incident, pointer)
    if not good or not bad or good == bad:
        return Finding(accepted=None, explanation=f"no incident: {good or 'nothing'} was in service before and {bad or 'nothing'} after it")
    if healthy.exit_code != 0 or in_service(healthy, pointer) != good:
        return Finding(accepted=False, explanation=f"the monitor replaced a sound artifact or failed on it: {healthy.said()}")
    after, details = in_service(rolled, pointer), {"timeline": _timeline(rolled, bad, good), "said": rolled.said()}
    if after != good or rolled.exit_code != 0:
        text = f"it did not go back: {after or 'nothing'} is in service after the monitor (exit code {rolled.exit_code}): {rolled.said()}"
        return Finding(accepted=False, explanation=text, details=details)
    told = f"{bad} was noticed and {good} was back in service after {rolled.wall_s:.1f} s (allowed {within_s:g} s); a sound artifact was left alone; it said: {rolled.said()}"
    if rolled.wall_s > within_s:
        return Finding(
            accepted=False, value=rolled.wall_s, unit="s", bound=within_s, explanation=f"too slow: {told}", samples=1, details=details
        )
    return Finding(accepted=True, value=rolled.wall_s, unit="s", bound=within_s, explanation=told, samples=1, details=details)


def _timeline(rolled: Program, bad: str, good: str) -> list[dict[str, object]]:
    return [
        {"t_s": 0.0, "event": f"monitor started, {bad} in service", "step": None, "rank": None},
        {"t_s": rolled.wall_s, "event": f"monitor ended, {good} expected", "step": None, "rank": None},
    ]

"""Judge: what the job computes from a small example is what a person worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fixtures.audit import Program
from reports.evidence import Finding

LAST_LINES = 200


def equals_by_hand(program: Program, *, produces: str, expected: Path, tolerance: float) -> Finding:
    """Every field of the expected JSON is in the produced one, numbers within `tolerance`, everything else equal; further fields are let
    pass.
    """
    written = program.files.get(produces)
    if program.exit_code != 0 or written is None:
        line = (program.log.strip().splitlines() or ["nothing"])[-1][:LAST_LINES]
        what = f"exited with code {program.exit_code}" if program.exit_code else f"wrote no {Path(produces).name}"
        return Finding(accepted=False, explanation=f"the program for the hand-calculated example {what}; its last words: {line!r}")
    try:
        seen, wanted = json.loads(written), json.loads(expected.read_text())
    except ValueError as error:
        return Finding(accepted=False, explanation=f"the result of the hand-calculated example is no JSON: {error}")
    seen_fields, wanted_fields = dict(_leaves(seen)), dict(_leaves(wanted))
    if not wanted_fields:
        return Finding(accepted=None, explanation=f"{expected.name} holds no field to compare: write down what the example should give")
    wrong = [name for name, value in wanted_fields.items() if not _equal(seen_fields.get(name, _Absent), value, tolerance)]
    rows = [
        [name, value, None if seen_fields.get(name, _Absent) is _Absent else seen_fields[name]] for name, value in wanted_fields.items()
    ]
    details: dict[str, Any] = {"table": {"columns": ["field", "by hand", "by the job"], "rows": rows}}
    if wrong:
        name = wrong[0]
        got = "nothing" if seen_fields.get(name, _Absent) is _Absent else repr(seen_fields[name])
        text = f"{name}: {wanted_fields[name]!r} by hand, {got} by the job ({len(wrong)} of {len(wanted_fields)} fields differ; tolerance {tolerance:g})"
        return Finding(
            accepted=False,
            value=len(wrong),
            unit="fields that differ",
            bound=0,
            explanation=text,
            samples=len(wanted_fields),
            details=details,
        )
    text = f"all {len(wanted_fields)} fields worked out by hand agree with what the job computes, within {tolerance:g}"
    return Finding(
        accepted=True, value=0, unit="fields that differ", bound=0, explanation=text, samples=len(wanted_fields), details=details
    )


class _Absent:
    """Marks a field that is not there; a null is a value."""


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of nested JSON by path: "steps[0].loss"."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]")
    else:
        yield name, value


def _equal(seen: Any, wanted: Any, tolerance: float) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (seen, wanted))
    if not numbers:
        return type(seen) is type(wanted) and bool(seen == wanted)
    return (math.isnan(seen) and math.isnan(wanted)) or abs(seen - wanted) <= tolerance

"""Judge: one device alone takes over from the last complete checkpoint and leaves a record that can be audited like any other run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.recovery.ends import how_it_ended


def takes_over(control: Trace, killed: Trace, alone: Trace, *, every: int, record: bytes | None) -> Finding:
    """The one-device run restores the newest or previous checkpoint, trains on what the world had left, ends, and says so completely."""
    if control.crashed or control.steps.empty or not killed.fired("kill"):
        return Finding(
            accepted=None, explanation="the uninterrupted control or the killed run is not usable, so there is nothing to take over from"
        )
    done = int(killed.steps["step"].max()) if not killed.steps.empty else 0
    last = int(control.steps["step"].max())
    story = f"the world was lost after {done} of {last} steps"
    if alone.crashed or alone.steps.empty:
        return Finding(accepted=False, explanation=f"{story}; one device alone did not finish: {how_it_ended(alone)}")
    try:
        held = alone.start(0)["param_digest"]
    except NotSeen as error:
        return Finding(accepted=None, explanation=f"what one device restored was not seen: {error}")
    restored = _step_of(control, held)
    details: dict[str, Any] = {
        "restored_step": restored,
        "lost_steps": None if restored is None else done - restored,
        "ended": how_it_ended(alone),
    }
    if restored is None or restored < done - done % every - every or restored == 0:
        what = "weights that the world never had" if restored is None else f"the weights of step {restored}"
        return Finding(
            accepted=False,
            explanation=f"{story}; one device alone began with {what}, not with those of the last checkpoint",
            details=details,
        )
    if wrong := _other_samples(control, alone, restored):
        return Finding(accepted=False, explanation=f"{story}; from step {restored} one device alone {wrong}", details=details)
    if gaps := _gaps(alone, record, last):
        return Finding(accepted=False, explanation=f"{story}; its record is not complete: {', '.join(gaps)}", details=details)
    text = (
        f"{story}; one device alone restored step {restored}, trained on the same samples in each of the {last - restored} steps left, and left its own record: "
        f"start, every step, end, exit code and {len(dict(_leaves(json.loads(record or b'{}'))))} fields of the job's own"
    )
    return Finding(accepted=True, value=0, unit="gaps in the record", bound=0, explanation=text, samples=last - restored, details=details)


def _step_of(control: Trace, digest: object) -> int | None:
    """The step of the control after which rank 0 had these parameters; 0 before the first."""
    rows = control.steps[control.steps["rank"] == 0]
    found = rows[rows["param_digest"] == digest]["step"]
    if not found.empty:
        return int(found.iloc[0])
    return 0 if digest is not None and control.start(0)["param_digest"] == digest else None


def _other_samples(control: Trace, alone: Trace, restored: int) -> str:
    wanted, seen = _samples_of(control), {step + restored: samples for step, samples in _samples_of(alone).items()}
    left = {step: count for step, count in wanted.items() if step > restored}
    if seen.keys() != left.keys():
        return f"made {len(seen)} steps where {len(left)} were left"
    wrong = [step for step in sorted(left) if seen[step] != left[step]]
    return f"trained on other samples than the world in {len(wrong)} steps, the first step {wrong[0]}" if wrong else ""


def _samples_of(trace: Trace) -> dict[int, Counter[str]]:
    """What each step was computed on, over all ranks."""
    by_step: dict[int, Counter[str]] = {}
    for step, sample in zip(trace.samples["step"].tolist(), trace.samples["sample"].tolist(), strict=True):
        by_step.setdefault(int(step), Counter())[sample] += 1
    return by_step


def _gaps(alone: Trace, record: bytes | None, last: int) -> list[str]:
    """What the record lacks, of what the probe writes and of what the job writes."""
    kinds = {one["kind"] for one in alone.records}
    gaps = [f"the probe saw no {kind}" for kind in ("meta", "start", "exit") if kind not in kinds] + [
        f"probe error: {one}" for one in alone.errors()
    ]
    try:
        told = json.loads(record) if record is not None else None
    except ValueError:
        told = None
    if not isinstance(told, Mapping):
        return [*gaps, "the job wrote no record of its own"]
    gaps += [f"{name} is empty" for name, value in _leaves(told) if value in (None, "")]
    gaps += [
        f"{name} is {told.get(name)!r}, not {value}" for name, value in (("steps", last), ("world_size", 1)) if told.get(name) != value
    ]
    return gaps


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value

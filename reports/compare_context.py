"""In which circumstances two audits differ: what forbids a comparison unless it is allowed by name, and what only deserves a note.

Code may differ: it is what is compared. Machine, worlds, backends, launcher, numerics, job configuration and criteria versions may not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.compare_model import Mismatch
from reports.evidence import Evidence

FIELDS = ("cpu", "cores", "gpus", "world_sizes", "backend", "launcher", "numerics", "job", "criteria")
JOB_KEYS = ("name", "command", "global_batch", "steps", "seed", "capabilities", "targets")
PLACES = ("path", "folder", "code")  # where the job lay on the machine, and its code; both may differ
NOTED = ("python", "torch", "numpy", "platform", "host_name", "clock_source", "memory_gib", "memory_bytes", "variables")
LONGEST_SHOWN = 60


def mismatches(base: Evidence, head: Evidence, allowed: Sequence[str]) -> tuple[Mismatch, ...]:
    """Every difference that forbids a comparison, those allowed marked so. allowed: names out of FIELDS."""
    found = [*_circumstances(base, head), *_numerics(base, head), *_job(base, head), *_versions(base, head)]
    return tuple(Mismatch(field, part, _short(one), _short(other), field in allowed) for field, part, one, other in found)


def notes(base: Evidence, head: Evidence) -> tuple[str, ...]:
    """What differs or is wanting without forbidding a comparison, one sentence each."""
    return tuple(_notes(base, head))


def _circumstances(base: Evidence, head: Evidence) -> Iterator[tuple[str, str, Any, Any]]:
    sides = [(evidence.meta.get("environment") or {}, evidence.meta.get("world") or {}) for evidence in (base, head)]
    (machine, world), (other_machine, other_world) = sides
    pairs = [
        ("cpu", "cpu", machine.get("cpu"), other_machine.get("cpu")),
        ("cores", "cores", machine.get("cores"), other_machine.get("cores")),
        ("gpus", "gpus", _gpus(machine), _gpus(other_machine)),
        ("world_sizes", "world_sizes", world.get("world_sizes"), other_world.get("world_sizes")),
        ("world_sizes", "hosts", world.get("hosts") or 1, other_world.get("hosts") or 1),
        ("world_sizes", "link_mbit", world.get("link_mbit"), other_world.get("link_mbit")),
        ("backend", "backend", sorted(world.get("backends") or []), sorted(other_world.get("backends") or [])),
        ("launcher", "launcher", world.get("launcher"), other_world.get("launcher")),
        ("numerics", "dtype", machine.get("dtype"), other_machine.get("dtype")),
    ]
    yield from (pair for pair in pairs if pair[2] != pair[3])


def _gpus(machine: Mapping[str, Any]) -> Any:
    return sorted(machine.get("gpu_names") or []) or machine.get("gpus") or "none"


def _numerics(base: Evidence, head: Evidence) -> Iterator[tuple[str, str, Any, Any]]:
    """In which numerics (and data type, where runs note it) each criterion's own runs took place."""
    for key in sorted({*base.records} & {*head.records}):
        if key[2] == "as_is":
            one, other = (_numerics_of(evidence, evidence.records[key].runs) for evidence in (base, head))
            if one and other and one != other:
                yield "numerics", key[0], one, other


def _numerics_of(evidence: Evidence, runs: Sequence[str]) -> list[str]:
    specs = [evidence.runs[run].spec for run in runs if run in evidence.runs]
    return sorted({str(spec[key]) for spec in specs for key in ("numerics", "dtype") if spec.get(key)})


def _job(base: Evidence, head: Evidence) -> Iterator[tuple[str, str, Any, Any]]:
    one, other = (_configuration(evidence.meta.get("job") or {}) for evidence in (base, head))
    for key in sorted({*one, *other}):
        if one.get(key) != other.get(key):
            yield "job", key, one.get(key), other.get(key)


def _configuration(job: Mapping[str, Any]) -> dict[str, Any]:
    """What job.toml says, without where the job lies."""
    declared = {key: value for key, value in (job.get("declared") or {}).items() if key not in PLACES}
    if isinstance(by_hand := declared.get("hand_calculated"), Mapping):
        declared["hand_calculated"] = {key: value for key, value in by_hand.items() if key != "expected"}
    return {key: job[key] for key in JOB_KEYS if key in job} | declared


def _versions(base: Evidence, head: Evidence) -> Iterator[tuple[str, str, Any, Any]]:
    one, other = ({(entry.id, entry.backend): entry.version for entry in evidence.catalogue} for evidence in (base, head))
    for key in sorted({*one} & {*other}):
        if one[key] != other[key]:
            yield "criteria", f"{key[0]} [{key[1]}]", f"version {one[key]}", f"version {other[key]}"


def _notes(base: Evidence, head: Evidence) -> Iterator[str]:
    for side, evidence in (("base", base), ("head", head)):
        if evidence.catalogue and not evidence.finished:
            yield f"The session of the {side} did not finish, so its evidence is not complete."
        identity = evidence.meta.get("identity") or {}
        if identity.get("dirty") or identity.get("suite_dirty"):
            yield f"The {side} was audited with uncommitted changes, so its commit alone does not say what ran."
    machine, other = (evidence.meta.get("environment") or {} for evidence in (base, head))
    for key in NOTED:
        if key in machine and key in other and machine[key] != other[key]:
            yield f"{key} differs: {_short(machine[key])} in the base, {_short(other[key])} in the head."
    one, two = ((evidence.meta.get("identity") or {}).get("data_hash") for evidence in (base, head))
    if one and two and one != two:
        yield "The data that the jobs were given differ, so numbers may differ for that reason alone."


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    text = "unknown" if value is None else text
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"

"""What the audit of one stack came to, as it is kept beside the page: versions, signals, verdicts, and the findings of further seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fixtures.trace import Trace, load_trace
from suite.stacks.signals import Signal, signals

AREAS = ("equivalence", "recovery")
PLAIN = ("faults", "damage", "resume_from", "permute", "command", "micro_batches", "record", "state", "stop_after")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A criterion's verdict; `explanation` is what its judge said of the job as it is, `why` what kept it from passing."""

    criterion: str
    verdict: str
    explanation: str
    why: str


@dataclass(frozen=True, slots=True)
class Result:
    """`versions` by distribution; `seeds`: by seed, what each criterion said of the job as it is (criterion, outcome, explanation), twins left out."""

    name: str
    job_hash: str
    versions: Mapping[str, str]
    world_size: int
    signals: tuple[Signal, ...]
    verdicts: tuple[Verdict, ...]
    seeds: Mapping[int, tuple[tuple[str, str, str], ...]]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seeds": {str(seed): said for seed, said in self.seeds.items()}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Result:
        rows, verdicts = (Signal(**one) for one in stored["signals"]), (Verdict(**one) for one in stored["verdicts"])
        seeds = {int(seed): tuple((one[0], one[1], one[2]) for one in said) for seed, said in stored["seeds"].items()}
        values = {key: stored[key] for key in ("name", "job_hash", "versions", "world_size")}
        return cls(**values, signals=tuple(rows), verdicts=tuple(verdicts), seeds=seeds)

    def rejections(self) -> list[tuple[str, str]]:
        """Every finding, at any seed: criterion and explanation, each once."""
        found = [(one.criterion, one.explanation) for one in self.verdicts if one.verdict == "failed"]
        found += [(id, why) for said in self.seeds.values() for id, outcome, why in said if outcome == "rejected"]
        return list(dict.fromkeys(found))


def result_of(name: str, audits: Sequence[Path], versions: Mapping[str, str]) -> Result:
    """The result of a job's finished audits (one for each area, or one for all), from their audit.json and traces."""
    found = [json.loads((folder / "audit.json").read_text()) for folder in audits]
    world_size = int(found[0]["world"]["world_size"])
    runs = [of_interest(folder / "traces", world_size, audit["job"]["global_batch"]) for folder, audit in zip(audits, found, strict=True)]
    shown = signals([trace for plain, _ in runs for trace in plain], [trace for _, resumed in runs for trace in resumed])
    said = {one.criterion: one for audit, folder in zip(found, audits, strict=True) for one in verdicts_of(audit, folder)}
    for audit, folder in zip(found, audits, strict=True):
        said |= {one.criterion: one for one in verdicts_of(audit, folder) if one.verdict != "not_run"}
    return Result(name, found[0]["identity"]["job_hash"], dict(versions), world_size, shown, tuple(said.values()), {})


def verdicts_of(audit: Mapping[str, Any], folder: Path) -> tuple[Verdict, ...]:
    """The verdicts of the areas that a stack is audited in, in the order of the catalogue; paths of this audit left out of their words."""
    rows = [one for one in audit["criteria"] if one["area"] in AREAS]
    return tuple(
        Verdict(one["id"], one["verdict"], _without((one["finding"] or {}).get("explanation") or "", folder), _without(one["reason"] or "", folder))
        for one in rows
    )  # fmt: skip


def of_interest(traces: Path, world_size: int, global_batch: int) -> tuple[Sequence[Trace], Sequence[Trace]]:
    """The fault-free runs of a world size with the job's own batch, the most telling level first, and, of those that were started again, one."""
    specs = [
        (path.parent, json.loads(path.read_text())) for path in sorted(traces.glob("*/spec.json")) if (path.parent / "ended.json").exists()
    ]
    own = [(folder, spec) for folder, spec in specs if (spec.get("world_size"), spec.get("global_batch")) == (world_size, global_batch)]
    plain = [(folder, spec) for folder, spec in own if not any(spec.get(key) for key in PLAIN)]
    again = [folder for folder, spec in own if spec.get("resume_from") and not any(spec.get(key) for key in PLAIN if key != "resume_from")]
    levels = {"full": 0, "gradient": 1, "default": 2, "timing": 3}
    ordered = sorted(plain, key=lambda pair: (pair[1].get("numerics") != "as_run", levels.get(str(pair[1].get("level")), 9), str(pair[0])))
    kept = {(spec.get("numerics"), spec.get("level")): folder for folder, spec in reversed(ordered)}
    chosen = [folder for folder, _ in ordered if folder in set(kept.values())]
    return [load_trace(folder) for folder in chosen], [load_trace(folder) for folder in again[:1]]


def read_results(store: Path) -> dict[str, Result]:
    """The stored results by name; empty where there are none."""
    return {name: Result.from_json(row) for name, row in json.loads(store.read_text()).items()} if store.exists() else {}


def write_results(store: Path, results: Iterable[Result]) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    rows = {one.name: one.to_json() for one in results}
    store.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def _without(text: str, folder: Path) -> str:
    return text.replace(f"{folder}/", "")

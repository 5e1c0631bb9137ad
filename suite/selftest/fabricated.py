"""A made-up audit of 19 criteria with numbers as real ones have them: what the tests of the decision and of the page work on."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

from reports.evidence import Finding, begin_session, create, finish_session, set_meta, write_catalogue, write_record, write_run

STARTED = "2026-08-21T09:12:00+00:00"
FINISHED = "2026-08-21T09:16:41+00:00"
HOSTILE = "rank 1 said <script>alert('x')</script> & \"quoted\" \u2028 before it ended"
ACCEPTED, REJECTED = True, False

Row = tuple[str, str, str, str, str]
# id, claim, threshold, the twin in words, the reason that its rejection must give
CRITERIA: tuple[Row, ...] = (
    ("equivalence.data_coverage", "Every sample of the epoch is consumed exactly once, by one rank, at every world size.",
     "no sample missing, none twice", "rank 1 drops a sample in step 3", "missing"),
    ("equivalence.data_order", "Each step consumes the same multiset of samples at every world size.",
     "equal multisets at every step", "rank 1 shuffles its samples otherwise", "order|multiset"),
    ("equivalence.gradient", "Every world size computes the gradient that one device computes on the same samples.",
     "inside twice the noise envelope", "rank 1 scales its gradient by 1.01 before the reduction", "gradient"),
    ("equivalence.loss_trajectory", "The loss of every world size stays inside the measured noise of one device.",
     "inside twice the noise envelope at every step", "rank 1 scales its gradient by 1.05 before the reduction", "envelope"),
    ("equivalence.ranks_agree", "All ranks hold the same parameters after every step.",
     "equal digests", "rank 1 shifts a parameter by 0.001 after step 4", "digest"),
    ("efficiency.scaling", "Two ranks do the same work in at most 1 / (2 x 0.7) of the time of one.",
     "speed-up divided by ranks", "rank 1 sleeps 40 ms in forward from step 1", "efficiency"),
    ("efficiency.same_work", "Every world size does the same optimizer steps on the same global batch.",
     "equal samples per step", "rank 1 consumes row 0 twice in step 2", "samples"),
    ("efficiency.breakdown", "A rank waits for its input in at most a tenth of a step.",
     "share of the step time", "rank 0 sleeps 30 ms in data from step 1", "data wait"),
    ("recovery.continuation", "A resumed run continues exactly as the run that was never interrupted.",
     "bitwise equal parameters at the last step", "the resumed run forgets its optimizer state", "optimizer"),
    ("recovery.worst_boundary", "A kill before any file operation of a save, on any rank, loses at most the steps since the last complete save.",
     "no boundary without a complete checkpoint", "rank 0 deletes the old checkpoint before it writes the new one", "boundary"),
    ("recovery.restore", "Each part of the saved state is needed and is restored.",
     "equal digests after restoring", "the resumed run forgets its random state", "RNG|random"),
    ("stragglers.slow_rank", "A rank that is late is named within 20 steps.",
     "steps until the right rank is named", "rank 1 sleeps 50 ms in backward from step 5", "late"),
    ("stragglers.hang", "A rank that stops ends the whole world within a minute, and is named.",
     "seconds from the stop to the last exit", "every rank's uncaught exception ends it with code 0", "silent"),
    ("inputs.malformed", "A malformed row stops every rank with a message that names the row.",
     "all ranks end with an error", "input damaged: malformed", "row"),
    ("inputs.late", "A row that becomes available after the cutoff never reaches training.",
     "no late row consumed", "input damaged: late", "late"),
    ("inputs.missing", "A missing input file stops every rank before the first step.",
     "no step taken", "input damaged: missing", "step"),
    ("inputs.out_of_distribution", "An input far outside the training range is refused or reported before it is trained on.",
     "reported by every rank", "input damaged: out of distribution (factor 1000)", "range"),
    ("inputs.cutoff", "No feature of a row was unknown at the moment of its decision.",
     "latest availability minus cutoff", "input damaged: a feature from after the cutoff", "after the cutoff"),
    ("inputs.hand_calculated", "A worked example gives the value that was calculated by hand.",
     "inside the stated tolerance", "input damaged: one digit changed", "hand"),
)  # fmt: skip


def fabricate(folder: Path, *, sound: bool = False, unfinished: bool = False, hosts: int = 1) -> Path:
    """Write an audit into `folder`. sound: everything passed; otherwise one of every verdict. Returns the folder."""
    create(folder)
    begin_session(folder, STARTED)
    write_catalogue(folder, [_entry(position, row) for position, row in enumerate(CRITERIA)])
    _write_meta(folder, sound, hosts)
    for row in CRITERIA:
        _write_runs(folder, row[0])
        for part, finding, fired in _parts(row, sound):
            write_record(
                folder, id=row[0], backend="gloo", part=part, finding=finding, fired=fired, runs=_run_ids(row[0], part),
                started_utc=STARTED, duration_s=6.25, crashed=finding.explanation.startswith("The audit itself failed"),
            )  # fmt: skip
    if not unfinished:
        finish_session(folder, FINISHED)
    return folder


def waiving_policy(folder: Path) -> Path:
    """A policy file that waives `efficiency.scaling`."""
    from reports.policy import DEFAULT_POLICY

    waiver = '\n[[waiver]]\nid = "efficiency.scaling"\nreason = "Two ranks share one memory channel; a second host is on order."\n'
    file = folder / "policy.toml"
    file.write_text(DEFAULT_POLICY.read_text() + waiver + 'owner = "infrastructure owner"\nexpires = 2027-01-31\n')
    return file


def _entry(position: int, row: Row) -> dict[str, Any]:
    id, claim, threshold, words, because = row
    return {
        "id": id, "backend": "gloo", "claim": claim, "threshold": threshold,
        "twins": [{"part": "twin", "fault": {"kind": words.split()[-1], "rank": 1}, "words": words, "because": because}], "version": 1 + position % 2,
        "needs": ("inputs",) if id.startswith("inputs.") else (("checkpoint",) if id.startswith("recovery.") else ()),
        "timed": id.startswith(("efficiency.", "stragglers.")),
        "assumptions": ("Ranks share one host and one clock.", "The job seeds its own random numbers from --seed."),
        "limitations": ("Two ranks; larger worlds were not run.", "gloo on CPU; nccl orders its reductions otherwise."),
        "overturned_by": "A world size at which the same claim is rejected, or a smaller fault that it lets pass.",
        "source": f"suite/{id.split('.')[0]}/test_{id.split('.')[1]}.py::test_{id.split('.')[1]}",
        "rerun": f"pytest -m cpu suite/{id.split('.')[0]}/test_{id.split('.')[1]}.py --job workloads/flights/job.toml --world-size 2",
    }  # fmt: skip


def _write_meta(folder: Path, sound: bool, hosts: int) -> None:
    lacks = {} if sound else {"inputs.hand_calculated": "the score has no closed form; see the worked batch in docs"}
    set_meta(folder, "directory", "audits/flights-20260821-091200")
    set_meta(folder, "job", {
        "name": "flights", "file": "workloads/flights/job.toml", "command": "train.py --global-batch {global_batch} --steps {steps} --out {out}",
        "global_batch": 256, "steps": 24, "seed": 0, "capabilities": {"elastic": True, **lacks}, "targets": {"scaling_efficiency": 0.65},
        "has": ["checkpoint", "inputs", "records"], "checkpoint": {"every": 6, "directory": "{out}/checkpoints"},
    })  # fmt: skip
    set_meta(folder, "identity", {
        "code_commit": "5f3c0e9a1b7d4c2288e1a6f09d3b5c7e11aa42de", "dirty": True, "job_hash": _digest("job"), "data_hash": _digest("data"),
        "config_hash": _digest("config"), "suite_commit": "5f3c0e9a1b7d4c2288e1a6f09d3b5c7e11aa42de", "suite_dirty": False,
    })  # fmt: skip
    set_meta(folder, "environment", {
        "python": "3.11.13", "torch": "2.13.0+cpu", "platform": "Linux-6.8-x86_64", "cores": 2, "gpus": [], "memory_bytes": 16_637_652_992,
        "cpu": "Xeon 2.1 GHz", "clock": "CLOCK_MONOTONIC", "nccl": None, "variables": {"OMP_NUM_THREADS": "1", "NOTE": HOSTILE},
    })  # fmt: skip
    set_meta(folder, "world", {"world_size": 2, "world_sizes": [1, 2], "hosts": hosts, "launcher": "warm", "backends": ["gloo"]})
    set_meta(folder, "measured", measured())
    set_meta(folder, "bounds", {"scaling_efficiency": 0.7, "data_wait_share": 0.1})


def measured() -> dict[str, Any]:
    """What the runs of the made-up audit measured besides its verdicts."""

    def figure(value: float, unit: str, low: float, high: float, samples: int, how: str) -> dict[str, Any]:
        return {"value": value, "unit": unit, "low": low, "high": high, "samples": samples, "how": how, "runs": []}

    modules = [
        {"name": f"blocks.{index}", "type": "Linear", "parameters": "weight 96 x 96, bias 96", "numel": 9312, "bytes": 37248, "layout": "replicated"}
        for index in range(30)
    ]  # fmt: skip
    return {
        "figures": {
            "step_s": figure(0.0412, "s", 0.0403, 0.0437, 6, "median step of the slowest rank, one value per run"),
            "save_s": figure(0.187, "s", 0.151, 0.242, 12, "what a save adds to a step, one value per save"),
            "save_bytes": figure(14_245_792.0, "B", 14_245_792.0, 14_245_793.0, 12, "bytes written, one value per save"),
            "restart_s": figure(0.74, "s", 0.66, 0.91, 4, "from a rank's start to its first step, one value per resumed run"),
            "kill_noticed_s": figure(0.19, "s", 0.15, 0.2, 4, "from the kill to the end of all, one value per killed run"),
            "silence_s": figure(0.66, "s", 0.47, 1.14, 6, "longest silence, one value per run"),
            "data_wait_ratio": figure(0.0066, "of the time", 0.0024, 0.021, 6, "waits for input, one value per run"),
            "lateness_ratio": figure(0.031, "of a step", 0.012, 0.04, 6, "median lateness of the latest rank, one value per run"),
        },
        "architecture": {
            "run_id": "w2-a", "module": "FlightModel", "wrappers": ["DistributedDataParallel"], "world_size": 2, "backend": "gloo on cpu", "parameters": 1_177_955,
            "parameter_bytes": 4_711_820, "dtypes": ["float32"], "layouts": ["replicated"], "modules": modules, "left_out": 7, "micro_batches": 1.0,
            "collectives": [{"op": "allreduce", "phase": "backward", "calls": 2.0, "bytes": 4_712_092.0}], "bytes_per_step": 4_712_092.0,
        },
        "devices": devices(),
    }  # fmt: skip


def devices(gpu: bool = False) -> dict[str, Any]:
    """What the ranks of the made-up audit used; with `gpu` on two GPUs, one of which could not be asked for everything."""
    cores = [
        {"core": core, "busy_share": 0.71 + core / 10, "steal_share": 0.0, "frequency_mhz": 2596.1, "thermal_throttles": None}
        for core in range(2)
    ]
    rows: list[dict[str, Any]] = []
    for size, rank in ((1, 0), (2, 0), (2, 1)):
        card: dict[str, Any] = {
            "index": rank,
            "name": "H100",
            "utilisation_percent": 87.0,
            "memory_used_bytes": 21e9,
            "power_w": 512.4,
            "sm_clock_mhz": 1755.0,
            "throttled": {"power cap": 0.25},
        }
        partly = {**card, "power_w": None, "throttled": None} if rank else card
        rows.append({
            "backend": "gloo", "world_size": size, "rank": rank, "runs": 6, "cpu_share": {"value": 0.93, "low": 0.9, "high": 0.97},
            "peak_resident_bytes": 512e6 + 10e6 * rank, "grown_bytes": 81e6, "peak_allocated_bytes": 19e9 if gpu else None, "peak_reserved_bytes": None,
            "gpu": partly if gpu else None,
        })  # fmt: skip
    known = {"name": "H100", "bus_id": "0", "memory_total_bytes": 80e9, "power_limit_w": 700.0, "sm_clock_most_mhz": 1980, "nvlinks": 18}
    return {
        "rows": rows, "cores": cores, "gpus": [{**known, "index": index, "rank": index} for index in range(2)] if gpu else [],
        "topology": [["same", "NODE"], ["NODE", "same"]] if gpu else [], "runs": [f"w2-{index}" for index in range(12)], "samples": 40,
        "not_measured": "" if gpu else "no NVIDIA driver: NVML Shared Library Not Found",
    }  # fmt: skip


def _write_runs(folder: Path, id: str) -> None:
    for part in ("as_is", "twin"):
        for run_id in _run_ids(id, part):
            size = 1 if run_id.startswith("w1") else 2
            faults = [{"kind": "sleep", "rank": 1}] if part == "twin" and size == 2 else []
            ranks = [{"rank": rank, "exit_code": 0, "signal": None, "killed_by_us": False} for rank in range(size)]
            files = [
                "spec.json",
                "ended.json",
                *(f"rank{rank}.jsonl" for rank in range(size)),
                *(f"rank{rank}.log" for rank in range(size)),
            ]
            write_run(
                folder, run_id=run_id, spec={"world_size": size, "backend": "gloo", "launcher": "warm", "steps": 24, "seed": 0, "faults": faults},
                ended={"wall_s": 1.84 + size / 10, "started_utc": STARTED, "ended_by": "exit", "message": "", "ranks": ranks},
                sha256={name: _digest(run_id + name) for name in files},
            )  # fmt: skip


def _run_ids(id: str, part: str) -> list[str]:
    if id == "inputs.missing":
        return []
    alone = f"w1-{_digest(id.split('.')[0])[:12]}"
    return [alone, f"w2-{'sleep-' if part == 'twin' else ''}{_digest(id + part)[:12]}"]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _parts(row: Row, sound: bool) -> list[tuple[Any, Finding, bool | None]]:
    """(part, finding, fired) of the records that are there."""
    id, claim, _, words, _ = row
    as_is = as_is_findings().get(id) or Finding(
        ACCEPTED, 0.0, "samples", 0.0, "equal", f"None of 6,144 samples speaks against it. {claim}", samples=6144
    )
    twin = Finding(
        REJECTED, 1.0, "samples", 0.0, "equal", f"With the fault ({words}): {_foretold(row)} 1 where 0 was required.", samples=6144
    )
    whole: list[tuple[Any, Finding, bool | None]] = [("as_is", as_is, None), ("twin", twin, True)]
    if sound:
        return whole
    changed: dict[str, list[tuple[Any, Finding, bool | None]]] = {
        "efficiency.scaling": [("as_is", SLOW, None), whole[1]],
        "recovery.worst_boundary": [("as_is", TORN, None), whole[1]],
        "inputs.late": [("as_is", LATE, None), whole[1]],
        "stragglers.hang": [whole[0], ("twin", twin, False)],
        "inputs.out_of_distribution": [
            ("as_is", Finding(None, explanation="The audit itself failed: KeyError: 'input_low' (inputs.py:88)."), None)
        ],
        "inputs.missing": [],
        "inputs.hand_calculated": [],
    }
    return changed.get(id, whole)


def _foretold(row: Row) -> str:
    return row[4].split("|")[0]


def as_is_findings() -> dict[str, Finding]:
    """The accepted findings that have more to tell than a count."""
    steps = list(range(1, 25))
    envelope = [3e-7 * math.exp(step / 9) for step in steps]
    deviation = [1.1e-7 * math.exp(step / 10) * (1 + 0.3 * math.sin(step)) for step in steps]
    return {
        "equivalence.gradient": Finding(
            ACCEPTED, 1.4e-7, "relative", 6.2e-7, "at_most", "The first gradient at 2 ranks deviates by 1.4e-07 from that of one device, inside 6.2e-07.",
            interval=(0.9e-7, 2.1e-7), samples=42, power="would have caught a gradient scale off by 0.0001 % or more",
            details={"table": {"columns": ["parameter", "deviation", "bound"], "rows": [["embed.carrier.weight", 1.4e-7, 6.2e-7], ["head.bias", 3e-8, 5e-7]]}},
        ),
        "equivalence.loss_trajectory": Finding(
            ACCEPTED, 1.9e-6, "relative", 4.3e-6, "at_most", "The loss at 2 ranks stays inside the envelope at all 24 steps.", samples=24,
            power="would have caught a gradient scale off by 0.3 % or more", provenance="measured",
            details={"trajectory": {"steps": steps, "deviation": deviation, "envelope": envelope}},
        ),
        "efficiency.scaling": Finding(
            ACCEPTED, 0.87, "", 0.65, "at_least", "Two ranks are 1.74 times as fast as one.", interval=(0.84, 0.9), samples=9, details=_scaling(23.7)
        ),
        "efficiency.breakdown": Finding(
            ACCEPTED, 0.031, "", 0.10, "at_most", "Ranks wait for input in 3.1 % of a step.", interval=(0.028, 0.035), samples=40, details=_breakdown()
        ),
        "recovery.continuation": Finding(
            ACCEPTED, 0.0, "bits", 0.0, "equal", "Parameters of the resumed and the uninterrupted run are bitwise equal at step 24.", samples=2,
            power="would have caught a change of one bit", details=_timeline(),
        ),
        "recovery.worst_boundary": Finding(
            ACCEPTED, 0.0, "boundaries", 0.0, "equal", "All 52 boundaries of both ranks resume from a complete checkpoint.", samples=52,
            details={"boundaries": _boundaries(torn=False)},
        ),
        "stragglers.slow_rank": Finding(
            ACCEPTED, 6.0, "steps", 20.0, "at_most", "No rank is late by itself; the rank planted late is named after 6 steps.", samples=40,
            power="would have caught 4 ms or more", details={"lateness": [{"rank": 0, "median_ms": 0.31, "late_share": 0.48}, {"rank": 1, "median_ms": 0.42, "late_share": 0.52}]},
        ),
        "inputs.cutoff": Finding(ACCEPTED, -7200.0, "s", 0.0, "at_most", "The latest value was known 7,200 s before the cutoff.", provenance="calculated", samples=6144),
    }  # fmt: skip


def _scaling(two_ms: float) -> dict[str, Any]:
    rows = [(1, 41.2), (2, two_ms)]
    return {"scaling": [
        {"world_size": size, "step_ms": ms, "low": ms * 0.97, "high": ms * 1.04, "samples_per_s": 256e3 / ms, "efficiency": 41.2 / ms / size}
        for size, ms in rows
    ]}  # fmt: skip


def _breakdown() -> dict[str, Any]:
    rows = [(1, 0, 1.2, 14.1, 20.3, 0.0, 4.4, 1.2), (2, 0, 0.8, 7.2, 10.4, 3.1, 4.3, 0.6), (2, 1, 0.7, 7.3, 10.6, 2.8, 4.4, 0.6)]
    names = ("world_size", "rank", "data_wait_ms", "forward_ms", "backward_ms", "exposed_ms", "optimizer_ms", "other_ms")
    return {"breakdown": [dict(zip(names, row, strict=True)) for row in rows]}


def _timeline() -> dict[str, Any]:
    events = [
        (0.00, "start", 0, None), (0.82, "save complete", 6, None), (1.51, "save complete", 12, None), (1.87, "fault fired", 15, 1),
        (1.98, "noticed", 15, 0), (2.31, "restarted", None, None), (2.74, "restored", 12, None), (3.12, "caught up", 15, None), (4.20, "end", 24, None),
    ]  # fmt: skip
    return {"timeline": [{"t_s": t, "event": event, "step": step, "rank": rank} for t, event, step, rank in events]}


def _boundaries(torn: bool) -> list[dict[str, Any]]:
    ops = ["mkdir", "open", "write", "write", "write", "fsync", "open", "write", "fsync", "rename", "fsync", "rename", "unlink"]
    found = []
    for rank in range(2):
        for n in range(1, 27):
            outcome: str
            resumed: int | None
            lost: int
            outcome, resumed, lost = ("resumed_newest", 12, 0) if n > 22 else ("resumed_previous", 6, 6)
            if torn and rank == 0 and n in (11, 12, 13):
                outcome, resumed, lost = ("torn", 12, 0) if n == 12 else ("fresh_start", 0, 12)
            if torn and rank == 1 and n == 20:
                outcome, resumed, lost = "loud_failure", None, 12
            op = ops[(n - 1) % len(ops)]
            found.append(
                {
                    "rank": rank,
                    "n": n,
                    "op": op,
                    "path": f"checkpoints/step12.tmp/rank{rank}.pt",
                    "outcome": outcome,
                    "resumed_step": resumed,
                    "lost_steps": lost,
                }
            )
    return found  # fmt: skip


SLOW = Finding(
    REJECTED, 0.52, "", 0.65, "at_least", "Two ranks are only 1.04 times as fast as one: 39.6 ms a step against 41.2 ms.", interval=(0.49, 0.55),
    samples=9, details=_scaling(39.6),
)  # fmt: skip
TORN = Finding(
    REJECTED, 4.0, "boundaries", 0.0, "at_most",
    "At 4 of 52 boundaries no complete checkpoint is left: killed before rename (rank 0, operation 12), the job resumes from a mix of steps 6 and 12.",
    samples=52, details={"boundaries": _boundaries(torn=True)},
)  # fmt: skip
LATE = Finding(REJECTED, 3.0, "rows", 0.0, "at_most", f"3 of 6,144 rows were consumed before they were available; {HOSTILE}.", samples=6144)

"""Judge: every rank gets through, all in the same collectives; where the world stands still, say which rank stopped, where, and what the
rest wait in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.trace import NotSeen, Trace
from reports.evidence import Finding
from suite.recovery.ends import hung
from suite.stragglers.parting import parted, raised, why_not_finished

NANOSECONDS_PER_S = 1e9
CLEAN_UP_S = 15.0  # stacks are asked for, then ranks get SIGTERM and, after a grace of 5 s, SIGKILL
ANY_SIZE = ("send", "recv", "gather", "scatter", "alltoall")  # ranks may move different amounts in these
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
LOADER = "torch/utils/data/dataloader.py"
THREAD = re.compile(r"^(?=.*thread 0x)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one rank stood when the world was ended: step, number of collectives it had entered in it, phase, frames of the job's code
    (innermost first). called: the function of torch.distributed that its stack is in, or the reduction at the end of a backward, "" for none;
    in_own_code: its stack ends in the job's own code (or in the standard library), not in torch; loading: it waits for its DataLoader.
    """

    rank: int
    step: int
    collective: int
    phase: str
    frames: tuple[str, ...]
    called: str = ""
    in_own_code: bool = False
    loading: bool = False

    @property
    def waits(self) -> bool:
        return self.phase == "collective" or bool(self.called)


def gets_through(trace: Trace, *, job_folder: Path) -> Finding:
    """Every rank finishes with exit code 0 and issues the same collectives in the same order as all others."""
    left = [end["rank"] for end in trace.ended.get("ranks", ()) if end.get("exit_code") is None and not end.get("signal")]
    if left:
        return Finding(
            accepted=False,
            value=len(left),
            unit="ranks left behind",
            bound=0,
            explanation=f"rank {left[0]} was still there after the run was ended",
        )
    if hung(trace):
        return _hang(trace, job_folder)
    if trace.crashed:
        return Finding(accepted=False, explanation=why_not_finished(trace))
    if trace.collectives.empty:
        reason = trace.not_seen().get("collectives", "the ranks issued none while they trained")
        return Finding(accepted=None, explanation=f"no collective was seen: {reason}")
    return _same_sequence(trace)


def stall_bound_s(control: Trace) -> float:
    """A stall time that a healthy run of this job never reaches: twice its longest silence, and at least 5 s."""
    stamps = np.sort(
        np.concatenate(
            [control.steps["t_ns"].to_numpy(dtype=float), [_t_ns(record) for record in control.records if record.get("t_ns") is not None]]
        )
    )
    within = float(np.diff(stamps).max()) / NANOSECONDS_PER_S if len(stamps) > 1 else 0.0
    around = float(control.ended.get("wall_s") or 0.0) - (float(stamps[-1] - stamps[0]) / NANOSECONDS_PER_S if len(stamps) else 0.0)
    return float(max(5, np.ceil(2 * max(within, around))))


def standings(trace: Trace, job_folder: Path) -> list[Standing]:
    """Where each rank stood, as its probe wrote it down and its stack shows."""
    found = []
    for rank in trace.ranks:
        try:
            now = trace.now(rank)
        except NotSeen:
            continue
        stack = trace.stack(rank)
        inner = _beneath(stack, job_folder)
        called = [frame["function"] for frame in inner if frame["file"].endswith("distributed_c10d.py")]
        in_own_code = bool(job_frames(stack, job_folder)) and not any("/torch/" in frame["file"] for frame in inner)
        place = int(now["step"]), int(now["collective"]), str(now["phase"])
        name = called[-1] if called else ("the reduction of backward" if _in_backward(inner) else "")
        loading = any(frame["file"].endswith(LOADER) for frame in inner)
        found.append(Standing(rank, *place, job_frames(stack, job_folder), name, in_own_code, loading))
    return found


def _in_backward(inner: Sequence[re.Match[str]]) -> bool:
    """The stack ends in autograd's engine, with no Python beneath: the gradients are there, and what is waited for is their reduction."""
    return bool(inner) and inner[0]["function"] == "_engine_run_backward"


def job_frames(stack: str, job_folder: Path) -> tuple[str, ...]:
    """Frames of the job's own files in a stack dump, innermost first; the job's folder and its siblings count, installed packages do
    not.
    """
    own = [match for match in FRAME.finditer(stack) if _is_own(match, job_folder)]
    return tuple(f"{Path(match['file']).name}:{match['line']} {match['function']}" for match in own)


def _is_own(frame: re.Match[str], job_folder: Path) -> bool:
    return frame["file"].startswith(str(job_folder.parent.resolve())) and "site-packages" not in frame["file"]


def _beneath(stack: str, job_folder: Path) -> list[re.Match[str]]:
    """What the job's innermost frame called, in the thread that it is in, innermost first."""
    for thread in THREAD.split(stack):
        frames = list(FRAME.finditer(thread))
        own = next((at for at, frame in enumerate(frames) if _is_own(frame, job_folder)), None)
        if own is not None:
            return frames[:own]
    return []


def culprit(standing: Sequence[Standing]) -> Standing:
    """The rank that stopped: it has come least far, and among equals it is the one that waits in no collective."""
    return min(standing, key=lambda one: (one.step, one.collective, one.waits, one.rank))


def _hang(trace: Trace, job_folder: Path) -> Finding:
    standing = standings(trace, job_folder)
    if not standing:
        return Finding(
            accepted=False, explanation=f"the world stood still before any rank had begun to train ({trace.ended.get('message')})"
        )
    guilty = culprit(standing)
    silence_s, bound_s = _silence_s(trace), float(trace.spec.get("stall_s") or 30.0) + CLEAN_UP_S
    meeting = next_collective(trace, guilty, standing)
    details: dict[str, Any] = {
        "table": {"columns": ["rank", "step", "collectives entered", "phase", "where"], "rows": [_listed(one) for one in standing]},
        "silence_s": silence_s, "sequence_next": meeting,
    }  # fmt: skip
    who = _all_stopped(standing) if _nobody_waits(standing, trace) else _one_stopped(trace, standing, guilty, meeting)
    if len(standing) == len(trace.ranks):
        who = parted(standing) or who
    text = f"the world stood still: {who}; ended after {silence_s:.0f} s of silence (at most {bound_s:.0f} s) and every rank was taken down"
    return Finding(
        accepted=False, value=silence_s, unit="s of silence", bound=None, explanation=text, samples=len(standing), details=details
    )


def _one_stopped(trace: Trace, standing: Sequence[Standing], guilty: Standing, meeting: str) -> str:
    at = f" at {guilty.frames[0]}" if guilty.frames else ""
    at += ", where it waits for its DataLoader," if guilty.loading else raised(trace, guilty.rank)
    others = [
        str(one.rank) for one in standing if one.rank != guilty.rank and (one.step, one.collective) >= (guilty.step, guilty.collective)
    ]
    verb = "wait" if len(others) > 1 else "waits"
    return f"rank {guilty.rank} stopped in step {guilty.step}{at} before {meeting}, in which rank {', '.join(others) or 'nobody'} {verb}"


def _nobody_waits(standing: Sequence[Standing], trace: Trace) -> bool:
    """All ranks have come equally far, and each one's stack ends in its own code: then nobody keeps anybody."""
    as_far = len({(one.step, one.collective) for one in standing}) == 1 and len(standing) == len(trace.ranks) > 1
    return as_far and all(one.in_own_code and not one.waits for one in standing)


def _all_stopped(standing: Sequence[Standing]) -> str:
    places = {one.frames[0] for one in standing}
    where = places.pop() if len(places) == 1 else ", ".join(f"{one.frames[0]} (rank {one.rank})" for one in standing)
    return f"every rank stopped in step {standing[0].step} at {where}, outside any collective, so none waits for another"


def next_collective(trace: Trace, guilty: Standing, standing: Sequence[Standing]) -> str:
    """The collective that comes next for the rank that stopped: the one that a waiting rank's stack shows, else what the same place held in
    earlier steps.
    """
    name = f"collective {guilty.collective + 1} of that step"
    for one in standing:
        if one.called and (one.step, one.collective) == (guilty.step, guilty.collective + 1):
            return f"{name} ({one.called} at {one.frames[0]})"
    earlier = trace.collectives[trace.collectives["step"] < guilty.step]
    same_place = earlier[earlier["index"] == guilty.collective]
    if same_place.empty:
        return name
    last = same_place.iloc[-1]
    return f"{name} ({last['op']}, {int(last['bytes'])} bytes)"


def _silence_s(trace: Trace) -> float:
    """How long nothing moved before the run was over: its wall time minus what passed up to the last sign of life of any rank."""
    seen = [_t_ns(record) for record in trace.records if record.get("t_ns") is not None] + list(trace.steps["t_ns"].to_numpy(dtype=float))
    for rank in trace.ranks:
        try:
            seen.append(float(trace.now(rank)["t_ns"]))
        except NotSeen:
            continue
    active = (max(seen) - min(seen)) / NANOSECONDS_PER_S if seen else 0.0
    return max(0.0, float(trace.ended.get("wall_s") or 0.0) - active)


def _same_sequence(trace: Trace) -> Finding:
    calls = trace.collectives.sort_values(["rank", "step", "index"])
    sized = ~calls["op"].astype(str).str.contains("|".join(ANY_SIZE))
    named = calls.assign(call=calls["op"].astype(str) + np.where(sized, " of " + calls["bytes"].astype(str) + " bytes", ""))
    by_step = named.groupby(["step", "rank"])["call"].agg(tuple).unstack("rank")
    ranks = [int(str(rank)) for rank in by_step.columns]
    for step, row in by_step.iterrows():
        sequences = [row[rank] if isinstance(row[rank], tuple) else () for rank in ranks]
        for rank, sequence in zip(ranks[1:], sequences[1:], strict=True):
            if sequence != sequences[0]:
                return _other_sequence(int(str(step)), ranks[0], rank, sequences[0], sequence)
    text = f"every rank finished, and all {len(ranks)} ranks issued the same {len(calls) // len(ranks)} collectives in the same order over {len(by_step)} steps"
    return Finding(accepted=True, value=0, unit="steps whose collectives differ", bound=0, explanation=text, samples=len(by_step))


def _other_sequence(step: int, first: int, other: int, expected: tuple[str, ...], seen: tuple[str, ...]) -> Finding:
    place = next((at for at, (one, two) in enumerate(zip(expected, seen, strict=False)) if one != two), min(len(expected), len(seen)))
    one = expected[place] if place < len(expected) else "nothing more"
    two = seen[place] if place < len(seen) else "nothing more"
    text = f"step {step}, collective {place + 1}: rank {first} issues {one} where rank {other} issues {two}; such a world hangs as soon as timing changes"
    return Finding(accepted=False, value=1, unit="steps whose collectives differ", bound=0, explanation=text)


def _listed(one: Standing) -> list[Any]:
    return [one.rank, one.step, one.collective, one.phase, " < ".join(one.frames[:3])]


def _t_ns(record: dict[str, Any]) -> float:
    return float(record["t_ns"])

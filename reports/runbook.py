"""What to do when it breaks: RUNBOOK.md, for the audited job, with the times that this audit measured.

A runbook written by hand is right on the day it is written. This one is rendered from the evidence; its commands are executed by a test in worlds
with these faults; a time that nobody measured says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from reports.outlook import planned_every
from reports.wording import amount

WATCH = 'python -m suite watch "$RUN"'
WATCH_RESUMED = 'python -m suite watch "$RUN-resumed"'
NAMING_STEPS = 14  # two of warm-up and the twelve that name a slow rank


def runbook(audit: Mapping[str, Any]) -> dict[str, Any]:
    """{"start": lines of shell that the commands rest on, "entries": [{id, title, symptom, steps, action, owner, times}]}.

    steps: [{command, expect (words), matches (a regular expression on the command's output)}], in the order to run them.
    times: [{what, value, unit, provenance, how}]; value None stands for "not measured".
    """
    checkpoint = (audit["job"].get("declared") or {}).get("checkpoint") or {}
    entries = [
        _slow(audit),
        _hang(audit),
        _dead(audit),
        _corrupt(audit, checkpoint),
        _full(audit, checkpoint),
        _rollback(audit, checkpoint),
    ]
    return {"start": _start(audit["job"], audit["world"], checkpoint), "entries": entries}


def _start(job: Mapping[str, Any], world: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> list[str]:
    """Where things are, and how the job is started with the probe riding along, from the root of the repository."""
    return [
        "export OUT=/where/the/job/writes            # what the job knows as {out}",
        'export RUN="$OUT/watch"                     # where the probe of the running job writes: a new folder for every start',
        'export SITE="$PWD/fixtures/probe/site"      # what makes the probe ride along',
        f"# the job itself was started so: {_launched(job, world, checkpoint)}",
    ]


def _launched(job: Mapping[str, Any], world: Mapping[str, Any], checkpoint: Mapping[str, Any], *, again: bool = False) -> str:
    """The job's own command line under torchrun, whole, to be typed as it stands; `again`: with its resume argument, and a trace of its own."""
    ranks = int(world.get("world_size") or 1)
    run, resume = ("$RUN-resumed", f" {checkpoint.get('resume') or ''}".rstrip()) if again else ("$RUN", "")
    own = [f"{name}={shlex.quote(str(value))}" for name, value in sorted(((job.get("declared") or {}).get("environment") or {}).items())]
    watch = [f'RANKPROOF_WATCH="{_filled(checkpoint["directory"], job, ranks)}"'] if checkpoint else []
    variables = " ".join([*own, 'PYTHONPATH="$SITE"', "RANKPROOF_LEVEL=timing", f'RANKPROOF_TRACE="{run}"', *watch])
    arguments = _filled(str(job.get("command") or ""), job, ranks, '"$OUT"')
    return f"(cd {_folder(job)} && {variables} torchrun --standalone --nproc-per-node {ranks} {arguments}{resume})"


def _resumed(audit: Mapping[str, Any], expect: str) -> list[dict[str, Any]]:
    """Start the job again, and see that every rank moves; what the job itself prints about it is the job's own affair."""
    checkpoint = (audit["job"].get("declared") or {}).get("checkpoint") or {}
    return [
        {"command": _launched(audit["job"], audit["world"], checkpoint, again=True), "expect": f"{expect}; exit code 0", "matches": ""},
        {
            "command": WATCH_RESUMED,
            "expect": "`every rank moves, step K is done`; exit code 0",
            "matches": r"every rank moves, step \d+ is done",
        },
    ]


def rendered(audit: Mapping[str, Any]) -> str:
    """RUNBOOK.md."""
    book, name = audit["runbook"], audit["job"].get("name") or "job"
    lines = [f"# Runbook of the training job {name}", ""]
    lines += [
        f"Times are of the audit `{audit['directory']}` ({_ranks(audit)}, {audit['environment'].get('cores', 'an unknown number of')} cores), measured unless marked otherwise. "
        "Commands are for bash, from the root of the repository. These lines come first:", "", "```bash", *book["start"], "```", "",
    ]  # fmt: skip
    for entry in book["entries"]:
        lines += _section(entry)
    return "\n".join(lines).rstrip() + "\n"


def _section(entry: Mapping[str, Any]) -> list[str]:
    lines = [f'<a id="{entry["id"]}"></a>', "", f"## {entry['title']}", "", f"**Symptom.** {entry['symptom']}", ""]
    for step in entry["steps"]:
        lines += ["```bash", step["command"], "```", "", f"Expected: {step['expect']}", ""]
    lines += [f"**Action.** {entry['action']}", "", f"**Owner.** {entry['owner']}", "", "| bounded by | time | |", "| --- | --- | --- |"]
    for time in entry["times"]:
        value = "not measured" if time["value"] is None else amount(time["value"], time["unit"])
        lines.append(f"| {time['what']} | {value} | {time['provenance'] + ': ' if time['value'] is not None else ''}{time['how']} |")
    return [*lines, ""]


def _slow(audit: Mapping[str, Any]) -> dict[str, Any]:
    step = _figure(audit, "step_s")
    usual = (
        f"a step takes {amount(step['value'], 's')} in a healthy run ({amount(step['low'], 's')} to {amount(step['high'], 's')})"
        if step
        else "the usual step time was not measured"
    )
    named = NAMING_STEPS * step["value"] if step else None
    return {
        "id": "slow-rank", "title": "A slow rank", "symptom": f"Alerts RankproofRankLate, RankproofStepSlow or RankproofInputSlow; {usual}.",
        "steps": [{"command": WATCH, "expect": "`rank N makes the others wait: ... it spends X ms a step more than they do in PHASE`; exit code 1", "matches": r"rank \d+ makes the others wait"}],
        "action": "Waiting for data: look at that rank's loader processes and storage. Forward or backward: look at its device (clocks, temperature, other processes). "
        "If it stays, take the host out of the world, end the job, and start it again from its last checkpoint as under “A dead rank”. If no rank is named, all are slow alike: look at the input and at the link.",
        "owner": _owner(audit, "stragglers.slow_rank"),
        "times": [
            _time("until the rank is named", named, "s", "calculated", f"{NAMING_STEPS} steps at the measured step time"),
            _finding_time(audit, "stragglers.slow_rank", "lateness of the latest rank when the job is well"),
            *_restarting(audit),
        ],
    }  # fmt: skip


def _hang(audit: Mapping[str, Any]) -> dict[str, Any]:
    alert = next((rule for rule in audit["observability"] if rule["name"] == "RankproofWorldSilent"), None)
    twin = next(
        (item["twin"] for item in audit["criteria"] if item["id"] == "stragglers.hang" and item["twin"]["outcome"] == "rejected"), None
    )
    return {
        "id": "hang", "title": "A hang", "symptom": "Alert RankproofWorldSilent: no rank writes a step any more, no process has ended.",
        "steps": [{"command": f"{WATCH} --stacks", "expect": "`the world stands still for S s: rank N stopped in step K at FILE:LINE before collective C, in which rank M waits`; exit code 1",
                   "matches": r"the world stands still for \d+ s .*: rank \d+ stopped in step \d+"}],
        "action": "Keep the stacks (`$RUN/rank*.stack`) for whoever mends it. End the launcher with SIGTERM (it takes its ranks along; under Slurm: scancel), "
        "then start again from the last checkpoint as under “A dead rank”. Waiting longer does not help: the others wait in a collective that the named rank never enters.",
        "owner": _owner(audit, "stragglers.hang"),
        "times": [
            _time("until the alert", alert["threshold"] if alert else None, "s", "calculated", alert["how"] if alert else "no healthy run was timed"),
            _time("from the hang to the end of every rank, in the audit", twin["value"] if twin else None, "s", "measured", "planted hang of the criterion stragglers.hang, clean-up included" if twin else "the criterion's twin has no record"),
            *_restarting(audit),
        ],
    }  # fmt: skip


def _dead(audit: Mapping[str, Any]) -> dict[str, Any]:
    noticed = _figure(audit, "kill_noticed_s")
    return {
        "id": "dead-rank", "title": "A dead rank", "symptom": "Alert RankproofRankLost; the launcher ends with the exit code or signal of one rank.",
        "steps": [
            {"command": WATCH, "expect": "`rank N is gone: it ended in step K, in PHASE`; exit code 1", "matches": r"rank \d+ is gone: it ended in step \d+"},
            *_resumed(audit, "the job says from which step it resumes, and trains on"),
        ],
        "action": "Look at the named rank's log and at the host's kernel log (out of memory, device errors). Start again from the last checkpoint; without that host if it happens twice.",
        "owner": _owner(audit, "recovery.continuation"),
        "times": [_time("from the death of a rank to the end of all", noticed["high"] if noticed else None, "s", "measured", noticed["how"] + ", the longest" if noticed else "no run was killed"), *_restarting(audit)],
    }  # fmt: skip


def _corrupt(audit: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "corrupt-checkpoint", "title": "A corrupt checkpoint", "symptom": "A restart says that a checkpoint is damaged, or the storage reports errors.",
        "steps": [
            *_own(audit, checkpoint, "check", "one line per checkpoint, the damaged one with what is wrong with it; exit code 1", "damaged|incomplete"),
            *_resumed(audit, "the job passes over it, says so, and resumes from the one before"),
        ],
        "action": "Nothing has to be removed by hand: a restart takes the newest whole checkpoint. Find out whether the storage lies before trusting the next save, and keep the damaged files for that.",
        "owner": _owner(audit, "recovery.worst_boundary"),
        "times": [
            _boundaries(audit),
            *_restarting(audit),
        ],
    }  # fmt: skip


def _full(audit: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    size, save = _figure(audit, "save_bytes"), _figure(audit, "save_s")
    return {
        "id": "full-disk", "title": "A full disk", "symptom": "Alert RankproofCheckpointOverdue, or the job ends with “No space left on device”.",
        "steps": [
            {"command": 'df --output=avail,target -B1 "$OUT"', "expect": f"fewer bytes are free than a save takes ({size['value']:,.0f})" if size else "less than a save needs is free", "matches": r"Avail.*\n\s*\d+ "},
            *_own(audit, checkpoint, "check", "the last save is incomplete or absent, the ones before are complete; exit code 0", "complete"),
            *_resumed(audit, "after space was made: the job resumes from the newest complete checkpoint"),
        ],
        "action": "Make room for at least two saves (not by deleting the newest complete checkpoint), then start again.",
        "owner": _owner(audit, "recovery.worst_boundary"),
        "times": [
            _time("bytes of a save", size["value"] if size else None, "B", "measured", size["how"] if size else "no save was seen"),
            _time("what a save takes when there is room", save["value"] if save else None, "s", "measured", save["how"] if save else "no save was timed"),
            *_restarting(audit),
        ],
    }  # fmt: skip


def _rollback(audit: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    every, step = planned_every(checkpoint), _figure(audit, "step_s")
    work = 2 * every * step["value"] if every and step else None
    released = _finding_time(audit, "release.rollback", "going back to the last released model")
    return {
        "id": "rollback", "title": "Going back", "symptom": "Alert RankproofLossNotFinite, or an evaluation that is worse than at the last checkpoint but one.",
        "steps": [
            *_own(audit, checkpoint, "rollback", "`set aside: ...`, then the list; a restart takes the one before; exit code 0", "set aside: "),
            *_resumed(audit, "the job resumes from the checkpoint before"),
        ],
        "action": "Find the step at which it went wrong in the metrics first; set aside until the newest checkpoint lies before it. What was set aside can be renamed back.",
        "owner": _owner(audit, "recovery.restore"),
        "times": [_time("work that is done again, at most", work, "s", "calculated", f"2 x {every} steps at the measured step time" if work else "cadence or step time is not known"), released, *_restarting(audit)],
    }  # fmt: skip


def _restarting(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What every way back costs: the restore, and the steps that are lost."""
    restart, checkpoint = _figure(audit, "restart_s"), audit["job"].get("checkpoint") or {}
    lost = next((item["finding"]["details"].get("lost_steps") for item in audit["criteria"] if item["id"] == "recovery.continuation"), None)
    bound = f", at most {checkpoint['every']} by the job's cadence" if checkpoint else ""
    return [
        _time("restart: from a rank's start to its first step", restart["high"] if restart else None, "s", "measured", restart["how"] + ", the longest" if restart else "no run was resumed"),
        _time("steps lost", lost, "steps", "measured", f"the kill of recovery.continuation{bound}"),
    ]  # fmt: skip


def _boundaries(audit: Mapping[str, Any]) -> dict[str, Any]:
    """The most that any kill inside a save has cost."""
    rows = [
        row
        for item in audit["criteria"]
        if item["id"] == "recovery.worst_boundary"
        for row in item["finding"]["details"].get("boundaries") or ()
    ]
    lost = [row["lost_steps"] for row in rows if row.get("lost_steps") is not None]
    how = f"the worst of {len(rows)} kills inside a save" if lost else "no save was interrupted"
    return _time("steps lost when the newest checkpoint is not whole", max(lost, default=None), "steps", "measured", how)


def _own(audit: Mapping[str, Any], checkpoint: Mapping[str, Any], key: str, expect: str, matches: str) -> list[dict[str, Any]]:
    """A command that the job itself has to bring along."""
    line = checkpoint.get(key)
    if not line:
        return [{"command": f"# the job has no such command: add [checkpoint] {key} to its job.toml", "expect": expect, "matches": ""}]
    command = _filled(line, audit["job"], 1, '"$OUT"')
    return [{"command": f"(cd {_folder(audit['job'])} && python {command})", "expect": expect, "matches": matches}]


def _finding_time(audit: Mapping[str, Any], id: str, what: str) -> dict[str, Any]:
    """A criterion's own number, where it passed and has one."""
    found = next((item["finding"] for item in audit["criteria"] if item["id"] == id and item["verdict"] == "passed"), None)
    if found is None or found["value"] is None:
        return _time(what, None, "", "", f"{id} gave no number")
    return _time(what, found["value"], found["unit"], found["provenance"], id)


def _time(what: str, value: float | None, unit: str, provenance: str, how: str) -> dict[str, Any]:
    return {"what": what, "value": value, "unit": unit, "provenance": provenance if value is not None else "not measured", "how": how}


def _figure(audit: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = audit["measured"]["figures"].get(name)
    return found


def _owner(audit: Mapping[str, Any], id: str) -> str:
    return str(next((item["owner"] for item in audit["criteria"] if item["id"] == id), audit["policy"]["decision_owner"]))


def _ranks(audit: Mapping[str, Any]) -> str:
    return f"{audit['world'].get('world_size', 'unknown')} ranks, {audit['world'].get('launcher', 'unknown')} launcher"


def _folder(job: Mapping[str, Any]) -> str:
    return shlex.quote(str(PurePosixPath(str(job.get("file") or "job.toml")).parent))


def _filled(template: str, job: Mapping[str, Any], ranks: int, out: str = "$OUT") -> str:
    """The template for a shell: inputs lie where the job has them, numbers are those of job.toml."""
    declared = job.get("declared") or {}
    known = {name: _filled(path, {**job, "declared": {}}, ranks, out) for name, path in (declared.get("inputs") or {}).items()}
    batch = int(job.get("global_batch") or 0)
    known |= {
        "out": out,
        "world_size": str(ranks),
        "global_batch": str(batch),
        "per_rank_batch": str(batch // ranks),
        "steps": str(job.get("steps")),
        "seed": str(job.get("seed")),
    }
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found.group(1), found.group(0)), template)

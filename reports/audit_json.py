"""`audit.json`: everything an audit concluded and rests on, as data. The page is a rendering of this and of nothing else.

    schema job identity environment world session policy
    decision   {verdict, reasons[], next_exposure, owner, blocking[]}
    coverage   {catalogue, passed, failed, inconclusive, not_applicable, waived, not_run}
    criteria   [{id, backend, version, claim, verdict, reason, finding{value, unit, bound, margin, ...}, twins[{fault, fired, rejected, ...}], twin{the one that decides}, verify, ...}]
    runs       {run_id: {spec, ended, sha256, digest}}
    measured   {figures: {name: {value, unit, low, high, samples, how, runs}}, architecture, devices {rows, cores, gpus, topology, not_measured}}
    economics  {rows, summary, reason}      observability  [{name, expr, threshold, ...}]      runbook  {start, entries}
    before     {before, after, rows, counts, notes} of `python -m reports page DIR --before EARLIER`; null without it

Keys are sorted, numbers are finite, and nothing tells the time of judging: the same evidence gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reports.alerts import alerts
from reports.decide import Decision
from reports.evidence import Evidence, Finding, Record, to_json
from reports.outlook import outlook
from reports.policy import Policy
from reports.runbook import runbook
from reports.verdicts import VERDICTS, Ruling, against

SCHEMA = "rankproof/audit/1"


def audit_json(evidence: Evidence, judged: Sequence[Ruling], decision: Decision, policy: Policy) -> dict[str, Any]:
    """The audit as JSON values."""
    meta = evidence.meta
    counts = {name: sum(ruling.verdict == name for ruling in judged) for name in VERDICTS}
    audit: dict[str, Any] = {
        "schema": SCHEMA,
        "job": meta.get("job") or {},
        "identity": meta.get("identity") or {},
        "environment": meta.get("environment") or {},
        "world": meta.get("world") or {},
        "session": meta.get("session") or {},
        "directory": meta.get("directory") or ".",
        "policy": _policy(policy, meta),
        "decision": asdict(decision),
        "coverage": {"catalogue": len(evidence.catalogue), **counts},
        "criteria": [_criterion(ruling, policy, str(meta.get("directory") or ".")) for ruling in judged],
        "runs": {run.run_id: _run(run.spec, run.ended, run.sha256) for run in evidence.runs.values()},
        "measured": {"figures": {}, "architecture": None, "devices": None, **(meta.get("measured") or {})},
    }
    audit["before"] = meta.get("before")
    audit["economics"] = outlook(audit, policy.economics)
    audit["observability"] = alerts(audit)
    audit["runbook"] = runbook(audit)
    return audit


def dumped(audit: Mapping[str, Any]) -> str:
    """The text of `audit.json`; the same audit always gives the same text."""
    return json.dumps(audit, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def run_digest(sha256: Mapping[str, str]) -> str:
    """One digest for all files of a run: sha256 over its "<hex>  <name>" lines, sorted by name, as `sha256sum` prints them."""
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(sha256.items())).encode()).hexdigest()


def _policy(policy: Policy, meta: Mapping[str, Any]) -> dict[str, Any]:
    targets = (meta.get("job") or {}).get("targets") or {}
    bounds = {name: {"value": value, "set_by": "policy"} for name, value in policy.bounds.items()}
    bounds |= {name: {"value": value, "set_by": "job"} for name, value in targets.items()}
    return {
        "sha256": policy.sha256, "critical": list(policy.critical), "max_age_days": policy.max_age_days, "ladder": list(policy.ladder),
        "decision_owner": policy.decision_owner, "owners": [list(pair) for pair in policy.owners], "bounds": bounds,
        "waivers": [asdict(waiver) for waiver in policy.waivers],
    }  # fmt: skip


def _criterion(ruling: Ruling, policy: Policy, directory: str) -> dict[str, Any]:
    entry, as_is = ruling.entry, ruling.as_is
    shown = as_is.finding if as_is else Finding(None, explanation=ruling.reason)
    return {
        "id": entry.id, "area": entry.id.split(".", 1)[0], "backend": entry.backend, "version": entry.version, "claim": entry.claim,
        "why": entry.why, "threshold": entry.threshold, "verdict": ruling.verdict, "beneath": ruling.beneath, "reason": ruling.reason,
        "critical": policy.is_critical(entry.id), "owner": policy.owner(entry.id), "needs": list(entry.needs), "timed": entry.timed,
        "finding": {**to_json(shown), "outcome": as_is.outcome if as_is else None},
        "twin": _deciding(ruling),
        "twins": [_twin(planted, record) for planted, record in zip(entry.twins, ruling.twins, strict=True)],
        "waiver": asdict(ruling.waiver) if ruling.waiver else None,
        "assumptions": list(entry.assumptions), "limitations": list(entry.limitations), "overturned_by": entry.overturned_by,
        "source": entry.source, "verify": f"python -m suite judge {shlex.quote(directory)} --criterion {entry.id}", "rerun": entry.rerun,
        "runs": sorted({run for record in (as_is, *ruling.twins) for run in _runs(record)}), "started_utc": as_is.started_utc if as_is else None,
        "duration_s": round(sum(record.duration_s for record in (as_is, *ruling.twins) if record), 3),
    }  # fmt: skip


def _deciding(ruling: Ruling) -> dict[str, Any]:
    """Of several twins the first that speaks against the claim, else the first."""
    pairs = list(zip(ruling.entry.twins, ruling.twins, strict=True))
    planted, record = next((pair for pair in pairs if against(*pair)), pairs[0] if pairs else ({}, None))
    return _twin(planted, record)


def _twin(planted: Mapping[str, Any], twin: Record | None) -> dict[str, Any]:
    """A counterexample: what was planted, whether it happened, and what the same check said of it."""
    because = planted.get("because") or ""
    shown: dict[str, Any] = {
        "fault": planted.get("fault"), "words": planted.get("words") or "", "because": because, "outcome": None, "fired": None,
        "rejected": None, "as_foretold": None, "explanation": "It was not run.", "value": None, "unit": "", "runs": [],
    }  # fmt: skip
    if twin is None:
        return shown
    return shown | {
        "outcome": twin.outcome, "fired": bool(twin.fired), "rejected": twin.outcome == "rejected",
        "as_foretold": bool(re.search(because, twin.finding.explanation)), "explanation": twin.finding.explanation,
        "value": to_json(twin.finding)["value"], "unit": twin.finding.unit, "runs": list(twin.runs),
    }  # fmt: skip


def _runs(record: Record | None) -> tuple[str, ...]:
    return record.runs if record else ()


def _run(spec: Mapping[str, Any], ended: Mapping[str, Any], sha256: Mapping[str, str]) -> dict[str, Any]:
    return {"spec": spec, "ended": ended, "sha256": sha256, "digest": run_digest(sha256)}

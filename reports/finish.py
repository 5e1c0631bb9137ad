"""From evidence to decision to files: what is called when an audit ends, and whenever its page is written again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reports.alerts import rules_text
from reports.audit_json import audit_json, dumped
from reports.decide import Decision, load_policy, rule
from reports.evidence import load, set_meta
from reports.policy import check_waivers
from reports.runbook import rendered
from reports.seal import seal
from reports.verdicts import rulings


def finish(audit_dir: Path, policy_path: Path | None = None, now: datetime | None = None) -> Decision:
    """Decide on the evidence in `audit_dir` and write audit.json, audit.html, RUNBOOK.md and alerts.yml, each whole or not at all.

    now: the time of judging, by default the present; it matters only to whether evidence is stale and waivers have expired.
    Raises EvidenceError and PolicyError, each one sentence; the files are then left as they were.
    """
    from reports.page import render_page

    evidence, policy, moment = load(audit_dir), load_policy(policy_path), now or datetime.now(UTC)
    check_waivers(policy, evidence.catalogue, moment)
    judged = rulings(evidence, policy.waivers)
    decision = rule(evidence, judged, policy, moment)
    audit = audit_json(evidence, judged, decision, policy)
    text = dumped(audit)
    page = render_page(audit, text)
    _write_whole(audit_dir / "audit.json", text)
    _write_whole(audit_dir / "audit.html", page)
    set_meta(audit_dir, "decision", {"verdict": decision.verdict, "owner": decision.owner, "policy_sha256": policy.sha256})
    write_runbook(audit_dir, audit)
    seal(audit_dir)
    return decision


def write_runbook(audit_dir: Path, audit: Mapping[str, Any]) -> Path:
    """RUNBOOK.md and, beside it, the alert rules that lead to it."""
    _write_whole(audit_dir / "alerts.yml", rules_text(audit["observability"], str(audit["job"].get("name") or "job")))
    _write_whole(audit_dir / "RUNBOOK.md", rendered(audit))
    return audit_dir / "RUNBOOK.md"


def _write_whole(path: Path, text: str) -> None:
    """Write beside `path`, sync, rename: a reader sees the old file or the new one, whatever happens in between."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

"""Whether an audit is still what it was: every trace file is hashed again and held against its run, and everything else against the seal."""

from __future__ import annotations

from pathlib import Path

from reports.evidence import load, trace_hashes
from reports.seal import broken, compared


def differences(audit_dir: Path) -> tuple[list[str], int]:
    """One line per file that is changed, missing or extra, and per unknown run; and how many files were looked at.

    Raises EvidenceError where the evidence cannot be read.
    """
    runs, traces = load(audit_dir).runs, audit_dir / "traces"
    found: list[str] = []
    files = 0
    for run_id, run in sorted(runs.items()):
        now = trace_hashes(audit_dir, run_id)
        files += len(now)
        found += compared(run.sha256, now, "it is not in the evidence", f"traces/{run_id}/")
    known = set(runs)
    for folder in sorted(traces.iterdir()) if traces.is_dir() else []:
        if folder.name not in known:
            found.append(f"traces/{folder.name}: extra, no run of this name is in the evidence")
    return [*broken(audit_dir), *found], files

"""Whether the traces on disk are those that were judged: every file of every run is hashed again and held against the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reports.evidence import file_hashes, load


def differences(audit_dir: Path) -> tuple[list[str], int]:
    """One line per file that is changed, missing or extra, and per unknown run; and how many files were looked at.

    Raises EvidenceError where the evidence cannot be read.
    """
    runs, traces = load(audit_dir).runs, audit_dir / "traces"
    found: list[str] = []
    files = 0
    for run_id, run in sorted(runs.items()):
        now = file_hashes(traces / run_id) if (traces / run_id).is_dir() else {}
        files += len(now)
        found += _of_run(f"traces/{run_id}", run.sha256, now)
    known = set(runs)
    for folder in sorted(traces.iterdir()) if traces.is_dir() else []:
        if folder.name not in known:
            found.append(f"traces/{folder.name}: extra, no run of this name is in the evidence")
    return found, files


def _of_run(folder: str, judged: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*judged, *now}):
        if name not in now:
            yield f"{folder}/{name}: missing"
        elif name not in judged:
            yield f"{folder}/{name}: extra, it is not in the evidence"
        elif now[name] != judged[name]:
            yield f"{folder}/{name}: changed, sha256 is {now[name][:12]}… but {judged[name][:12]}… was judged"

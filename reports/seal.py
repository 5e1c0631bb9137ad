"""The seal of an audit: digests of its evidence and of every file that is rendered from it or kept beside it, taken when the page is written.

A digest per trace file shows that what was judged is still what lies there; the seal shows the same of what was concluded: a record edited in the database, a figure
in the page, a line in the runbook. It is no signature: whoever can rewrite the evidence can seal it again. What a forger cannot do is make `python -m suite judge`
come to his verdict from traces whose digests hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.evidence import SEAL, content_digest, file_hashes, load, set_meta

# Traces and the database have digests of their own, scratch is the runs' own output, benchmarks come when they come.
UNSEALED = frozenset({"traces", "scratch", "evidence.sqlite", "evidence.sqlite-journal", "benchmarks.json", ".lock"})


def seal(audit_dir: Path) -> None:
    """Store the digests of everything but the traces, whose own digests the runs carry. Nothing may be written after it."""
    set_meta(audit_dir, SEAL, {"files": _files(audit_dir), "evidence": content_digest(audit_dir)})


def broken(audit_dir: Path) -> Iterator[str]:
    """One line for everything that is not what was sealed; nothing for an audit whose page was never written. Raises EvidenceError."""
    sealed: Mapping[str, Any] | None = load(audit_dir).meta.get(SEAL)
    if sealed is None:
        return
    if content_digest(audit_dir) != sealed["evidence"]:
        yield "evidence.sqlite: changed since the page was written; `python -m suite judge` says what the traces give"
    yield from compared(sealed["files"], _files(audit_dir), "it was not there when the page was written")


def compared(before: Mapping[str, str], now: Mapping[str, str], extra: str, folder: str = "") -> Iterator[str]:
    """One line per file that is missing, extra or changed. before, now: file name -> sha256; extra: what is said of a file that was not there before."""
    for name in sorted({*before, *now}):
        if name not in now:
            yield f"{folder}{name}: missing"
        elif name not in before:
            yield f"{folder}{name}: extra, {extra}"
        elif now[name] != before[name]:
            yield f"{folder}{name}: changed, sha256 is {now[name][:12]}… but was {before[name][:12]}…"


def _files(audit_dir: Path) -> dict[str, str]:
    return file_hashes(audit_dir, skip=UNSEALED)

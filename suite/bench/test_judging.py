"""How fast stored traces are judged, and how fast a page is made of evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures.audit import RunSpec
from fixtures.runs import RunRoom, obtain
from fixtures.trace import load_trace
from reports.evidence import Finding
from reports.finish import finish
from suite.efficiency.work import same_work
from suite.selftest.fabricated import fabricate

pytestmark = pytest.mark.bench


def test_judge(benchmark: Any, room: RunRoom) -> None:
    """Two traces of the flights job, loaded from disk and judged: every sample of every step is looked at."""
    folders = [
        obtain(room, RunSpec(world_size=ranks, backend="gloo", launcher="warm", steps=room.job.steps, seed=room.job.seed))
        for ranks in (1, 2)
    ]

    def judge() -> Finding:
        alone, together = map(load_trace, folders)
        return same_work(alone, [together])

    finding: Finding = benchmark.pedantic(judge, rounds=20, warmup_rounds=2)
    assert finding.accepted is True, finding.explanation
    if benchmark.enabled:
        benchmark.extra_info["traces_per_s"] = len(folders) / benchmark.stats["median"]
        benchmark.extra_info["said"] = f"judged {benchmark.extra_info['traces_per_s']:.0f} traces per second"


def test_page(benchmark: Any, tmp_path: Path) -> None:
    """Evidence to decision to audit.json and audit.html, with one of every verdict and every chart."""
    folder = fabricate(tmp_path / "audit")
    decision = benchmark.pedantic(finish, args=(folder,), rounds=8, warmup_rounds=1)
    assert decision.verdict == "reject"
    assert (folder / "audit.html").stat().st_size > 10_000

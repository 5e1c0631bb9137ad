"""What each rank used: recorded by the rank and from outside, brought together by world size, shown on the page; what nobody measured is never 0."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures.audit import RunSpec
from fixtures.devices import sampled
from fixtures.job import load_job
from fixtures.measure import measure
from fixtures.plugin import ROOT
from fixtures.runs import RunRoom, obtain
from fixtures.session import job_facts
from fixtures.trace import Trace, load_trace
from fixtures.usage import usage_of
from fixtures.world import open_launcher
from reports import evidence
from reports.device_use import DeviceUse, device_use
from reports.finish import finish
from reports.plot_svg import StyleSheet
from suite.selftest.criterion_runs import JOBS
from suite.selftest.fabricated import devices, fabricate
from suite.selftest.synthetic import SECOND_NS, write_trace
from suite.selftest.test_devices import FakeNvml

NOW = datetime(2026, 8, 22, tzinfo=UTC)


def used(rank: int, **more: Any) -> dict[str, Any]:
    return {"kind": "usage", "rank": rank, "cpu_s": 3.0, "children_cpu_s": 0.5, "peak_resident_bytes": 900, "t_ns": 7 * SECOND_NS, **more}


def a_run(folder: Path, *, ranks: int = 2, name: str = "a", nvml: Any = None, **more: Any) -> Trace:
    """A stored run of a few steps whose ranks wrote what they used; sampled with these GPUs, if any."""
    spec = {"backend": "gloo", "run_id": name}
    write_trace(folder / name, ranks=ranks, spec=spec, extra=[used(rank, **more) for rank in range(ranks)])
    with sampled(folder / name, ranks=ranks, visible=None if nvml else "", interval_s=0.01, nvml=nvml):
        pass
    return load_trace(folder / name)


def test_a_ranks_own_record_is_a_share_of_a_core_and_a_peak(tmp_path: Path) -> None:
    found = usage_of([a_run(tmp_path, ranks=1), a_run(tmp_path, name="b"), a_run(tmp_path, name="c", peak_resident_bytes=1200)])

    assert found is not None
    assert [(row["world_size"], row["rank"], row["runs"]) for row in found["rows"]] == [(1, 0, 1), (2, 0, 2), (2, 1, 2)]
    assert found["rows"][1]["cpu_share"] == {"value": 0.5, "low": 0.5, "high": 0.5}, "3.5 s of a life of 7 s"
    assert (found["rows"][0]["peak_resident_bytes"], found["rows"][1]["peak_resident_bytes"]) == (900, 1200)
    assert found["rows"][0]["grown_bytes"] is None, "what it held at its beginning was not recorded"
    assert found["rows"][0]["gpu"] is None
    assert found["not_measured"]
    assert usage_of([]) is None


def test_a_rank_that_left_no_record_is_not_measured(tmp_path: Path) -> None:
    write_trace(tmp_path / "a", spec={"backend": "gloo"})
    found = usage_of([load_trace(tmp_path / "a")])

    assert found is not None
    assert {name: found["rows"][0][name] for name in ("cpu_share", "peak_resident_bytes", "grown_bytes")} == {
        "cpu_share": None, "peak_resident_bytes": None, "grown_bytes": None,
    }  # fmt: skip
    assert found["not_measured"] == "no devices.jsonl was written"
    shown = view(found)
    assert shown.rows[0][3:] == ("not measured",) * 3


def test_with_a_driver_each_rank_has_its_gpu(tmp_path: Path) -> None:
    found = usage_of([a_run(tmp_path, nvml=FakeNvml(), peak_allocated_bytes=5_000_000)])

    assert found is not None
    gpu = found["rows"][1]["gpu"]
    assert (gpu["index"], found["rows"][1]["peak_allocated_bytes"]) == (1, 5_000_000)
    assert all(gpu[name] is not None for name in ("utilisation_percent", "memory_used_bytes", "power_w", "sm_clock_mhz", "throttled"))
    assert len(found["topology"]) == 2
    assert json.loads(json.dumps(found)) == found


def test_real_ranks_tell_what_they_used_at_each_world_size(tmp_path: Path) -> None:
    """An audit's figures come from its stored traces alone, and are the same when they are taken again."""
    job = load_job(JOBS / "toy" / "job.toml")
    evidence.create(tmp_path)
    evidence.set_meta(tmp_path, "job", job_facts(job, ROOT))
    evidence.set_meta(tmp_path, "world", {"world_size": 2, "world_sizes": [1, 2], "launcher": "warm", "backends": ["gloo"]})
    with open_launcher() as launcher:

        def keep(run_id: str, spec: Any, ended: Any, sha256: Any) -> None:
            evidence.write_run(tmp_path, run_id=run_id, spec=spec, ended=ended, sha256=sha256)

        room = RunRoom(job, tmp_path, lambda: launcher, lambda *_: None, keep)
        for ranks in (1, 2):
            obtain(room, RunSpec(world_size=ranks, backend="gloo", launcher="warm", steps=6, seed=0, level="timing", timed=True))
    first, again = measure(tmp_path)["devices"], measure(tmp_path)["devices"]

    assert first == again
    assert [(row["world_size"], row["rank"]) for row in first["rows"]] == [(1, 0), (2, 0), (2, 1)]
    for row in first["rows"]:
        assert 0 < row["cpu_share"]["value"] <= 4
        assert row["peak_resident_bytes"] > row["grown_bytes"] > 0
        assert row["peak_allocated_bytes"] is None
    finish(tmp_path, None, NOW)
    written = (tmp_path / "audit.html").read_bytes()
    finish(tmp_path, None, NOW)
    assert (tmp_path / "audit.html").read_bytes() == written


def view(found: dict[str, Any]) -> DeviceUse:
    shown = device_use(found, StyleSheet())
    assert shown is not None
    return shown


def test_without_a_driver_the_page_says_why_and_shows_no_number(tmp_path: Path) -> None:
    finish(fabricate(tmp_path), None, NOW)
    page, stored = (tmp_path / "audit.html").read_text(), json.loads((tmp_path / "audit.json").read_text())

    assert "throttle reasons and topology: not measured (no NVIDIA driver: NVML Shared Library Not Found)." in page
    assert "GPU busy" not in page
    assert "93% (90% to 97%)" in page
    assert "512 MB" in page
    assert stored["measured"]["devices"]["rows"][0]["gpu"] is None


def test_with_a_driver_the_table_has_every_measure_and_the_chart_its_words() -> None:
    shown = view(devices(gpu=True))

    assert shown.rows[1][6:] == (0, "87%", "21 GB", "19 GB", "512 W", "1755 MHz", "power cap 25%")
    assert shown.rows[2][6:] == (1, "87%", "21 GB", "19 GB", "not measured", "1755 MHz", "not measured")
    assert shown.topology == (("", "GPU 0", "GPU 1"), (("GPU 0", "same", "NODE"), ("GPU 1", "NODE", "same")))
    assert "0 H100 (80 GB, limit 700 W, 18 NVLinks)" in shown.sentences[1]
    assert "2 · rank 1: CPU, of one core 93%, peak memory 522 MB, GPU busy 87%, GPU memory 21 GB" in shown.chart.words
    assert shown.chart.words in shown.chart.svg


@pytest.mark.parametrize("found", [None, {"rows": []}])
def test_an_audit_without_a_healthy_run_has_nothing_to_show(found: Any) -> None:
    assert device_use(found, StyleSheet()) is None

"""The alert rules of an audit, evaluated on the metrics of stored runs: each fires on its fault, and all are silent where the job is well."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fixtures.audit import Audit
from fixtures.criterion import criterion_of
from fixtures.faults import Fault
from fixtures.job import Job, load_job
from fixtures.measure import measure
from fixtures.metrics import FAMILIES
from fixtures.plugin import ROOT
from fixtures.runs import RunRoom, obtain
from fixtures.session import job_facts
from fixtures.world import Launcher, open_launcher
from reports import evidence
from reports.finish import finish
from suite.__main__ import main
from suite.selftest.criterion_runs import JOBS
from suite.stragglers.test_slow_rank import test_slow_rank as slow_rank

STEPS = 22  # two of warm-up, and the twenty over which the metrics are taken
HEALTHY_RUNS = 3
WORLD = {"world_size": 2, "world_sizes": [1, 2], "launcher": "warm", "backends": ["gloo"]}


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as opened:
        yield opened


@pytest.fixture(scope="module")
def audit(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, Path]:
    """An audit of the toy job that holds three healthy timed runs, and its folder."""
    folder, job = tmp_path_factory.mktemp("audit"), load_job(JOBS / "toy" / "job.toml")
    evidence.create(folder)
    for key, value in (("job", job_facts(job, ROOT)), ("world", WORLD)):
        evidence.set_meta(folder, key, value)
    made = audit_of(launcher, folder, job)
    for repeat in range(HEALTHY_RUNS):
        made.run(world_size=2, steps=STEPS, level="timing", timed=True, repeat=repeat)
    measure(folder)
    finish(folder, None, datetime(2026, 8, 22, tzinfo=UTC))
    return made, folder


def audit_of(launcher: Launcher, folder: Path, job: Job) -> Audit:
    declared = criterion_of(slow_rank)
    assert declared is not None

    def keep(run_id: str, spec: Any, ended: Any, sha256: Any) -> None:
        evidence.write_run(folder, run_id=run_id, spec=spec, ended=ended, sha256=sha256)

    room = RunRoom(job, folder, lambda: launcher, lambda run_id, step, steps: None, keep)
    return Audit(job, declared, "as_is", "gloo", "warm", 2, {"cores": 2}, {}, partial(obtain, room))


def rules(folder: Path) -> dict[str, tuple[str, float]]:
    """Alert -> metric and threshold, as alerts.yml has them; every rule is of the form `metric > number`."""
    found = re.findall(r"- alert: (\w+)\n +expr: (\w+) > (\S+)\n", (folder / "alerts.yml").read_text())
    assert len(found) == (folder / "alerts.yml").read_text().count("alert:")
    return {name: (metric, float(threshold)) for name, metric, threshold in found}


def metrics_of(run: Path) -> str:
    """What `python -m suite metrics RUN` prints, without the seconds that a process of its own takes to begin."""
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["metrics", str(run)]) == 0
    return printed.getvalue()


def fired(folder: Path, run: Path) -> set[str]:
    """The alerts that Prometheus would raise on this run's metrics: any series over the threshold (NaN never is)."""
    values: dict[str, list[float]] = {}
    for line in metrics_of(run).splitlines():
        if not line.startswith("#"):
            name, value = re.split(r"\{.*\} | ", line)
            values.setdefault(name, []).append(float(value))
    return {
        alert.removeprefix("Rankproof")
        for alert, (metric, limit) in rules(folder).items()
        if any(one > limit for one in values.get(metric, ()))
    }


def test_every_rule_watches_a_metric_that_there_is(audit: tuple[Audit, Path]) -> None:
    found = rules(audit[1])

    names = {"RankLost", "WorldSilent", "RankLate", "StepSlow", "InputSlow", "LossNotFinite", "CheckpointOverdue"}
    assert {name.removeprefix("Rankproof") for name in found} == names
    assert {metric for metric, _ in found.values()} <= set(FAMILIES)


def test_all_are_silent_on_healthy_runs(audit: tuple[Audit, Path]) -> None:
    _, folder = audit
    healthy = sorted((folder / "traces").iterdir())[:HEALTHY_RUNS]
    timed = [run for run in healthy if '"timed": true' in (run / "spec.json").read_text()]

    assert timed
    assert [(run.name, fired(folder, run)) for run in timed if fired(folder, run)] == []


FIRES_ON = {
    "RankLost": Fault("kill", rank=1, step=10),
    "RankLate": Fault("sleep", rank=1, ms=200, where="backward"),
    "StepSlow": Fault("sleep", ms=200, where="forward"),
    "InputSlow": Fault("sleep", ms=200, where="data"),
    "LossNotFinite": Fault("damage_batch", rank=1, step=15, how="nan"),
}
HAS_A_TEST_OF_ITS_OWN = {
    "WorldSilent",
    "CheckpointOverdue",
}  # below: the one needs a world that is left standing, the other a job that saves astray


def test_every_alert_is_made_to_fire_here_and_leads_to_an_entry_of_the_runbook(audit: tuple[Audit, Path]) -> None:
    _, folder = audit
    leads = set(re.findall(r'runbook: "RUNBOOK.md#(.+)"', (folder / "alerts.yml").read_text()))

    assert {name.removeprefix("Rankproof") for name in rules(folder)} == set(FIRES_ON) | HAS_A_TEST_OF_ITS_OWN
    assert leads <= set(re.findall(r'<a id="(.+)"></a>', (folder / "RUNBOOK.md").read_text()))


def test_the_command_itself_prints_openmetrics(audit: tuple[Audit, Path]) -> None:
    """In a process of its own, as a node exporter's timer would start it: the text that the tests here read, line by line of the format's grammar."""
    run = sorted((audit[1] / "traces").iterdir())[0]
    done = subprocess.run(
        [sys.executable, "-m", "suite", "metrics", str(run)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    sample = r'\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? (NaN|[+-]Inf|-?[0-9.e+-]+)'

    assert done.stdout == metrics_of(run)
    assert done.stdout.endswith("# EOF\n")
    for line in done.stdout.splitlines()[:-1]:
        assert re.fullmatch(rf"# (TYPE|UNIT|HELP) \w+ .+|{sample}", line), line


@pytest.mark.parametrize(("alert", "fault"), FIRES_ON.items(), ids=FIRES_ON)
def test_each_fires_on_its_fault(audit: tuple[Audit, Path], alert: str, fault: Fault) -> None:
    made, folder = audit
    trace = made.run(world_size=2, steps=STEPS, level="timing", faults=(fault,))

    assert trace.fired(fault.kind)
    assert alert in fired(folder, trace.folder)


def test_silence_fires_where_a_rank_hangs(audit: tuple[Audit, Path]) -> None:
    made, folder = audit
    limit_s = rules(folder)["RankproofWorldSilent"][1]
    trace = made.run(world_size=2, steps=STEPS, level="timing", faults=(Fault("hang", rank=1, step=10),), stall_s=limit_s + 1.0)

    assert fired(folder, trace.folder) >= {"WorldSilent"}
    assert "RankLost" not in fired(folder, trace.folder), "the ranks were alive until they were taken down"


def test_a_checkpoint_that_does_not_come_is_overdue(audit: tuple[Audit, Path], launcher: Launcher, tmp_path: Path) -> None:
    """The job saves elsewhere than where its checkpoints are looked for, so none is ever published there."""
    job = audit[0].job
    assert job.checkpoint is not None
    astray = replace(job, checkpoint=replace(job.checkpoint, directory="{out}/elsewhere"))
    evidence.create(tmp_path)
    trace = audit_of(launcher, tmp_path, astray).run(world_size=2, steps=STEPS, level="timing")

    assert not trace.crashed
    assert fired(audit[1], trace.folder) >= {"CheckpointOverdue"}


def test_without_measurements_only_the_rules_that_need_none_are_there(tmp_path: Path) -> None:
    """A threshold is never guessed."""
    evidence.create(tmp_path)
    finish(tmp_path, None, datetime(2026, 8, 22, tzinfo=UTC))

    assert set(rules(tmp_path)) == {"RankproofRankLost", "RankproofLossNotFinite"}

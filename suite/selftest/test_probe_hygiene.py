"""The probe leaves no mark: same losses, parameters, draws, output, exit code and traceback with it and without it, and loads nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.world import open_launcher
from suite.selftest.probe_runs import ProbeRuns, exit_codes, raw

PROBE = Path(__file__).resolve().parents[2] / "fixtures" / "probe"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("hygiene"))


@pytest.mark.parametrize(
    "arguments", [("--accumulate", "2"), ("--workers", "2"), ("--pickle-model",)], ids=["accumulation", "workers", "pickled model"]
)
def test_training_is_the_same_bit_for_bit_at_every_level(runs: ProbeRuns, arguments: tuple[str, ...]) -> None:
    expected = runs.start("ddp", *arguments, probe=False)
    assert exit_codes(expected) == [0, 0]
    assert "parameters 0x" in expected.logs[0]
    for level in ("timing", "default", "full"):
        ran = runs.start("ddp", *arguments, level=level, watch=str(runs.folder))
        assert ran.logs == expected.logs, f"output at level {level} differs; see {ran.folder} and {expected.folder}"
        assert exit_codes(ran) == [0, 0]
        assert ran.trace.errors() == []
        assert ran.trace.notes == ()


def test_an_exception_ends_the_job_as_before(runs: ProbeRuns) -> None:
    arguments = ("--crash-at", "2", "--workers", "1")
    expected, ran = (runs.start("ddp", *arguments, ranks=1, probe=probe) for probe in (False, True))
    assert exit_codes(expected) == exit_codes(ran) == [1]
    assert ran.logs == expected.logs
    assert "planned crash" in ran.logs[0]
    assert raw(ran, 0)[-1]["kind"] == "exit"
    assert raw(ran, 0)[-1]["reason"] == "RuntimeError: planned crash in step 2"


def test_a_pickled_model_loads_without_the_probe(runs: ProbeRuns) -> None:
    ran = runs.start("ddp", "--pickle-model")
    code = (
        "import sys, torch; m = torch.load(sys.argv[1], weights_only=False); m.train();"
        "print(m(torch.ones(2, 12)).shape, any('rankproof' in n for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ran.out / "model.pt")], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split("\n")[0] == "torch.Size([2, 3]) False", done.stderr


def test_programs_and_forks_of_a_rank_are_not_the_rank(runs: ProbeRuns) -> None:
    ran = runs.start("loops", "--kind", "children", ranks=1)
    assert exit_codes(ran) == [0]
    assert ran.logs[0].count("loss") == 6, "the program that the rank started was to train as well"
    assert list(ran.trace.steps["step"]) == [1, 2, 3]
    assert [record["kind"] for record in raw(ran, 0)].count("meta") == 1


def test_nothing_of_the_job_is_hidden(tmp_path: Path) -> None:
    """A job with its own sitecustomize, fixtures and record modules finds these, and sys.path is as it would be."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = 'ran'\n")
    for name in ("fixtures", "record", "steps"):
        (tmp_path / f"{name}.py").write_text(f"WHO = 'the job, {name}'\n")
    (tmp_path / "train.py").write_text(
        "import os, sys, fixtures, record, steps\n"
        "print(os.environ.get('THEIRS'), fixtures.WHO, record.WHO, steps.WHO, [p for p in sys.path if 'probe' in p])\n"
        "print('torch' in sys.modules)\nsys.exit(3)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{PROBE / 'site'}{os.pathsep}{theirs}",
        "RANKPROOF_TRACE": str(tmp_path / "run"),
        "RANKPROOF_WATCH": str(tmp_path),
        "RANK": "0",
    }
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "ran the job, fixtures the job, record the job, steps []\nFalse\n"
    assert done.stderr == ""
    kinds = (tmp_path / "run" / "rank0.jsonl").read_text()
    assert '"signal":"steps","reason":"the process never imported torch"' in kinds


def test_without_a_rank_or_a_folder_nothing_is_written(tmp_path: Path) -> None:
    for environment in ({"RANKPROOF_TRACE": str(tmp_path / "run")}, {"RANK": "0"}):
        variables = {name: value for name, value in os.environ.items() if name != "RANK"}
        done = subprocess.run(
            [sys.executable, "-c", "print('done')"],
            env={**variables, "PYTHONPATH": str(PROBE / "site"), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout == "done\n"
        assert done.stderr == ""
    assert not (tmp_path / "run").exists()


def test_an_error_inside_the_probe_does_not_reach_the_job(runs: ProbeRuns) -> None:
    """A fault whose parameter is broken makes the probe fail in the middle of a step: the job trains on and the trace says so."""
    expected = runs.start("loops", "--kind", "by_hand", probe=False)
    broken = '[{"kind": "scale_gradient", "factor": "much", "rank": 0}]'
    ran = runs.start("loops", "--kind", "by_hand", FAULTS=broken)
    assert exit_codes(ran) == [0, 0]
    assert ran.logs == expected.logs
    assert any("TypeError" in error for error in ran.trace.errors()), f"no error of the probe in {ran.folder}"


def test_a_rank_started_cold_leaves_the_trace_of_a_warm_one(runs: ProbeRuns) -> None:
    warm = runs.start("ddp", ranks=1, level="full")
    cold = runs.start("ddp", ranks=1, level="full", launcher="torchrun")
    assert exit_codes(cold) == [0]
    same = [
        "step",
        "loss",
        "grad_norm",
        "param_digest",
        "grad_digest",
        "optimizer_digest",
        "buffer_digest",
        "rng",
        "micro_batches",
        "skipped",
    ]
    assert cold.trace.steps[same].equals(warm.trace.steps[same])
    assert list(cold.trace.samples["sample"]) == list(warm.trace.samples["sample"])
    assert list(cold.trace.collectives["op"]) == list(warm.trace.collectives["op"])
    assert cold.trace.start(0)["rng"] == warm.trace.start(0)["rng"]

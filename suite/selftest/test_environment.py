"""The environment record is complete, plain JSON, and never a reason to fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.environment import environment, git_identity

ROOT = Path(__file__).resolve().parents[2]


def test_it_says_what_times_depend_on() -> None:
    seen = environment()
    assert json.loads(json.dumps(seen)) == seen
    assert seen["cores"] == len(os.sched_getaffinity(0))
    assert seen["memory_gib"] > 0
    assert seen["cpu"]
    assert seen["clock_source"]
    assert seen["host_name"]
    assert seen["platform"]
    assert seen["python"] == ".".join(map(str, sys.version_info[:3]))
    assert all(seen[name] for name in ("torch", "numpy", "pandas", "pytest"))
    assert seen["gpus"] == len(seen["gpu_names"])


def test_it_needs_no_torch_and_says_nothing() -> None:
    code = "import sys; from fixtures.environment import environment; environment(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_without_the_module_that_asks_the_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (environment()["gpus"], environment()["gpu_names"]) == (0, [])


def test_variables_that_change_results_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("UNRELATED", "1")
    assert environment()["variables"]["NCCL_ALGO"] == "Ring"
    assert "UNRELATED" not in environment()["variables"]


def test_a_checkout_has_a_commit_and_says_when_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
    }.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "a@b")
    assert git_identity(tmp_path) == {"commit": None, "dirty": None}
    (tmp_path / "a.py").write_text("1")
    for words in (["init", "-q"], ["add", "a.py"], ["commit", "-qm", "a"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, timeout=30)
    clean = git_identity(tmp_path)
    assert (len(str(clean["commit"])), clean["dirty"]) == (40, False)
    (tmp_path / "a.py").write_text("2")
    assert git_identity(tmp_path) == {"commit": clean["commit"], "dirty": True}


def test_without_git_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_identity(ROOT) == {"commit": None, "dirty": None}

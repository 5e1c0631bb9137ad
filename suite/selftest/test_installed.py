"""The wheel, built and installed: one package and one command on anybody's path, the audit of a ten-line job.toml from another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fixtures.environment import git_identity
from fixtures.installed import STAMP, bundle, digest, stamped
from fixtures.plugin import ROOT

pytest.importorskip("setuptools", reason='setuptools is not installed: pip install -e ".[dev]"')

TOY = ROOT / "suite" / "selftest" / "jobs" / "toy"
DEADLINE_S = 120.0
JOB = """\
[job]
name = "elsewhere"
command = "train.py --batch {per_rank_batch} --steps {steps} --seed {seed} --out {out}"
global_batch = 32
steps = 20
[checkpoint]
every = 5
resume = "--resume"
directory = "{out}/checkpoints"
"""


def run(*words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))} | variables
    return subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it, from a copy, since setuptools leaves its build folders behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in (
        *bundle(ROOT),
        "README.md",
        "LICENSE",
        "setup.py",
        *(f"rankproof/{one.name}" for one in (ROOT / "rankproof").glob("*.py")),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / STAMP).write_text(json.dumps({"commit": "c0ffee" * 6 + "c0ff", "dirty": False, "sha256": digest(folder)}))
    built = run(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('dist')", cwd=folder)
    assert built.returncode == 0, built.stderr[-2000:]
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment: the wheel, and the libraries of this environment beneath it."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder).returncode == 0
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    (site / "beneath.pth").write_text(sysconfig.get_path("purelib") + "\n")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job in a folder that has a fixtures/, a suite/, a reports/, a conftest.py and pytest settings of its own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "job.toml").write_text(JOB)
    shutil.copyfile(TOY / "train.py", folder / "train.py")
    for name in ("fixtures", "suite", "reports", "workloads"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('the job's own package was imported')")
    (folder / "conftest.py").write_text("raise SystemExit('the conftest of the job was imported')")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    return folder


def test_the_wheel_puts_one_name_on_the_path(wheel: Path) -> None:
    """`import fixtures` in anybody's environment must not find ours."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = next(name for name in names if name.endswith("/top_level.txt"))
        assert packed.read(metadata).decode().split() == ["rankproof"]
        recorded = packed.read(metadata.replace("top_level.txt", "RECORD")).decode().splitlines()
        assert "pytest11" not in packed.read(metadata.replace("top_level.txt", "entry_points.txt")).decode()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"rankproof", metadata.split("/")[0]}
    assert {line.split("/")[0] for line in recorded} == tops
    assert {f"rankproof/rooms/{name}" for name in bundle(ROOT)} <= set(names)
    assert "rankproof/rooms/__init__.py" not in names


def test_the_wheel_knows_its_commit_and_whether_it_was_touched(python: Path, tmp_path: Path) -> None:
    """Without git, and inside of somebody else's checkout, the identity is that of the build; an edited file makes it dirty."""
    rooms = next(python.parents[1].glob("lib/python*/site-packages/rankproof/rooms"))
    assert git_identity(rooms) == {"commit": "c0ffee" * 6 + "c0ff", "dirty": False}
    shutil.copytree(rooms, tmp_path / "rooms")
    with (tmp_path / "rooms" / "reports" / "policy.toml").open("a") as policy:
        policy.write("# a bound was relaxed\n")
    assert stamped(tmp_path / "rooms") == {"commit": "c0ffee" * 6 + "c0ff", "dirty": True}


def test_every_verb_explains_itself(python: Path, elsewhere: Path) -> None:
    usage = run(python, "-m", "rankproof", cwd=elsewhere)
    verbs = [line.split()[0] for line in usage.stdout.splitlines() if line.startswith("  ")]
    assert {"audit", "judge", "watch", "metrics", "page", "verify", "explain", "compare", "runbook"} <= set(verbs)
    for verb in verbs:
        said = run(python, "-m", "rankproof", verb, "--help", cwd=elsewhere)
        assert said.returncode == 0, said.stderr
        assert "usage: rankproof" in said.stdout
    wrong = run(python, "-m", "rankproof", "adit", cwd=elsewhere)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'adit' is no verb of rankproof" in wrong.stderr


def test_a_ten_line_job_is_audited_from_another_folder(python: Path, elsewhere: Path) -> None:
    """The session, its page and its re-judging; nothing is written but the audit, and the job sees none of our names."""
    before = {path.name for path in elsewhere.iterdir()}
    words = ("audit", "job.toml", "-m", "cpu", "--world-size", "2", "-k", "ranks_agree", "--audit-dir", "found")
    done = run(python, "-m", "rankproof", *words, cwd=elsewhere, PYTEST_ADDOPTS="--no-such-option")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2:] == [f"page: {elsewhere / 'found' / 'audit.html'}", "decision: hold"]
    assert {path.name for path in elsewhere.iterdir()} == {*before, "found"}
    audit = json.loads((elsewhere / "found" / "audit.json").read_text())
    assert (audit["identity"]["suite_commit"], audit["identity"]["suite_dirty"]) == ("c0ffee" * 6 + "c0ff", False)
    page = (elsewhere / "found" / "audit.html").read_text()
    assert "rankproof judge " in page
    assert "python -m suite" not in page + (elsewhere / "found" / "RUNBOOK.md").read_text()
    again = run(python, "-m", "rankproof", "judge", "found", cwd=elsewhere)
    assert again.returncode == 4, again.stderr
    assert "same verdicts as stored" in again.stdout
    assert (elsewhere / "found" / "audit.html").read_text() == page
    sound = run(python, "-m", "rankproof", "verify", "found", cwd=elsewhere)
    assert sound.returncode == 0, sound.stdout + sound.stderr

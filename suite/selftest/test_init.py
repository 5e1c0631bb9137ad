"""A first job.toml from one observed run: what is told from what was seen, what is left as a question, and that nothing is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.first_job.opened import opened_below
from fixtures.first_job.run import Observed
from fixtures.first_job.template import resume_flags, template_of
from fixtures.first_job.text import toml_of
from fixtures.first_job.words import CommandError, arguments_of, split_command
from fixtures.job import load_job
from fixtures.plugin import ROOT
from fixtures.saves import Saves, saves_of

SCRIPT = """\
import argparse, os
import torch
p = argparse.ArgumentParser()
for name in ("--batch-size", "--max-steps", "--seed"): p.add_argument(name, type=int)
p.add_argument("--output-dir"); p.add_argument("--data"); p.add_argument("--resume", action="store_true")
a = p.parse_args()
torch.manual_seed(a.seed)
rows = torch.tensor([[float(x) for x in line.split(",")] for line in open(a.data)])
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
os.makedirs(os.path.join(a.output_dir, "ckpt"), exist_ok=True)
log = open(os.path.join(a.output_dir, "log.txt"), "w")
for step in range(1, a.max_steps + 1):
    at = (step - 1) * a.batch_size
    opt.zero_grad(); net(rows[at:at + a.batch_size, :2]).mean().backward(); opt.step()
    print(step, file=log, flush=True)
    if step % 2 == 0: torch.save(net.state_dict(), os.path.join(a.output_dir, "ckpt", f"step{step}.pt"))
"""


def file(op: str, path: str, step: int) -> dict[str, Any]:
    return {"op": op, "path": path, "step": step}


def observed(words: str, **more: Any) -> Observed:
    given: dict[str, Any] = {
        "words": split_command(words.split()), "folder": Path("/job"), "world_size": 2, "steps": 10, "global_batch": 16, "per_rank_batch": 8,
        "micro_batches": 1, "read": (), "read_whole": True, "files": (), "wall_s": 9.0, "exit_code": 0, "not_seen": {}, **more,
    }  # fmt: skip
    return Observed(**given)


@pytest.mark.parametrize(
    ("words", "launcher", "script", "arguments"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", ("torchrun", "--nproc-per-node", "2"), ("train.py",), ("--lr", "1")),
        ("python -m torch.distributed.run --nproc-per-node=2 -m pkg.train a=1", ("python", "-m", "torch.distributed.run", "--nproc-per-node=2"), ("-m", "pkg.train"), ("a=1",)),
        ("accelerate launch --config_file c.yaml --num_processes 2 t.py x.py", ("accelerate", "launch", "--config_file", "c.yaml", "--num_processes", "2"), ("t.py",), ("x.py",)),
        ("train.py", (), ("train.py",), ()),
    ],
)  # fmt: skip
def test_a_command_is_told_apart(words: str, launcher: tuple[str, ...], script: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    found = split_command(words.split())
    assert (found.launcher, found.script, found.arguments) == (launcher, script, arguments)
    assert split_command(["env", "A=1", "B=x=y", *words.split()]).environment == {"A": "1", "B": "x=y"}


def test_a_command_without_a_script_is_refused() -> None:
    with pytest.raises(CommandError, match=r"'torchrun --help' names no script"):
        split_command(["torchrun", "--help"])


def test_arguments_of_every_spelling_become_placeholders() -> None:
    words = (
        "torchrun t.py --batch-size=8 --total_batch 16 train.max_steps=10 --seed 5 --save-steps 5 --out runs/a --log runs/a/l.txt --lr -1"
    )
    made = template_of(observed(words, files=(file("open", "/job/runs/a/x.pt", 5),)))
    assert made.command == (
        "t.py --batch-size={per_rank_batch} --total_batch {global_batch} train.max_steps={steps} --seed {seed} --save-steps 5 --out {out}"
        " --log {out}/l.txt --lr -1"
    )
    assert (made.seed, made.doubts) == (5, {})
    assert [one.value for one in arguments_of(["--flag", "--n", "3", "word"])] == ["", "3", "word"]


def test_what_cannot_be_told_is_a_question(tmp_path: Path) -> None:
    seen = observed("torchrun t.py --batch 4 --steps 99", micro_batches=2, read=("/job/d.csv",))
    made = template_of(seen)
    asked = " ".join(made.doubts["command"])
    assert "--batch 4 is neither all ranks' batch (16) nor one rank's (8; 2 forward passes a step)" in asked
    assert "--steps 99 is not the number of steps seen (10)" in asked
    assert "no argument sets the seed" in asked
    assert "no argument names the folder that the run wrote to" in asked
    assert "d.csv" in made.doubts["inputs"][0]
    alone = template_of(replace(seen, world_size=1, words=split_command(["t.py", "--batch", "16"]), per_rank_batch=16))
    assert "with one rank it cannot be told" in " ".join(alone.doubts["command"])
    (tmp_path / "t.py").write_text("")
    (tmp_path / "job.toml").write_text(toml_of(replace(seen, folder=tmp_path, global_batch=None), made, tmp_path / "job.toml"))
    assert load_job(tmp_path / "job.toml").steps == 10


def test_saves_are_told_from_logs() -> None:
    log = [file("open", "/o/log.txt", 0), *(file("write", "/o/log.txt", step) for step in range(1, 11))]
    reopened = [file("open", "/o/metrics.csv", step) for step in range(1, 11)]
    every = [file("open", f"/o/c/step-{step}/rank0.pt.tmp", step) for step in (3, 6, 9, 10)]
    assert saves_of([*log, *reopened, *every], 10) == Saves((3, 6, 9, 10), 3, "/o/c")
    assert saves_of([*log, *reopened], 10) == Saves()
    assert saves_of([file("open", "/o/last.pt", step) for step in (4, 8)], 10) == Saves((4, 8), 4, "/o")
    assert saves_of([file("open", "/o/model.pt", 10)], 10).every is None
    assert saves_of([file("open", "/o/a.pt", step) for step in (4, 7)], 10).every is None


def test_options_that_resume_are_found_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("p.add_argument('-r', '--resume-from')\np.add_argument('--restart', action='store_true')\n")
    assert resume_flags(tmp_path / "t.py") == [("--resume-from", True), ("--restart", False)]
    (tmp_path / "broken.py").write_text("def (:")
    assert resume_flags(tmp_path / "broken.py") == []


def test_reading_is_seen_whoever_reads(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("a.bin", "deep/b.bin", "c.bin"):
        (tmp_path / name).write_bytes(b"x")
    with opened_below([str(tmp_path)]) as opened:
        (tmp_path / "a.bin").read_bytes()
        subprocess.run(["cat", str(tmp_path / "deep" / "b.bin")], check=True, capture_output=True)
    assert opened.paths == {str(tmp_path / "a.bin"), str(tmp_path / "deep" / "b.bin")}
    assert opened.whole


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys, os; sys.path.insert(0, sys.argv[1]); from suite.__main__ import main; sys.exit(main(sys.argv[2:]))"
    command = [sys.executable, "-c", code, str(ROOT), "init", *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120, check=False
    )


def test_one_run_gives_a_job_that_loads_and_is_never_overwritten(tmp_path: Path) -> None:
    """A whole run: the file reads back as the job that was run, and asking again leaves it as it is."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "rows.csv").write_text("1,2,3\n" * 40)
    words = ("python", "train.py", "--batch-size", "4", "--max-steps", "6", "--seed", "9", "--output-dir", "runs/one", "--data", "rows.csv")
    done = init(tmp_path, "--", sys.executable, *words[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    job = load_job(tmp_path / "job.toml")
    assert job.command == "train.py --batch-size {per_rank_batch} --max-steps {steps} --seed {seed} --output-dir {out} --data {rows}"
    assert (job.global_batch, job.steps, job.seed, job.inputs) == (4, 6, 9, {"rows": "rows.csv"})
    assert job.checkpoint is not None
    assert (job.checkpoint.every, job.checkpoint.resume, job.checkpoint.directory) == (2, "--resume", "{out}/ckpt")
    before = (tmp_path / "job.toml").read_bytes()
    again = init(tmp_path, "--", sys.executable, *words[1:])
    assert (again.returncode, (tmp_path / "job.toml").read_bytes()) == (2, before)
    assert "is there already" in again.stderr


@pytest.mark.parametrize(
    ("source", "words"),
    [("raise SystemExit(3)", "ended with exit code 3"), ("print('hi')", "no optimizer step was seen"), ("", "no optimizer step was seen")],
)
def test_a_run_that_shows_nothing_writes_nothing(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "train.py").write_text(source)
    done = init(tmp_path, "--", sys.executable, "train.py")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert words in done.stderr
    assert not (tmp_path / "job.toml").exists()


def test_a_launcher_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = init(tmp_path, "--", "no-such-launcher", "train.py")
    assert (done.returncode, done.stderr) == (
        2,
        "error: no-such-launcher cannot be started (No such file or directory): give the command as you start the job\n",
    )

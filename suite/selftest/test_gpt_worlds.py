"""The gpt job in worlds of one and two ranks, replicated and sharded: one gradient, one continuation, refusals that say why."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fixtures.job import load_job
from fixtures.world import Start, open_launcher

ROOT = Path(__file__).parents[2]
SMALL = ("--sequences", "20", "--sequence", "8", "--global-batch", "8", "--checkpoint-every", "3")

# The job as it is, but smaller and never clipping, which would hide a gradient of the wrong size; where asked, in float64 and with the whole
# gradient of each step in gradient<step>.npz, sharded ones gathered.
PROGRAM = """
import functools, os, sys
sys.path.insert(0, {root!r})
import numpy, torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from workloads.gpt import model, parallel, train

model.SIZES["1m"] = (2, 32, 2, 48)
train.Recipe = functools.partial(train.Recipe, clip_norm=1e9)
folder, steps = os.environ.get("RANKPROOF_TEST_GRADIENTS"), []

def note(optimizer, args, kwargs):
    steps.append(1)
    whole = [parallel.whole(weight.grad).numpy() for group in optimizer.param_groups for weight in group["params"]]
    if os.environ["RANK"] == "0":
        numpy.savez(os.path.join(folder, f"gradient{{len(steps)}}.npz"), *whole)

if folder:
    torch.set_default_dtype(torch.float64)
    register_optimizer_step_pre_hook(note)
sys.exit(train.main())
"""

Gpt = Callable[..., Path]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpt]:
    """gpt(world_size, *options, out=None, exact=False, exit_code=0): a training; its --out. What it printed is in out.parent/rank0.log."""
    script = tmp_path_factory.mktemp("gpt") / "program.py"
    script.write_text(PROGRAM.format(root=str(ROOT)))
    with open_launcher() as launcher:

        def run(world_size: int, *options: str, out: Path | None = None, exact: bool = False, exit_code: int = 0) -> Path:
            run_dir = out.parent if out else tmp_path_factory.mktemp("run")
            argv = (str(script), *SMALL, *options, "--out", str(run_dir / "out"))
            variables = {"RANKPROOF_TEST_GRADIENTS": str(run_dir) if exact else ""}
            start = Start(argv=argv, folder=ROOT, world_size=world_size, run_dir=run_dir, environment=variables, probe=False)
            ended = launcher.run(start)
            log = (run_dir / "rank0.log").read_text()
            assert [rank.exit_code for rank in ended.ranks] == [exit_code] * world_size, f"{ended.message}\n{log}"
            return run_dir / "out"

        yield run


@pytest.fixture(scope="module")
def alone(gpt: Gpt) -> Path:
    """One device, float64, six steps over two epochs, each ending with half a batch."""
    return gpt(1, "--steps", "6", exact=True)


def gradients(out: Path, step: int) -> list[np.ndarray]:
    """The gradient of each parameter at the step, counted since the process started."""
    with np.load(out.parent / f"gradient{step}.npz") as stored:
        return [stored[name] for name in stored.files]


def deviation(seen: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest relative deviation of any parameter's gradient."""
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(seen, expected, strict=True))


def parts(out: Path, step: int) -> dict[str, str]:
    """Checksums of every part of the checkpoint after `step`."""
    files = json.loads((out / "checkpoints" / f"step_{step:08d}" / "manifest.json").read_text())["files"]
    return {name: str(entry["pieces"]) for name, entry in files.items()}


@pytest.mark.parametrize(
    ("world_size", "options"),
    [
        (2, ()),
        (2, ("--accumulate", "2")),
        (1, ("--parallel", "fsdp2")),
        (2, ("--parallel", "fsdp2")),
        (2, ("--parallel", "fsdp2", "--accumulate", "2")),
    ],
)
def test_every_layout_computes_one_gradient(gpt: Gpt, alone: Path, world_size: int, options: tuple[str, ...]) -> None:
    """In float64 the gradients of step 1, of the half batch of step 3 and of step 6 are those of one device, to 1e-12."""
    out = gpt(world_size, "--steps", "6", *options, exact=True)

    for step in (1, 3, 6):
        assert deviation(gradients(out, step), gradients(alone, step)) <= 1e-12, f"step {step}, evidence in {out.parent}"


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_a_resumed_run_continues_bit_for_bit(gpt: Gpt, parallel: str) -> None:
    """Three steps, a restart and three more leave the very bytes that six steps in one go leave: weights, moments, schedule, random state."""
    whole = gpt(2, "--steps", "6", "--parallel", parallel)
    halved = gpt(2, "--steps", "3", "--parallel", parallel)
    gpt(2, "--steps", "6", "--parallel", parallel, "--resume", out=halved)

    assert "resumed from step 3" in (halved.parent / "rank0.log").read_text()
    assert set(parts(whole, 6)) == {"model.bin", "optimizer.bin", "training.bin", "rank0.bin", "rank1.bin"}
    assert parts(halved, 6) == parts(whole, 6)


def test_a_sharded_checkpoint_continues_on_one_device(gpt: Gpt, alone: Path) -> None:
    """What two ranks of FSDP2 saved is the whole state: one replicated rank goes on from it along the one-device run."""
    out = gpt(2, "--steps", "3", "--parallel", "fsdp2", exact=True)
    gpt(1, "--steps", "6", "--resume", out=out, exact=True)

    assert deviation(gradients(out, 3), gradients(alone, 6)) <= 1e-12


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_bfloat16_trains_in_both_layouts(gpt: Gpt, parallel: str) -> None:
    """The loss after six steps is finite and near the uniform guess of ln 64 = 4.16 nats, where a small model starts."""
    out = gpt(1, "--steps", "6", "--parallel", parallel, "--bf16")
    loss = json.loads((out / "metrics.json").read_text())["last_loss_nats"]

    assert 3.5 < loss < 4.4, f"evidence in {out}"


def test_a_checkpoint_of_another_run_is_refused(gpt: Gpt) -> None:
    """Other data under the same --out: exit code 2 and a sentence that names both; so does a second run into the same --out."""
    out = gpt(1, "--steps", "3")
    gpt(1, "--steps", "6", "--resume", "--source-seed", "1", out=out, exit_code=2)
    other = (out.parent / "rank0.log").read_text()
    gpt(1, "--steps", "6", out=out, exit_code=2)
    again = (out.parent / "rank0.log").read_text()

    assert "the checkpoint has data source_seed=0" in other
    assert "add --resume to continue that run" in again


def test_job_file_is_valid() -> None:
    """job.toml loads, and its epoch of 248 sequences ends within its steps, with a batch that is not full."""
    job = load_job(ROOT / "workloads" / "gpt" / "job.toml")

    assert "--sequences 248" in job.command
    assert job.global_batch * job.steps > 248
    assert 248 % job.global_batch

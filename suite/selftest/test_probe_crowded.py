"""A job whose folder has a module for every name that we use, and that prints all it can see of its process, prints the same with the probe.

What cannot be the same is listed here, and is all there is: the probe's own modules, standard ones that it loads before the job does, its variables, and as
long as the job has not imported numpy.random a finder that waits for it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures.world import Launcher, LauncherName, Start, open_launcher

OURS = ("fixtures", "suite", "reports", "workloads", "rankproof")
PROBES = ("probe", "record", "steps", "hooks", "rank", "samples", "conftest", "sitecustomize", "usercustomize")
UNAVOIDABLE_VARIABLES = ("PYTHONPATH", "RANKPROOF_")
"""By which the probe gets in, and what it is asked for."""
WAITING = "_Arrival"
UNAVOIDABLE_FUNCTIONS = {"sys.excepthook", "sys.exit"}
"""Wrapped, so that an end can be told; the wrapped ones are called with the same arguments."""
SCRIPT = """
    import sitecustomize, {names}
    import gc, json, locale, os, random, resource, signal, sys, threading, warnings
    early = sorted(sys.modules)
    import torch, torch.distributed as dist
    from torch import nn

    def visible():
        return {{
            "modules": sorted(sys.modules), "early": early, "path": sys.path, "path_hooks": [str(type(one)) for one in sys.path_hooks],
            "meta_path": [type(one).__name__ for one in sys.meta_path], "argv": sys.argv, "flags": str(sys.flags), "folder": os.getcwd(),
            "environment": dict(os.environ), "warnings": [str(one) for one in warnings.filters], "showwarning": warnings.showwarning.__module__,
            "handlers": [str(signal.getsignal(one)) for one in sorted(signal.valid_signals())], "blocked": sorted(signal.pthread_sigmask(0, ())),
            "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task")), "trace": [str(sys.gettrace()), str(sys.getprofile())],
            "gc": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)], "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
            "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)],
            "umask": [os.umask(0o22), os.umask(0o22)][0], "locale": locale.setlocale(locale.LC_ALL), "lowest": min({{*range(100)}} - {{int(one) for one in os.listdir("/proc/self/fd")}}),
            "torch": [str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
                torch.is_anomaly_enabled(), torch.backends.cudnn.benchmark],
            "functions": {{name: value.__module__ for name, value in (("sys.excepthook", sys.excepthook), ("sys.exit", sys.exit), ("sys.stdout", type(sys.stdout)), ("print", print))}},
            "main": [__name__, __file__, sys.modules["__main__"].__dict__ is globals()],
        }}

    print("own", sitecustomize.OWN, *({names_own}))
    before = visible()
    warnings.warn("a warning of the job")
    dist.init_process_group("gloo")
    torch.manual_seed(3); random.seed(3)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        loss = model(torch.randn(6, 4)).square().mean()
        optimizer.zero_grad(); loss.backward(); nn.utils.clip_grad_norm_(model.parameters(), 0.1); optimizer.step()
        print("loss", loss.item().hex(), random.random().hex(), torch.rand(()).item().hex())
    for name, value in model.state_dict().items():
        print(name, value.double().sum().item().hex())
    dist.destroy_process_group()
    print("VISIBLE", json.dumps([before, visible()]))
    print("to the other stream", file=sys.stderr)
    {end}
"""
ENDS = {
    "zero": ("pass", 0),
    "words": ("sys.exit('the job says why')", 1),
    "code": ("sys.exit(7)", 7),
    "raises": ("raise KeyError('missing') from ValueError('cause')", 1),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: exit codes, and of each rank what it printed and what it saw of its process, before training and after."""

    codes: tuple[int | None, ...]
    printed: tuple[tuple[str, ...], ...]
    visible: tuple[list[dict[str, Any]], ...]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with open_launcher() as one:
        yield one


def crowded(folder: Path, end: str) -> Path:
    """The job's folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"OWN = {name!r}\n")
    for name in PROBES:
        (folder / f"{name}.py").write_text(f"OWN = {name!r}\n")
    names = [*OURS, *(name for name in PROBES if not name.endswith("customize"))]
    source = SCRIPT.format(names=", ".join(names), names_own=", ".join(f"{name}.OWN" for name in names), end=ENDS[end][0])
    (folder / "train.py").write_text("\n".join(line[4:] for line in source.splitlines()) + "\n")
    return folder


def run(through: Launcher, folder: Path, run_dir: Path, *, by: LauncherName, ranks: int, probe: bool) -> Seen:
    asked = {"RANKPROOF_TRACE": str(run_dir), "RANKPROOF_LEVEL": "full", "RANKPROOF_WATCH": str(folder)} if probe else {}
    ended = through.run(
        Start(
            argv=("train.py", "--x"),
            folder=folder,
            world_size=ranks,
            run_dir=run_dir,
            environment=asked,
            launcher=by,
            probe=probe,
            deadline_s=120,
        )
    )
    logs = [(run_dir / f"rank{rank}.log").read_text().splitlines() for rank in range(ranks)]
    visible = [json.loads(line.partition(" ")[2]) for log in logs for line in log if line.startswith("VISIBLE ")]
    assert len(visible) == ranks, logs
    printed = tuple(tuple(line for line in log if not line.startswith("VISIBLE ")) for log in logs)
    return Seen(tuple(rank.exit_code for rank in ended.ranks), printed, tuple(visible))


def apart(plain: dict[str, Any], probed: dict[str, Any]) -> list[str]:
    """What a job can see that the probe need not have changed."""
    plain, probed = dict(plain), dict(probed)
    found = []
    for name in ("modules", "early"):
        more = set(probed.pop(name)) ^ set(plain.pop(name))
        found += [f"{name}: {one}" for one in sorted(more) if one.partition(".")[0] not in {*sys.stdlib_module_names, "rankproof_probe"}]
    for seen in (plain, probed):
        seen["meta_path"] = [name for name in seen["meta_path"] if name != WAITING]
        variables = seen.pop("environment")
        # a port is drawn anew for every run, as is torchrun's own store
        seen["variables"] = {
            key: value
            for key, value in variables.items()
            if not key.startswith((*UNAVOIDABLE_VARIABLES, "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"))
        }
        seen["functions"] = {key: value for key, value in seen["functions"].items() if key not in UNAVOIDABLE_FUNCTIONS}
    return found + [f"{key}: {plain[key]} without, {probed[key]} with the probe" for key in plain if plain[key] != probed[key]]


@pytest.mark.parametrize(
    ("by", "ranks", "end"),
    [("warm", 2, "zero"), ("warm", 1, "words"), ("warm", 1, "code"), ("warm", 1, "raises"), ("torchrun", 1, "raises")],
)
def test_a_crowded_job_is_as_it_was(launcher: Launcher, tmp_path: Path, by: LauncherName, ranks: int, end: str) -> None:
    folder = crowded(tmp_path / "job", end)
    plain, probed = (run(launcher, folder, tmp_path / f"run-{probe}", by=by, ranks=ranks, probe=probe) for probe in (False, True))

    assert plain.codes == (ENDS[end][1],) * ranks
    assert probed.codes == plain.codes
    assert probed.printed == plain.printed, "stdout, stderr, losses, draws, weights or the traceback differ"
    assert plain.printed[0][0].split() == ["own", "sitecustomize", *OURS, *(name for name in PROBES if not name.endswith("customize"))]
    for without, with_probe in zip(plain.visible, probed.visible, strict=True):
        for moment, (before, after) in enumerate(zip(without, with_probe, strict=True)):
            assert apart(before, after) == [], f"{('before', 'after')[moment]} training"
    assert (tmp_path / "run-True" / "rank0.jsonl").read_text().count('"kind":"step"') == 4

"""Starts the small probe jobs in real worlds, for the tests of the probe. The worlds come from one warm launcher per test process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.faults import Fault, faults_to_json
from fixtures.trace import Trace, load_trace
from fixtures.world import Ended, Launcher, Start

JOBS = Path(__file__).resolve().parent / "jobs"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: how it ended, its trace (None without the probe), the output of every rank, its {out}."""

    ended: Ended
    trace: Trace
    logs: tuple[str, ...]
    folder: Path
    out: Path


@dataclass(frozen=True, slots=True)
class ProbeRuns:
    """``start(job, arguments, ...)`` runs ``suite/selftest/jobs/probe_<job>/train.py`` to its end."""

    launcher: Launcher
    folder: Path

    def start(
        self,
        job: str,
        *arguments: str,
        ranks: int = 2,
        level: str = "default",
        faults: Sequence[Fault] = (),
        probe: bool = True,
        out: Path | None = None,
        stall_s: float = 60.0,
        launcher: Any = "warm",
        **environment: str,
    ) -> Ran:
        run_dir = self.folder / f"run{sum(1 for _ in self.folder.iterdir())}"
        run_dir.mkdir()
        out = out or run_dir / "out"
        out.mkdir(exist_ok=True)
        asked = {
            "RANKPROOF_TRACE": str(run_dir),
            "RANKPROOF_LEVEL": level,
            "RANKPROOF_FAULTS": faults_to_json(faults),
            **{f"RANKPROOF_{name.upper()}": value for name, value in environment.items()},
        }
        ended = self.launcher.run(
            Start(
                argv=("train.py", *arguments, *(("--out", str(out)) if job == "ddp" else ())),
                folder=JOBS / f"probe_{job}",
                world_size=ranks,
                run_dir=run_dir,
                environment=asked if probe else {},
                probe=probe,
                launcher=launcher,
                deadline_s=120,
                stall_s=stall_s,
            )
        )
        logs = tuple((run_dir / f"rank{rank}.log").read_text() for rank in range(ranks))
        return Ran(ended, load_trace(run_dir), logs, run_dir, out)


def copied(ran: Ran, name: str) -> Path:
    """A copy of a run's {out}, for a run that resumes from it."""
    return Path(shutil.copytree(ran.out, ran.folder / name))


def exit_codes(ran: Ran) -> list[int | None]:
    """The exit code of every rank."""
    return [rank.exit_code for rank in ran.ended.ranks]


def raw(ran: Ran, rank: int) -> list[dict[str, Any]]:
    """The records of one rank as they were written."""
    return [json.loads(line) for line in (ran.folder / f"rank{rank}.jsonl").read_text().splitlines()]

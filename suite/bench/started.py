"""A script of ranks/ in a world of its own, and what its ranks printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fixtures.world import Launcher, Start

RANKS = Path(__file__).parent / "ranks"


def printed(
    launcher: Launcher, run_dir: Path, script: str, *arguments: object, ranks: int = 2, level: str | None = None, deadline_s: float = 120.0
) -> list[Any]:
    """What each rank printed last, from JSON. level: the probe's, None without the probe. The run leaves its logs in `run_dir`."""
    environment = {"RANKPROOF_TRACE": str(run_dir), "RANKPROOF_LEVEL": level} if level else {}
    argv = (str(RANKS / script), *map(str, arguments))
    start = Start(
        argv=argv, folder=RANKS, world_size=ranks, run_dir=run_dir, probe=level is not None, environment=environment, deadline_s=deadline_s
    )
    ended = launcher.run(start)
    assert ended.message == "", f"{ended.message}; see {run_dir}"
    logs = [(run_dir / f"rank{rank}.log").read_text().splitlines() for rank in range(ranks)]
    return [json.loads(log[-1]) if log else None for log in logs]

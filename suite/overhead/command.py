"""`python -m suite overhead`: measure, write the page, and say which target was missed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fixtures.environment import environment, git_identity
from fixtures.world import open_launcher
from suite.overhead.measure import SETTLED, as_json, measure
from suite.overhead.sheet import misses, overhead_page
from suite.overhead.traincheck import measure_traincheck

ROOT = Path(__file__).resolve().parents[2]
STEPS = {1: 24, 20: 9}
"""Steps of a run, by millions of parameters."""


def run_overhead(sizes: Sequence[int], *, pairs: int, traincheck: Path | None, out: Path) -> int:
    """Measure these sizes and write `out` and the JSON beside it, where other sizes stay as they were (these too, with no pairs); how many targets were missed.

    Raises RuntimeError where the loop cannot be measured.
    """
    stored = out.with_suffix(".json")
    document: dict[str, Any] = json.loads(stored.read_text()) if stored.exists() else {"sizes": [], "traincheck": []}
    document |= {"settled": SETTLED, "machine": _machine(), "commit": git_identity(ROOT)["commit"][:12]}
    with tempfile.TemporaryDirectory(prefix="rankproof-overhead-") as scratch, open_launcher() as launcher:
        for million in sizes:
            if pairs:
                costs = measure(launcher, Path(scratch), million, pairs=pairs, steps=STEPS[million], say=_say)
                _put(
                    document["sizes"],
                    {
                        "million": million,
                        "pairs": pairs,
                        "steps": STEPS[million],
                        "load": round(os.getloadavg()[0], 1),
                        "costs": as_json(costs),
                    },
                )
            if traincheck is not None:
                found = measure_traincheck(traincheck.absolute(), Path(scratch) / "traincheck", million, SETTLED + 3, 1, _say)
                _put(document["traincheck"], found)
    stored.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    out.write_text(overhead_page(document))
    missed = misses(document)
    print(*missed, f"written: {out}", sep="\n")
    return len(missed)


def _put(among: list[dict[str, Any]], one: dict[str, Any]) -> None:
    among[:] = sorted([other for other in among if other["million"] != one["million"]] + [one], key=lambda size: int(size["million"]))


def _machine() -> str:
    seen = environment()
    return f"{seen['cpu'] or 'unnamed processor'}, {seen['cores']} cores, torch {seen['torch']}"


def _say(line: str) -> None:
    print(line, flush=True)

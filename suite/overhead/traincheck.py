"""TrainCheck (the nearest tool that watches an unmodified training script) on the very loop that the probe is measured on.

It runs in an environment of its own, whose python is given: it is no dependency of ours. It rewrites a script and runs it in one process, so it is set
beside the same loop alone, without a process group, in that same environment.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reports.statistics import ratio_interval
from suite.overhead.measure import RANKS, SETTLED

LIMIT_S = 900.0
CALL = re.compile(r"^    main\(int\(sys\.argv\[1\]\).*$", flags=re.MULTILINE)


def measure_traincheck(python: Path, folder: Path, million: int, steps: int, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of a step without and with `traincheck-collect`, in turns, as {step_s, version, ...}; {"reason": ...} where it does not run."""
    script = folder / f"loop{million}.py"
    folder.mkdir(parents=True, exist_ok=True)
    script.write_text(CALL.sub(f"    main({steps}, {million})", (RANKS / "steps.py").read_text()))
    off: list[float] = []
    on: list[float] = []
    for pair in range(pairs):
        collect = [
            str(python.parent / "traincheck-collect"),
            "-p",
            script.name,
            "--models-to-track",
            "model",
            "--output-dir",
            f"collected{million}-{pair}",
        ]
        for command, seen in ((([str(python), script.name]), off), (collect, on))[:: 1 if pair % 2 == 0 else -1]:
            found = _step_s(command, folder)
            if isinstance(found, str):
                return {"million": million, "reason": found}
            seen += found[SETTLED:]
            say(
                f"{million} M parameters, turn {pair + 1} of {pairs}, {Path(command[0]).name}: {1000 * statistics.median(found[SETTLED:]):.1f} ms a step"
            )
    ratio = ratio_interval(off, on)
    versions = subprocess.run(
        [str(python), "-c", "from importlib.metadata import version as v; print(v('traincheck'), v('torch'))"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip
    return {
        "million": million, "version": versions[0], "torch": versions[1], "steps": len(on), "off_ms": 1000 * statistics.median(off),
        "on_ms": 1000 * statistics.median(on), "ratio": {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high},
    }  # fmt: skip


def _step_s(command: Sequence[str], folder: Path) -> list[float] | str:
    """The seconds of each step, or why there are none."""
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} did not end within {LIMIT_S:.0f} s"
    except OSError as error:
        return f"{Path(command[0]).name} could not be started: {error}"
    said = re.findall(r'\{"step_s": \[.*?\}', done.stdout + done.stderr)
    if not said:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        return f"{Path(command[0]).name} exited with code {done.returncode}: {last[0][:200]}"
    return [float(value) for value in json.loads(said[-1])["step_s"]]

"""Watch what the artifact in service does and go back to the one before where it does harm: `rollback.py --registry R --recent T`.

Owner: model training lead. Trigger: over the recent days whose outcomes are known, the log-loss of the artifact in service is above the
declared baseline's, with the whole 95 % interval. Action: the artifact before it is verified and put into service again. T holds label,
probability, baseline, day and the artifact that scored the flight. Exit code 0: healthy, or gone back; 2: it could not go back.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.compute as pc
import pyarrow.parquet as pq

from workloads.flights import registry, scores

OWNER = "model training lead"


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--recent", type=Path, required=True)
    options = parser.parse_args()
    try:
        print(watch(options.registry, options.recent))
    except (registry.RegistryError, OSError) as error:
        print(f"rollback.py: {error}; owner: {OWNER}", file=sys.stderr)
        return 2
    return 0


def watch(folder: Path, recent: Path) -> str:
    """What was found and done, in one line. Raises RegistryError where it had to go back and could not."""
    state = registry.current(folder)
    change = harm(recent, str(state.get("artifact")))
    said = f"{state.get('artifact')}: log-loss minus baseline's {change['mean']:+.4f} ({change['low']:+.4f} to {change['high']:+.4f}, {change['n']} flights)"
    if change["low"] <= 0:
        return f"healthy: {said}"
    previous = state.get("previous")
    if previous is None:
        raise registry.RegistryError(f"{said}, but {folder} has no artifact to go back to: stop serving, publish a sound one")
    registry.put_in_service(folder, previous)
    return f"triggered: {said}; went back to {previous}; owner: {OWNER}"


def harm(recent: Path, name: str) -> dict[str, Any]:
    """The difference in log-loss to the baseline on what `name` scored. Raises RegistryError where it scored nothing."""
    table = pq.read_table(recent)
    table = table.filter(pc.equal(table["artifact"], name))
    if not table.num_rows:
        raise registry.RegistryError(f"{recent} has no flight that {name} scored: the monitor is blind, collect outcomes first")
    label, ours, theirs, day = (table[column].to_numpy() for column in ("label", "probability", "baseline", "day"))
    return scores.difference(scores.log_losses(ours, label), scores.log_losses(theirs, label), day)


if __name__ == "__main__":
    sys.exit(main())

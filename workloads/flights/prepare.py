"""Write an events file: `prepare.py --rows 5400 --events PATH` (0 rows: the whole year).

The rows are real and always the same for the same number. The first call parses the source (some 10 s) into a cache; later calls are quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workloads.flights import assumptions, cache

AUDIT_FLIGHTS = 5_400
"""Gives about 4,000 training samples: 24 steps of 256 cross the border of an epoch."""


def main() -> int:
    """Write the file named on the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=AUDIT_FLIGHTS, help="number of flights, 0 for the whole year")
    parser.add_argument("--events", type=Path, help="file to write (Parquet)")
    parser.add_argument("--cache", type=Path, default=None, help="folder of the cached year")
    parser.add_argument("--assumptions", action="store_true", help="print the assumed delays as JSON and end")
    arguments = parser.parse_args()
    if arguments.assumptions:
        print(json.dumps(assumptions.table(), indent=2))
        return 0
    if arguments.events is None or arguments.rows < 0:
        print(f"--events PATH is needed and --rows must be 0 or more, not {arguments.rows}", file=sys.stderr)
        return 2
    year = cache.cached_year(arguments.cache or cache.default_folder(), cache.source_folder())
    arguments.events.parent.mkdir(parents=True, exist_ok=True)
    table = cache.select(year, arguments.rows)
    cache.write_atomically(table, arguments.events)
    print(f"{arguments.events}: {table.num_rows} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())

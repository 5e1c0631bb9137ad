"""`python -m suite.history.trial NAME [right]`: one job of the history through its criterion, with whatever release stands first on the path; prints JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from suite.history.releases import CATALOGUE
from suite.matrix.command import surroundings
from suite.matrix.entries import broken_source, clean_source, read_catalogue
from suite.matrix.trial import try_program


def main(name: str, program: str) -> None:
    """Print what the criterion said, as one line of JSON."""
    entry = read_catalogue(CATALOGUE, [name])[0]
    source = (clean_source if program == "right" else broken_source)(entry.file.read_text())
    with tempfile.TemporaryDirectory(prefix="rankproof-history-") as folder, surroundings(Path(folder)) as around:
        said = try_program(replace(entry, criteria=(entry.criterion,)), source, around, seed=0)
    print(json.dumps(asdict(said[0])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")

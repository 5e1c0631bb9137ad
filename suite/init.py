"""`init -- COMMAND`: write a first job.toml from one observed run of the command, as it is started by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fixtures.first_job.run import ObserveError, observe
from fixtures.first_job.template import template_of
from fixtures.first_job.text import toml_of
from fixtures.first_job.words import CommandError
from fixtures.job import JobError, load_job

EXIT_USAGE = 2


def init(command: Sequence[str], path: Path, limit_s: float) -> int:
    """Run, look, write; returns the exit code. A file that is there is never overwritten: that is checked before anything runs, and again at the end."""
    path = path.absolute()
    if os.path.lexists(path):
        return _refused(f"{path} is there already: name another file with -o, or move it")
    if not path.parent.is_dir():
        return _refused(f"{path.parent} is not a folder: make it first")
    try:
        seen = observe(command, Path.cwd(), limit_s)
    except (CommandError, ObserveError) as error:
        return _refused(str(error))
    text = toml_of(seen, template_of(seen), path)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        return _refused(f"{path} was made meanwhile and is left as it is; this is what was to be written:\n{text}")
    open_questions = sum("# ?" in line for line in text.splitlines())
    print(f"{path}: {seen.steps} steps of {seen.world_size} ranks seen, {open_questions} questions left (lines with # ?)")
    try:
        load_job(path)
    except JobError as error:
        print(f"it has to be completed before it can be audited: {error}")
    return 0


def _refused(sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return EXIT_USAGE

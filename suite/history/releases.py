"""Releases of unmodified packages, and what a criterion has to say of the jobs under each: `workloads/history/catalogue.toml` read and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from suite.matrix.entries import MISTAKE, CatalogueError, Entry, read_catalogue

CATALOGUE = Path(__file__).resolve().parents[2] / "workloads" / "history" / "catalogue.toml"


@dataclass(frozen=True, slots=True)
class Tried:
    """A job under a release. right: the user's mistake is put right. rejected: whether the criterion has to reject it, for the entry's cause."""

    entry: Entry
    release: str
    right: bool
    rejected: bool

    @property
    def name(self) -> str:
        return f"{self.entry.name} under {self.release}{', put right' if self.right else ''}"


def releases(path: Path = CATALOGUE) -> dict[str, tuple[str, ...]]:
    """What is installed for each release: itself, then what it needs beside torch."""
    return {release: (release, *table["beside"]) for release, table in tomllib.loads(path.read_text())["releases"].items()}


def trials(path: Path = CATALOGUE) -> tuple[Tried, ...]:
    """Every job under every release that is named for it; one that holds a user's mistake also with that put right."""
    known, expected = releases(path), tomllib.loads(path.read_text())["expected"]
    found: list[Tried] = []
    for entry in read_catalogue(path):
        if entry.name not in expected:
            raise CatalogueError(f"[expected] of {path.name} lacks {entry.name!r}: add the releases under which it is faulty and sound")
        for kind in ("faulty", "sound"):
            for release in expected[entry.name][kind]:
                if release not in known:
                    raise CatalogueError(f"[expected] {entry.name} names {release!r}, which [releases] lacks: add it")
                found.append(Tried(entry, release, False, kind == "faulty"))
                if kind == "faulty" and MISTAKE in entry.file.read_text():
                    found.append(Tried(entry, release, True, False))
    return tuple(found)

"""Checkpoints that are either whole or not there.

    checkpoints/
      step_00000012/                 complete: it has its final name
        model.bin optimizer.bin ...  state that all ranks share, written by rank 0, in the format of flat.py
        rank0.bin rank1.bin          state of one rank (its random generators), written by that rank
        manifest.json                step, world size, identity, size and checksums of every other file, and its own sha256
      step_00000018.tmp-5f0c9a1e/    being written, or left by a run that was killed: never read, removed after the next save

A save writes into the .tmp directory, syncs every file and the directory, renames it once to its final name and syncs the parent. Before
the rename nothing is advertised, after it everything is. No rank goes on until all know how it went; what fails on one rank fails on all.
A restore takes the newest checkpoint of which every rank finds all that it needs as it was written, and says which it passed over and why.

World size may change between save and restore: shared state fits any world. A rank that was in the saved world gets its own part back,
a rank beyond it gets None and seeds itself; parts of ranks that are no more are left alone.

torch.distributed.checkpoint is not used here: its format serves state that is sharded over ranks, this state is replicated. Its own
commit is not enough either way (in one directory, `finish` removes the old .metadata before it renames the new one, and syncs no
directory). A sharded job writes DCP files inside the same .tmp directory and publishes them with the same manifest and rename.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workloads import atomic, flat
from workloads.group import agree, gather, stop_on

FORMAT = 2
MANIFEST = "manifest.json"
ENDING = ".bin"
WRITERS, LARGE_BYTES = 2, 64 << 20
_PUBLISHED = re.compile(r"step_(\d{8})")
_LEFTOVER = re.compile(r"step_\d{8}\.(tmp|old|damaged)-[0-9a-f]{8}")


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved or restored; the message names the path and what to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was on disk: `shared` by part name, `own` this rank's part (None where the saved world had no such rank)."""

    path: Path
    step: int
    world_size: int
    identity: dict[str, str]
    shared: dict[str, Any]
    own: Any


def save(directory: Path, step: int, shared: Mapping[str, Any], own: Any, *, identity: Mapping[str, str], keep: int = 2) -> None:
    """Publish the state after `step`. Every rank calls it with its own part; `shared` is written by rank 0.

    Saving a step that is already there and whole changes nothing. Afterwards the newest `keep` whole checkpoints remain.
    Raises GroupFailure on every rank if any rank fails.
    """
    rank = _rank()
    plan = gather(_attempt(lambda: _begin(directory, step)) if rank == 0 else None)[0]
    assert plan is not None
    stop_on([plan.error])
    unfinished = plan.result
    if unfinished is None:
        return
    written = gather(_attempt(lambda: _write_parts(unfinished, _parts(rank, shared, own))))
    stop_on([one.error for one in written])
    everything: dict[str, dict[str, Any]] = {name: files[name] for files in (one.result for one in written) for name in files}
    published = _Attempt(None, None)
    if rank == 0:
        content = {"format": FORMAT, "step": step, "world_size": len(written), "identity": dict(identity), "files": everything}
        published = _attempt(lambda: _publish(unfinished, directory / _name(step), content))
    agree(published.error)
    if rank == 0:
        _tidy(directory, keep)


def restore(directory: Path, say: Callable[[str], None] = print, into: Mapping[str, Any] | None = None) -> Restored | None:
    """The newest checkpoint that every rank can load, or None if none was ever published. Every rank calls it; rank 0 says what happened.

    What is loaded is verified while it is loaded; the ranks of one machine share that work where they read the same files. What is damaged for one is
    passed over by all. `into`: shared state by part name whose tensors are read into where they fit, so that nothing is held twice. Raises
    GroupFailure on every rank when there are checkpoints but none is whole; tensors of `into` then hold anything.
    """
    rank = _rank()
    seen = gather((_attempt(lambda: _published(directory)) if rank == 0 else None, _same_files(directory)))
    listed, share = seen[0][0], _share([files for _, files in seen], rank)
    assert listed is not None
    stop_on([listed.error])
    passed_over: list[str] = []
    for name in listed.result:
        loaded, wrong = _loaded(directory / name, rank, into or {}, share)
        wrong = next((one for one in gather(wrong) if one is not None), None)
        if wrong is None:
            if rank == 0:
                for said in passed_over:
                    say(f"{said}: falling back to step {int(name[5:])}")
                say(f"resumed from step {int(name[5:])}")
            return loaded
        passed_over.append(f"checkpoint {name} is damaged ({wrong})")
    if passed_over:
        agree(f"no checkpoint in {directory} is whole ({'; '.join(passed_over)}); move the directory away to start from step 0")
    if rank == 0:
        say("no complete checkpoint: starting from step 0")
    return None


def has_checkpoints(directory: Path) -> bool:
    """Whether anything was ever published here, whole or damaged."""
    return bool(_published(directory))


def faults(directory: Path) -> dict[str, str | None]:
    """Name -> what is wrong with it, None if it is whole, of every published checkpoint, newest first."""
    return {name: _fault(directory / name) for name in _published(directory)}


# ---- the random generators, the part of the state that each rank has for itself


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of Python's, numpy's and torch's generators (and the device's), in types that load without running code."""
    kind, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(internal), gauss_next],
        "numpy": [kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), int(place), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Put back what `random_state` returned; a CUDA state is ignored where the run went on without that device."""
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    kind, keys, place, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def seed_rank(seed: int, rank: int, step: int = 0) -> None:
    """Seed all generators from (seed, rank, step): ranks draw different numbers, and a rank that joins at `step` repeats none of step 0."""
    words = [int(word) for word in np.random.SeedSequence([seed, rank, step]).generate_state(3)]
    random.seed(words[0])
    np.random.seed(words[1])
    torch.manual_seed(words[2])


# ---- one rank's steps of a save; everything below runs without a collective


@dataclass(frozen=True, slots=True)
class _Attempt:
    result: Any
    error: str | None


def _attempt(work: Callable[[], Any]) -> _Attempt:
    """The result, or the error as a sentence, so that it can be told to the other ranks before any stops."""
    try:
        return _Attempt(work(), None)
    except (OSError, CheckpointError) as error:
        return _Attempt(None, f"checkpoint: {error}; free space or correct the path, then start again with --resume")


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _name(step: int) -> str:
    return f"step_{step:08d}"


def _parts(rank: int, shared: Mapping[str, Any], own: Any) -> dict[str, Any]:
    parts = {f"rank{rank}{ENDING}": own}
    if rank == 0:
        parts |= {f"{name}{ENDING}": value for name, value in shared.items()}
    return parts


def _begin(directory: Path, step: int) -> Path | None:
    """A new .tmp directory, or None if this step is already there and whole."""
    if not directory.is_dir():
        directory.mkdir(parents=True)
    if (directory / _name(step)).exists() and _fault(directory / _name(step)) is None:
        return None
    unfinished = directory / f"{_name(step)}.tmp-{os.urandom(4).hex()}"
    os.mkdir(unfinished)
    return unfinished


def _write_parts(folder: Path, parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Write and sync this rank's files; returns what verifies each, by name. Large ones are written side by side: copying into the page cache takes longest."""
    names = sorted(parts, key=lambda name: (-flat.size_of(parts[name]), name))
    with ThreadPoolExecutor(WRITERS if flat.size_of(parts) >= LARGE_BYTES else 1) as writers:
        written = list(writers.map(lambda name: flat.write(folder / name, parts[name]), names))
    return dict(zip(names, written, strict=True))


def _publish(unfinished: Path, final: Path, content: dict[str, Any]) -> None:
    """Manifest, sync, one rename, sync. A damaged directory of the same name is moved aside first: it was no checkpoint."""
    atomic.write(unfinished / MANIFEST, json.dumps(content | {"sha256": _digest(content)}, indent=1, sort_keys=True).encode())
    atomic.publish_directory(unfinished, final)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _published(directory: Path) -> list[str]:
    """Names of published checkpoints, newest first."""
    if not directory.is_dir():
        return []
    return sorted((entry.name for entry in directory.iterdir() if _PUBLISHED.fullmatch(entry.name)), reverse=True)


def _manifest(path: Path) -> dict[str, Any]:
    """The verified manifest. Raises CheckpointError."""
    try:
        content = json.loads((path / MANIFEST).read_bytes())
        claimed = content.pop("sha256")
        whole = claimed == _digest(content) and content["format"] == FORMAT and _name(content["step"]) == path.name
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{MANIFEST} cannot be read: {type(error).__name__} {error}") from error
    if not whole:
        raise CheckpointError(f"{MANIFEST} does not match its own hash, its format or its step")
    found: dict[str, Any] = content
    return found


def _fault(path: Path) -> str | None:
    """What is wrong with a published checkpoint, None if it is whole; every file is read."""
    try:
        for name, expected in _manifest(path)["files"].items():
            _reading(name, lambda name=name, expected=expected: flat.verify(path / name, expected))  # type: ignore[misc]
    except CheckpointError as error:
        return str(error)
    return None


def _looks_whole(path: Path) -> bool:
    """Whether the manifest is intact and every file has its size: what the files hold was verified when they were written."""
    try:
        files = _manifest(path)["files"]
        return all((path / name).stat().st_size == expected["bytes"] for name, expected in files.items())
    except (OSError, CheckpointError):
        return False


def _reading(name: str, work: Callable[[], Any]) -> Any:
    """The result; raises CheckpointError that names the file."""
    try:
        return work()
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error.strerror}") from error
    except flat.DamagedFile as error:
        raise CheckpointError(f"{name} {error}") from error


def _same_files(path: Path) -> tuple[str, int, int] | None:
    """What ranks have in common that read a folder through one page cache: the running kernel, the file system and the folder on it; None where there is none."""
    try:
        found = path.stat()
        return Path("/proc/sys/kernel/random/boot_id").read_text(), found.st_dev, found.st_ino
    except OSError:
        return None


def _share(seen: Sequence[tuple[str, int, int] | None], rank: int) -> flat.Share:
    """This rank's share of the reading, from what every rank sees (by rank)."""
    if seen[rank] is None:
        return flat.ALONE
    beside = [one for one, files in enumerate(seen) if files == seen[rank]]
    return flat.Share(beside.index(rank), len(beside))


def _loaded(path: Path, rank: int, into: Mapping[str, Any], share: flat.Share) -> tuple[Restored | None, str | None]:
    """What this rank needs of a checkpoint, or what is wrong with it. Nothing is loaded that could run code."""
    try:
        content = _manifest(path)
        shared, own = {}, None
        for name, expected in sorted(content["files"].items()):
            is_rank_part = re.fullmatch(rf"rank\d+{re.escape(ENDING)}", name) is not None
            if is_rank_part and name != f"rank{rank}{ENDING}":
                continue
            there = into.get(name.removesuffix(ENDING))
            by = flat.ALONE if is_rank_part else share
            value = _reading(name, lambda name=name, expected=expected, there=there, by=by: flat.read(path / name, expected, there, by))  # type: ignore[misc]
            if is_rank_part:
                own = value
            else:
                shared[name.removesuffix(ENDING)] = value
    except CheckpointError as error:
        return None, str(error)
    return Restored(path, content["step"], content["world_size"], content["identity"], shared, own), None


def _tidy(directory: Path, keep: int) -> None:
    """Remove what is older than the newest `keep` whole checkpoints, and leftovers. What cannot be removed is said, and stays.

    A checkpoint that was cut or lost a file is not counted, so that the last whole one is not counted away. Contents are not read again: that would
    cost as much as the save.
    """
    whole = 0
    for name in _published(directory):
        if whole >= max(1, keep):
            _remove(directory / name)
        elif _looks_whole(directory / name):
            whole += 1
    for entry in sorted(directory.iterdir()):
        if _LEFTOVER.fullmatch(entry.name):
            _remove(entry)


def _remove(path: Path) -> None:
    """Rename away first: a half-removed checkpoint must never have a checkpoint's name."""
    try:
        if _PUBLISHED.fullmatch(path.name):
            gone = path.with_name(f"{path.name}.old-{os.urandom(4).hex()}")
            os.rename(path, gone)
            atomic.sync_directory(path.parent)
            path = gone
        for file in sorted(path.iterdir()):
            os.unlink(file)
        os.rmdir(path)
    except OSError as error:
        print(f"checkpoint: {path} could not be removed ({error.strerror}); it is never read, remove it by hand", flush=True)

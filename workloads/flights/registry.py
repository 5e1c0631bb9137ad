"""The registry of models that may be served: a folder of artifacts, each whole or not there, and the name of the one in service.

    registry/
      artifact-1f0c.../          manifest.json, model.pt2, preprocessing.json, schema.json
      current.json               {"artifact": ..., "previous": ...}: what is served, and what to go back to

An artifact is named after the digest of its manifest, which holds the digest of every file: the same content has the same name, so
publishing it again changes nothing. Imports neither torch nor numpy: publishing and reading names take milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from workloads import atomic

MANIFEST, CURRENT = "manifest.json", "current.json"
FILES = ("model.pt2", "preprocessing.json", "schema.json")


class RegistryError(RuntimeError):
    """An artifact or registry that cannot be used; the message names the path and the fix."""


def manifest_of(folder: Path, identity: dict[str, str]) -> dict[str, Any]:
    """The manifest of a build: size and digest of each file, and what it was made from."""
    files = {name: {"sha256": _digest((folder / name).read_bytes()), "bytes": (folder / name).stat().st_size} for name in FILES}
    return {"format": 1, "files": files, "identity": identity}


def name_of(manifest: dict[str, Any]) -> str:
    """The artifact's name: its content."""
    return f"artifact-{_digest(json.dumps(manifest, sort_keys=True).encode())[:16]}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a build or an artifact. Raises RegistryError."""
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        return found
    except (OSError, ValueError) as error:
        raise RegistryError(f"{folder / MANIFEST} cannot be read ({error}): build or publish the artifact again") from error


def fault(folder: Path) -> str | None:
    """What is wrong with an artifact, as a clause; None where it is whole."""
    try:
        manifest = read_manifest(folder)
        for name, expected in manifest["files"].items():
            if _digest((folder / name).read_bytes()) != expected["sha256"]:
                return f"{name} is not what its manifest says"
    except (RegistryError, OSError, KeyError) as error:
        return str(error)
    return None


def publish(build: Path, registry: Path) -> tuple[str, bool]:
    """Put a build into the registry and into service; returns its name and whether anything changed. Raises RegistryError, OSError."""
    if (said := fault(build)) is not None:
        raise RegistryError(f"{build} cannot be published, {said}: build it again")
    registry.mkdir(parents=True, exist_ok=True)
    name = name_of(read_manifest(build))
    final = registry / name
    is_new = not final.is_dir() or fault(final) is not None
    if is_new:
        unfinished = registry / f".unfinished-{name}-{os.urandom(4).hex()}"
        unfinished.mkdir()
        for file in (*FILES, MANIFEST):
            atomic.write(unfinished / file, (build / file).read_bytes())
        atomic.publish_directory(unfinished, final)
    changed = put_in_service(registry, name) or is_new
    for leftover in [*registry.glob(".unfinished-*"), *registry.glob("*.tmp-*"), *registry.glob("*.damaged-*")]:
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    return name, changed


def put_in_service(registry: Path, name: str) -> bool:
    """Serve the artifact from now on; False where it is served already. Raises RegistryError where it is not whole."""
    if (said := fault(registry / name)) is not None:
        raise RegistryError(f"{registry / name} cannot be put into service, {said}: publish it again")
    before = current(registry)
    if before.get("artifact") == name:
        return False
    content = {"artifact": name, "previous": before.get("artifact")}
    atomic.replace_file(registry / CURRENT, (json.dumps(content, sort_keys=True) + "\n").encode())
    return True


def current(registry: Path) -> dict[str, str | None]:
    """What is in service, and what was before; empty where nothing is. Raises RegistryError."""
    try:
        found: dict[str, str | None] = json.loads((registry / CURRENT).read_bytes())
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RegistryError(f"{registry / CURRENT} cannot be read ({error}): write it again with publish.py") from error


def served(registry: Path) -> Path:
    """The folder of the artifact in service, verified. Raises RegistryError."""
    name = current(registry).get("artifact")
    if name is None:
        raise RegistryError(f"{registry} serves nothing: publish an artifact with publish.py")
    if (said := fault(registry / name)) is not None:
        raise RegistryError(f"{registry / name} must not be served, {said}: go back with rollback.py or publish it again")
    return registry / name


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

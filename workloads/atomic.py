"""Files and folders that are whole under their final name or not there: synced writes, then one rename, then the folder's own sync.

Imports nothing but the standard library, so that a program which only publishes starts at once.
"""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes | memoryview) -> None:
    """Write a file and wait until the disk has it. Raises OSError."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_directory(unfinished: Path, final: Path) -> None:
    """Give a folder, whose files are written and synced, its final name. A damaged folder of that name is moved aside first.

    Before the rename nothing is advertised, after it everything is. Both paths lie in the same folder. Raises OSError.
    """
    sync_directory(unfinished)
    if final.exists():
        os.rename(final, final.with_name(f"{final.name}.damaged-{os.urandom(4).hex()}"))
    os.rename(unfinished, final)
    sync_directory(final.parent)
    sync_directory(final.parent.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` under a name that may be there already: readers see the old content or the new, never a part. Raises OSError."""
    unfinished = path.with_name(f"{path.name}.tmp-{os.urandom(4).hex()}")
    write(unfinished, data)
    os.replace(unfinished, path)
    sync_directory(path.parent)

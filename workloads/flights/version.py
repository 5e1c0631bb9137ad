"""The version of the features: one digest over the code that turns raw events into the model's inputs.

Training, inference and every artifact carry it; an artifact is never served by other feature code than it was trained with. Imports nothing
but the standard library.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FEATURE_FILES = ("assumptions.py", "distribution.py", "features.py", "inputs.py", "schema.py", "task.py", "windows.py")


def feature_version() -> str:
    """sha256 over names and contents of the feature code."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for name in FEATURE_FILES:
        digest.update(name.encode() + b"\0" + (here / name).read_bytes())
    return digest.hexdigest()

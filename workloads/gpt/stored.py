"""The weights that a finished training left in final/, verified as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads import checkpoint
from workloads.gpt.model import GPT, shape_of


class StoredError(RuntimeError):
    """A folder that holds no usable model; the message names it and the fix."""


def read_model(out: Path) -> tuple[GPT, Mapping[str, Any]]:
    """The model in evaluation mode on the CPU and the settings it was trained with. Raises StoredError, GroupFailure if it is damaged."""
    folder = out / "final"
    if not checkpoint.has_checkpoints(folder):
        raise StoredError(f"{folder} holds no model: give the --out of a finished train.py")
    found = checkpoint.restore(folder, say=lambda line: None)
    assert found is not None
    settings: Mapping[str, Any] = found.shared["settings"]
    model = GPT(shape_of(settings["size"], settings["vocabulary"]))
    model.load_state_dict(found.shared["weights"])
    return model.eval(), settings

"""What a training leaves behind: the model as one file, the metrics, and the identity that joins them to data and code."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from workloads.flights.inputs import CATEGORIES, FEATURES
from workloads.flights.model import FlightModel, Shape
from workloads.flights.schema import MalformedInput


class ArtifactError(MalformedInput):
    """A model file that cannot be used; the message names the path and the fix."""


def code_digest() -> str:
    """sha256 over the job's code: this folder's and the shared modules beside it."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted([*here.glob("*.py"), *here.parent.glob("*.py")]):
        digest.update(f"{file.parent.name}/{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def inputs_digest() -> str:
    """sha256 over the declared inputs: names, order, scales and vocabularies. A model serves only the inputs it was trained on."""
    declared = {"features": [asdict(feature) for feature in FEATURES], "categories": CATEGORIES}
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def mismatch(saved: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why a checkpoint cannot be continued by this run, as a sentence; None if it can. The world size and the code may differ."""
    named = {"data": "the events file", "order": "number of samples, global batch or seed"}
    for key, words in named.items():
        if saved.get(key) != now[key]:
            return (
                f"the checkpoint was saved with another {key} ({words}): {saved.get(key)}, now {now[key]}; continue with what it was saved with, "
                f"or start anew with another --out"
            )
    return None


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    with open(unfinished, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def write_model(path: Path, model: FlightModel, shape: Shape, identity: Mapping[str, str]) -> None:
    """The weights with what is needed to use them, whole or not at all."""
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "shape": asdict(shape), "inputs": inputs_digest(), "identity": dict(identity)}, buffer)
    _replace(path, buffer.getvalue())


def read_model(path: Path) -> tuple[FlightModel, dict[str, str]]:
    """The model in evaluation mode on the CPU, in float32, and its identity. Raises ArtifactError."""
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist: train first, or give the model.pt of a finished training")
    stored: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if stored["inputs"] != inputs_digest():
        raise ArtifactError(
            f"{path} was trained on other inputs (digest {stored['inputs'][:12]}, now {inputs_digest()[:12]}): use the code it was trained with"
        )
    model = FlightModel(Shape(**stored["shape"]))
    model.load_state_dict(stored["model"])
    return model.eval(), stored["identity"]


def write_metrics(
    path: Path, model: FlightModel, identity: Mapping[str, str], steps: int, loss: float | None, world_size: int, n_samples: int
) -> None:
    """metrics.json: the last loss (null if no step was left to do) and what it belongs to."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    content = {
        "steps": steps, "last_loss": loss, "parameters": parameters, "training_samples": n_samples, "world_size": world_size,
        "identity": dict(identity), "inputs": inputs_digest(),
    }  # fmt: skip
    _replace(path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())

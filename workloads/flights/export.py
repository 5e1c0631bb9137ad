"""From a trained model to a build that can be published: the graph, how raw events become its inputs, and what events must look like."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from workloads import atomic
from workloads.flights import registry
from workloads.flights.inputs import CATEGORIES, FEATURES
from workloads.flights.model import FlightModel
from workloads.flights.task import COLUMNS, DECISION_LEAD_MINUTES, RANGES, REQUIRED
from workloads.flights.version import feature_version

MOST_ROWS = 1 << 16


def graph_of(model: FlightModel) -> bytes:
    """The model as torch.export writes it, for any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=MOST_ROWS)
    example = (torch.zeros(4, len(CATEGORIES), dtype=torch.int64), torch.zeros(4, len(FEATURES)))
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(model.eval(), example, dynamic_shapes=({0: rows}, {0: rows})), buffer)
    return buffer.getvalue()


def write_build(folder: Path, graph: bytes, identity: Mapping[str, str], *, shift: float = 0.0) -> str:
    """Write a build into `folder` and return the name that it will be published under. `shift` is added to every logit."""
    folder.mkdir(parents=True, exist_ok=True)
    preprocessing = {
        "feature_version": feature_version(), "features": [asdict(feature) for feature in FEATURES], "categories": CATEGORIES,
        "decision_lead_minutes": DECISION_LEAD_MINUTES, "calibration": {"scale": 1.0, "shift": shift},
    }  # fmt: skip
    schema = {
        "columns": {name: str(kind) for name, kind in COLUMNS.items()},
        "required": REQUIRED,
        "ranges": {name: [allowed.low, allowed.high] for name, allowed in RANGES.items()},
    }
    atomic.write(folder / "model.pt2", graph)
    for name, content in (("preprocessing.json", preprocessing), ("schema.json", schema)):
        atomic.write(folder / name, json.dumps(content, indent=1, sort_keys=True).encode())
    manifest = registry.manifest_of(folder, dict(identity))
    atomic.write(folder / registry.MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    return registry.name_of(manifest)

"""One optimizer step is the same step on one and two ranks: gradients in float64 against the plain weighted mean over the whole batch.

Run as a program this file is one rank of such a world.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
CASES = [(7, 1), (7, 3), (1, 1), (8, 2)]
"""(rows of the global batch, micro-batches): slices that divide, that do not, and one rank without a row."""
TOLERANCE = 1e-12
"""Float64 rounding over some 1e6 multiply-adds; the mildest wrong weighting (a mean of means) is off by more than 1e-2 here."""


def example(rows: int) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """A small flights model and a batch with uneven weights, the same in every process."""
    from workloads.flights.inputs import CATEGORIES, FEATURES
    from workloads.flights.model import FlightModel, Shape

    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    model = FlightModel(Shape(width=8, heads=2, layers=1, head_width=8, head_blocks=1))
    categories = torch.stack([torch.randint(0, 1 + len(values), (rows,)) for values in CATEGORIES.values()], dim=1)
    weight = torch.rand(rows) * 3 + 0.1
    return model, [categories, torch.randn(rows, len(FEATURES)), torch.randint(0, 2, (rows,)).double(), weight / weight.sum()]


def flat(model: torch.nn.Module) -> np.ndarray:
    """All gradients in one float64 array."""
    return np.concatenate([parameter.grad.reshape(-1).numpy() for parameter in model.parameters() if parameter.grad is not None])


def one_device(rows: int) -> np.ndarray:
    """The oracle: no slices, no micro-batches, nothing of the training loop."""
    model, (categories, numbers, label, share) = example(rows)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(model(categories, numbers), label, reduction="none")
    (losses * share).sum().backward()  # type: ignore[no-untyped-call]
    return flat(model)


def as_rank(folder: Path) -> None:
    """What one rank does: every case through the training loop."""
    from workloads.flights.data import loss_of
    from workloads.group import joined, place_from_environment
    from workloads.loop import gradients, replicated
    from workloads.sampler import slice_of

    torch.set_num_threads(1)
    place = place_from_environment("cpu")
    with joined(place, 60):
        for case, (rows, accumulate) in enumerate(CASES):
            model, batch = example(rows)
            own = slice_of(np.arange(rows), place.rank, place.world_size)
            gradients(
                replicated(model, place), [tensor[own] for tensor in batch], loss_of, accumulate=accumulate, world_size=place.world_size
            )
            np.save(folder / f"{place.rank}_{case}.npy", flat(model))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gradients that two ranks computed."""
    folder = tmp_path_factory.mktemp("gradients")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(folder)], env=base | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    try:
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, 0]
    return folder


@pytest.fixture(autouse=True)
def float_type_as_before() -> object:
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_two_ranks_compute_the_one_device_gradient(two_ranks: Path, case: int) -> None:
    expected = one_device(CASES[case][0])
    for rank in range(2):
        found = np.load(two_ranks / f"{rank}_{case}.npy")
        deviation = float(np.abs(found - expected).max() / np.abs(expected).max())
        assert deviation < TOLERANCE, f"rank {rank}, rows and micro-batches {CASES[case]}: relative deviation {deviation}"


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_micro_batches_on_one_device_change_nothing(accumulate: int) -> None:
    from workloads.flights.data import loss_of
    from workloads.loop import gradients

    expected = one_device(7)
    model, batch = example(7)
    gradients(model, batch, loss_of, accumulate=accumulate, world_size=1)
    assert float(np.abs(flat(model) - expected).max() / np.abs(expected).max()) < TOLERANCE


if __name__ == "__main__":
    as_rank(Path(sys.argv[1]))

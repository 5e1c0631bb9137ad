"""Digests change with every bit and every place, and with nothing else; hashes of rows belong to the row."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

PACKAGE = Path(__file__).resolve().parents[2] / "fixtures" / "probe" / "rankproof_probe"


@pytest.fixture(scope="module")
def digests() -> ModuleType:
    """The probe's module, loaded by its path as a rank loads it."""
    spec = importlib.util.spec_from_file_location("rankproof_probe", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["rankproof_probe"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return importlib.import_module("rankproof_probe.digests")


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("size", [1, 3, 7, 513, 70_001, 300_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.int64, torch.complex64])
def test_one_element_changes_the_digest(digests: ModuleType, size: int, dtype: torch.dtype) -> None:
    tensor = numbers(size, dtype=dtype)
    before = digests.digest([tensor])
    assert digests.digest([tensor.clone()]) == before
    for place in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[place] = ~changed[place] if dtype is torch.bool else changed[place] + 1
        assert digests.digest([changed]) != before, f"element {place} of {size}"


def test_places_count(digests: ModuleType) -> None:
    tensor = numbers(600, 512)
    swapped = tensor.clone()
    swapped[[3, 400]] = tensor[[400, 3]]
    assert digests.digest([swapped]) != digests.digest([tensor])
    left, right = numbers(9), numbers(9, seed=1)
    assert digests.digest([left, right]) != digests.digest([right, left])
    assert digests.digest([left, None]) != digests.digest([None, left])


def test_layout_does_not_count(digests: ModuleType) -> None:
    tensor = numbers(300, 500)
    odd = torch.cat([numbers(1), tensor.flatten()])[1:].view(300, 500)
    assert odd.storage_offset() == 1
    for same in (odd, tensor.T.contiguous().T):
        assert digests.digest([same]) == digests.digest([tensor])


def test_norms_are_those_of_float64(digests: ModuleType) -> None:
    tensors = [numbers(3), None, numbers(100, 100), numbers(5_000_000), numbers(64, dtype=torch.bfloat16)]
    found = digests.norms(tensors)
    assert found[1] is None
    for tensor, norm in zip(tensors, found, strict=True):
        if tensor is not None and tensor.dtype is torch.float32:
            assert norm == pytest.approx(float(np.linalg.norm(tensor.double().numpy())), rel=4e-7)
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 1, 4]]), torch.tensor([1.0, 2.0, 4.0]), (6,), check_invariants=True)
    assert digests.norms([sparse]) == [5.0]


def test_rows_hash_alike_wherever_they_are(digests: ModuleType) -> None:
    inputs, words = numbers(6, 5), torch.arange(18).reshape(6, 3)
    hashes = digests.row_hashes([inputs, words, torch.tensor(3.0)])
    assert len(set(hashes)) == 6
    order = [4, 1, 5]
    assert digests.row_hashes([inputs[order], words[order]]) == [hashes[place] for place in order]
    changed = words.clone()
    changed[2, 1] += 1
    assert [left == right for left, right in zip(hashes, digests.row_hashes([inputs, changed]), strict=True)] == [True] * 2 + [False] + [
        True
    ] * 3


def test_small_whole_numbers_in_float64_do_not_collide(digests: ModuleType) -> None:
    grid = torch.cartesian_prod(*(torch.arange(0.0, 32.0, dtype=torch.float64),) * 3)
    assert len(set(digests.row_hashes([grid]))) == 32**3


def test_a_generators_state_is_the_same_number_in_every_process() -> None:
    """Ranks that torchrun starts share no parent: what differs from process to process (the hash of None, before Python 3.12) must not be in it."""
    probe = Path(__file__).resolve().parents[2] / "fixtures" / "probe"
    look = "import random, sys; sys.path.insert(0, sys.argv[1]); random.seed(1); from rankproof_probe.generators import _python_state; print(_python_state())"
    said = {subprocess.run([sys.executable, "-c", look, str(probe)], capture_output=True, text=True, check=True).stdout for _ in range(3)}

    assert len(said) == 1

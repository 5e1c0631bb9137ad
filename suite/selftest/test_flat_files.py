"""Flat files: what is read is what was written, bit for bit and type for type; whatever else is in the file is refused."""

from __future__ import annotations

from collections import OrderedDict
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch

from workloads import checkpoint, flat

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)


def tree() -> dict[str, Any]:
    """Every dtype, empty, zero-dimensional and large tensors, strided ones, and what optimizers and schedulers keep beside them."""
    torch.manual_seed(3)
    tensors = {str(dtype): (torch.rand(5, 3) * 9).to(dtype) for dtype in DTYPES}
    return {
        **tensors, "large": torch.rand(3, 700_000), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "strided": torch.rand(6, 8).t()[::2],
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.rand(400_000)}, 1: {"step": 4}},
        "groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1], "foreach": None, "name": "all", "nan": float("inf")}],
        "module": OrderedDict(weight=torch.ones(2)),
    }  # fmt: skip


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)
    if isinstance(one, dict):
        return type(one) is type(two) and list(one) == list(two) and all(equal(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(two) and len(one) == len(two) and all(map(equal, one, two))
    return bool(one == two)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    whole = tree()
    whole["module"]._metadata = {"": {"version": 2}}
    expected = flat.write(tmp_path / "a.bin", whole)

    found = flat.read(tmp_path / "a.bin", expected)

    assert equal(whole, found)
    assert found["module"]._metadata == {"": {"version": 2}}
    assert expected["bytes"] == (tmp_path / "a.bin").stat().st_size == sum(size for size, _ in expected["pieces"])


@pytest.mark.parametrize("content", [{}, None, {"step": 3}, [1, (2, 3)], {"none": torch.zeros(0)}], ids=str)
def test_trees_without_bytes_of_tensors(tmp_path: Path, content: Any) -> None:
    assert equal(content, flat.read(tmp_path / "a.bin", flat.write(tmp_path / "a.bin", content)))


def test_tensors_that_fit_are_read_into(tmp_path: Path) -> None:
    """Another dtype, shape or stride gets memory of its own, and stays as it was."""
    expected = flat.write(tmp_path / "a.bin", {"fits": torch.ones(3), "other": torch.ones(3), "strided": torch.ones(2, 2)})
    into = {"fits": torch.zeros(3), "other": torch.zeros(3, dtype=torch.float64), "strided": torch.zeros(4, 2)[::2]}

    found = flat.read(tmp_path / "a.bin", expected, into)

    assert found["fits"].data_ptr() == into["fits"].data_ptr()
    assert torch.equal(into["fits"], torch.ones(3))
    assert torch.equal(found["other"], torch.ones(3))
    assert not into["other"].any()
    assert not into["strided"].any()


@pytest.mark.parametrize("place", [0, 100, 2_000_000, -2_000, -1])
def test_one_flipped_bit_anywhere_is_found(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.bin"
    expected = flat.write(path, tree())
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)

    with pytest.raises(flat.DamagedFile, match="a content other than its manifest says"):
        flat.read(path, expected)
    with pytest.raises(flat.DamagedFile):
        flat.verify(path, expected)


def test_a_file_cut_or_longer_or_of_another_step_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    expected = flat.write(path, {"weight": torch.ones(500)})
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"\0", b""):
        path.write_bytes(wrong)
        with pytest.raises(flat.DamagedFile, match=rf"has {len(wrong)} bytes, not the {len(content)}"):
            flat.read(path, expected)
    flat.write(path, {"weight": torch.full((500,), 2.0)})
    with pytest.raises(flat.DamagedFile):
        flat.read(path, expected)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_readers_that_share_the_work_have_all_of_it_and_verify_every_piece_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Pieces are made small, so that the file has many, and one of them lies in several tensors."""
    monkeypatch.setattr(flat, "PIECE_BYTES", 1 << 19)
    monkeypatch.setattr(flat, "SHARED_BYTES", 0)
    path, whole = tmp_path / "a.bin", tree()
    expected = flat.write(path, whole)
    shares = [flat.Share(index, count) for index in range(count)]

    assert all(equal(whole, flat.read(path, expected, share=share)) for share in shares)
    pieces = len(expected["pieces"])
    assert sorted(number for share in shares for number in share.part(pieces)) == list(range(pieces))


def test_what_is_damaged_is_found_by_the_reader_whose_part_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "PIECE_BYTES", 1 << 19)
    monkeypatch.setattr(flat, "SHARED_BYTES", 0)
    path = tmp_path / "a.bin"
    expected = flat.write(path, tree())
    content = bytearray(path.read_bytes())
    content[2_000_000] ^= 1
    path.write_bytes(content)
    reads = [flat.Share(index, 4) for index in range(4)]
    damaged = next(number for number, end in enumerate(ends_of(expected)) if end > 2_000_000)

    for share in reads:
        if damaged in share.part(len(expected["pieces"])):
            with pytest.raises(flat.DamagedFile, match="a content other than its manifest says"):
                flat.read(path, expected, share=share)
        else:
            flat.read(path, expected, share=share)


def test_small_files_are_verified_by_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    expected = flat.write(path, {"weight": torch.rand(2_000_000)})
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    for index in range(2):
        with pytest.raises(flat.DamagedFile):
            flat.read(path, expected, share=flat.Share(index, 2))


def test_only_ranks_that_see_the_same_folder_share_its_reading() -> None:
    here, there = ("kernel", 1, 7), ("another kernel", 1, 7)
    assert [checkpoint._share([here, there, here], rank) for rank in range(3)] == [flat.Share(0, 2), flat.ALONE, flat.Share(1, 2)]
    assert checkpoint._share([None, None], 1) == flat.ALONE


def ends_of(expected: dict[str, Any]) -> list[int]:
    return list(accumulate(size for size, _ in expected["pieces"]))

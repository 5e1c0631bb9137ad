"""Nested state with tensors, as one flat file: the tensors' bytes one behind the other, what holds them together at the end.

torch.save copies every tensor through a zip writer that computes a checksum of its own on the same thread; here the bytes go to the file as they lie in
memory, in pieces, while another thread takes each piece's CRC-32 and the kernel already writes the pieces before it to the disk. Reading goes the same
way, straight into the memory that the tensors will have. Reading from the page cache costs a third of what the CRC-32 of the same bytes does, so the ranks of a machine
share that work (`Share`), where torch.distributed.checkpoint verifies nothing. A CRC-32 per piece finds every flipped bit, every cut and every piece
that belongs elsewhere, but for a chance of 2^-32; it does not resist one who recomputes it.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import io
import os
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

PIECE_BYTES = 4 << 20
SMALL_BYTES = 1 << 20
"""Below it tensors are copied together, so that a thousand small ones do not become a thousand writes."""
ALIGNMENT = 64
TENSOR = "\0tensor"
"""The one key of what stands for a tensor: its offset, dtype and shape."""
SHARED_BYTES = 32 << 20
"""Below it every reader of a file verifies all of it: there is nothing to gain."""
_SYNC_FILE_RANGE_WRITE = 2


class DamagedFile(RuntimeError):
    """A file does not hold what was written to it; the message says what differs."""


@dataclass(frozen=True, slots=True)
class Share:
    """One of `count` readers (`index` from 0) that read one file at the same time through one machine's page cache.

    Each begins with a part of its own, so that the disk is asked for every byte once and by several, and verifies that part alone: what one of
    them finds wrong is wrong for all, and has to be told to them.
    """

    index: int = 0
    count: int = 1

    def part(self, pieces: int) -> range:
        """The numbers of this reader's pieces; those of all readers together are each of them once."""
        return range(self.index * pieces // self.count, (self.index + 1) * pieces // self.count)


ALONE = Share()


def write(path: Path, tree: Any) -> dict[str, Any]:
    """Write nested dicts, lists and tuples of tensors and plain values, and wait until the disk has them.

    Returns what `read` needs to verify it: {bytes, skeleton_at, pieces: [[bytes, crc32], ...]}. The tensors must not change meanwhile.
    Raises OSError.
    """
    tensors: list[tuple[int, torch.Tensor]] = []
    skeleton = io.BytesIO()
    torch.save(_taken_apart(tree, tensors, [0]), skeleton)
    end = tensors[-1][0] + _bytes_of(tensors[-1][1]) if tensors else 0
    sums: list[tuple[int, Future[int]]] = []
    at = 0
    with open(path, "wb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        for piece in _pieces(tensors, skeleton.getbuffer()):
            sums.append((len(piece), hasher.submit(zlib.crc32, piece)))
            _write_all(file, piece)
            hasher.submit(_begin_writeback, file.fileno(), at, len(piece))  # it may wait for the disk, which the writer must not
            at += len(piece)
        os.fsync(file.fileno())
        return {"bytes": at, "skeleton_at": end, "pieces": [[size, crc.result()] for size, crc in sums]}


def read(path: Path, expected: Mapping[str, Any], into: Any = None, share: Share = ALONE) -> Any:
    """The tree that was written, every piece verified, by this reader or by one that shares the work. Raises OSError, DamagedFile.

    A tensor of `into` at the same place in the tree, of the same shape and dtype on the CPU, is read into and stands in the result; after an error it
    holds anything.
    """
    with _opened(path, expected) as file:
        skeleton = bytearray(expected["bytes"] - expected["skeleton_at"])
        file.seek(expected["skeleton_at"])
        _fill(file, [memoryview(skeleton)])
        _verify([memoryview(skeleton)], (expected["skeleton_at"], expected["bytes"], expected["pieces"][-1][1]))
        wanted: list[tuple[int, torch.Tensor]] = []
        tree = _put_together(torch.load(io.BytesIO(skeleton), map_location="cpu", weights_only=True), into, wanted)
        _read_pieces(file, expected, wanted, share if expected["bytes"] >= SHARED_BYTES else ALONE)
        return tree


def verify(path: Path, expected: Mapping[str, Any]) -> None:
    """Read the file and throw it away. Raises OSError, DamagedFile."""
    with _opened(path, expected) as file:
        _read_pieces(file, expected, [])


@contextlib.contextmanager
def _opened(path: Path, expected: Mapping[str, Any]) -> Iterator[io.FileIO]:
    """The file, which has the right size, to be read from its beginning on."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected["bytes"] or sum(length for length, _ in expected["pieces"]) != size:
            raise DamagedFile(f"has {size} bytes, not the {expected['bytes']} of its manifest")
        os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_SEQUENTIAL)
        yield file


def _read_pieces(file: io.FileIO, expected: Mapping[str, Any], wanted: Sequence[tuple[int, torch.Tensor]], share: Share = ALONE) -> None:
    """Read every piece, this reader's own part first, and verify that on another thread.

    Pieces are read in the order of the file, as the kernel reads ahead of one who does. The bytes go into the tensors (with their offsets, ascending)
    where one of them is to have them.
    """
    lengths = [length for length, _ in expected["pieces"]]
    starts, ends, own = [offset for offset, _ in wanted], list(accumulate(lengths)), share.part(len(lengths))
    with ThreadPoolExecutor(1) as hasher:
        checks = []
        for number in (*range(own.start, len(lengths)), *range(own.start)):
            start, end = ends[number] - lengths[number], ends[number]
            buffers = list(_buffers(start, end, wanted, starts))
            file.seek(start)
            _fill(file, buffers)
            if number in own:
                checks.append(hasher.submit(_verify, buffers, (start, end, expected["pieces"][number][1])))
        for check in checks:
            check.result()


def _buffers(start: int, end: int, wanted: Sequence[tuple[int, torch.Tensor]], starts: Sequence[int]) -> Iterator[memoryview]:
    """Where the bytes from `start` to `end` of the file go: into tensors, and what lies between them into scratch memory."""
    at, index = start, max(0, bisect.bisect_right(starts, start) - 1)
    while at < end:
        if index == len(wanted) or wanted[index][0] >= end:
            yield memoryview(bytearray(end - at))
            return
        offset, tensor = wanted[index]
        stop = min(end, offset + _bytes_of(tensor))
        if at < offset:
            yield memoryview(bytearray(offset - at))
            at = offset
        if at < stop:
            yield _view(tensor)[at - offset : stop - offset]
            at = stop
        index += 1


def _fill(file: io.FileIO, buffers: Sequence[memoryview]) -> None:
    for buffer in buffers:
        filled = 0
        while filled < len(buffer):
            got = file.readinto(buffer[filled:])
            if not got:
                raise DamagedFile(f"ends at byte {file.tell()}")
            filled += got


def _verify(buffers: Sequence[memoryview], place: tuple[int, int, int]) -> None:
    """Raises DamagedFile where the CRC-32 of the buffers is not that of the place (start, end, crc)."""
    crc = 0
    for buffer in buffers:
        crc = zlib.crc32(buffer, crc)
    if crc != place[2]:
        raise DamagedFile(f"has a content other than its manifest says, between the bytes {place[0]} and {place[1]}")


def _taken_apart(value: Any, tensors: list[tuple[int, torch.Tensor]], end: list[int]) -> Any:
    """The same tree with a stand-in for every tensor, which is added to `tensors` with its offset; `end` holds where the next may begin."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().to("cpu").contiguous()
        offset = -(-end[0] // ALIGNMENT) * ALIGNMENT
        tensors.append((offset, plain))
        end[0] = offset + _bytes_of(plain)
        return {TENSOR: [offset, str(plain.dtype).removeprefix("torch."), list(plain.shape)]}
    if isinstance(value, Mapping):
        taken: dict[Any, Any] = OrderedDict() if isinstance(value, OrderedDict) else {}
        taken.update((key, _taken_apart(item, tensors, end)) for key, item in value.items())
        if isinstance(value, OrderedDict):
            vars(taken).update(vars(value))  # a module's state_dict keeps its versions there
        return taken
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [_taken_apart(item, tensors, end) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _put_together(value: Any, into: Any, wanted: list[tuple[int, torch.Tensor]]) -> Any:
    """The tree with its tensors, not yet filled: each is added to `wanted` with its offset, in ascending order."""
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            offset, name, shape = value[TENSOR]
            tensor = _target(into, getattr(torch, name), shape)
            wanted.append((offset, tensor))
            return tensor
        for key, item in value.items():
            value[key] = _put_together(item, into.get(key) if isinstance(into, Mapping) else None, wanted)
        return value
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        there = into if isinstance(into, list | tuple) and len(into) == len(value) else [None] * len(value)
        items = [_put_together(item, one, wanted) for item, one in zip(value, there, strict=True)]
        return items if isinstance(value, list) else tuple(items)
    return value


def _target(into: Any, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    fits = isinstance(into, torch.Tensor) and into.dtype == dtype and list(into.shape) == shape and into.device.type == "cpu"
    return into.detach() if fits and into.is_contiguous() else torch.empty(shape, dtype=dtype)


def size_of(tree: Any) -> int:
    """Bytes of all tensors of a tree."""
    if isinstance(tree, torch.Tensor):
        return _bytes_of(tree)
    items = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list | tuple) else ()
    return sum(map(size_of, items))


def _pieces(tensors: list[tuple[int, torch.Tensor]], skeleton: memoryview) -> Iterator[memoryview]:
    """The file's content in order, at most PIECE_BYTES at a time."""
    staged, at = bytearray(), 0
    for offset, tensor in tensors:
        staged += bytes(offset - at)
        content, at = _view(tensor), offset + _bytes_of(tensor)
        if len(content) < SMALL_BYTES:
            staged += content
        if staged and (len(content) >= SMALL_BYTES or len(staged) >= PIECE_BYTES):
            yield memoryview(staged)
            staged = bytearray()
        if len(content) >= SMALL_BYTES:
            for start in range(0, len(content), PIECE_BYTES):
                yield content[start : start + PIECE_BYTES]
    if staged:
        yield memoryview(staged)
    yield skeleton


def _view(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy().data) if tensor.numel() else memoryview(b"")


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _write_all(file: Any, piece: memoryview) -> None:
    while piece:
        piece = piece[file.write(piece) :]


def _begin_writeback(descriptor: int, at: int, size: int) -> None:
    """Have the kernel start on these bytes, so that the sync at the end finds little left to do. A hint: where it is refused, nothing is lost."""
    if size >= SMALL_BYTES:
        libc = ctypes.CDLL(None)
        libc.sync_file_range(descriptor, ctypes.c_int64(at), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)

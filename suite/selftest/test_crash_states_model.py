"""The states that are generated, against brute force: real folders for process death, all subsets for power loss and for progress."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.crash.operations import Log, Message, Operation
from fixtures.crash.power import after_power_loss
from fixtures.crash.progress import cuts, progress, requirements
from fixtures.crash.states import Bounds, crash_states, torn_lengths, whole_tree
from fixtures.crash.tree import Impossible, apply, describe, first_tree, key_of

NAMES = ("a", "b", "d/a", "d/b")
KINDS = ("open", "write", "mkdir", "rename", "unlink", "sync", "sync_folder", "truncate")
CHOICES = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 9000)), max_size=9)


def log_of(operations: Sequence[Operation], messages: Sequence[Message] = ()) -> Log:
    return Log(tuple(operations), tuple(messages), {}, "made up", True)


def one(n: int, op: str, path: str = "", *, process: int = 0, count: int = 0, **fields: Any) -> Operation:
    return replace(Operation(n, process, count or n + 1, process, op, path, order=n + 1), **fields)


class Disk:
    """Carries made-up operations out for real, and writes down those that could be."""

    def __init__(self, root: Path) -> None:
        self.root, self.operations, self.files = root, list[Operation](), dict[int, str]()

    def do(self, kind: str, path: str, to: str, number: int) -> None:
        full, n = self.root / path, len(self.operations)
        try:
            fields = self._do(kind, full, self.root / to, number)
        except OSError:
            return
        fields |= {"digest": f"data{n}"} if kind == "write" else {}
        folder = str(Path(path).parent).replace(".", "")
        self.operations.append(one(n, kind, folder if kind == "sync_folder" else "d" if kind == "mkdir" else path, **fields))
        if kind == "rename":
            self.operations[-1] = replace(self.operations[-1], to=to)

    def _do(self, kind: str, full: Path, to: Path, number: int) -> dict[str, Any]:
        if kind == "open":
            with full.open("wb"):
                pass
            self.files.setdefault(full.stat().st_ino, f"file{len(self.operations)}")
            return {"file": self.files[full.stat().st_ino], "creates": True, "empties": True}
        if kind == "mkdir":
            (self.root / "d").mkdir()
        elif kind == "rename":
            os.rename(full, to)
        elif kind == "unlink":
            self.files.pop(full.stat().st_ino, None)
            full.unlink()
        elif kind == "sync_folder":
            full.parent.stat()
        elif kind == "write":
            with full.open("r+b") as file:
                file.seek(number // 2)
                file.write(bytes([len(self.operations)]) * (number + 1))
            return {"file": self.files[full.stat().st_ino], "offset": number // 2, "length": number + 1}
        elif kind == "truncate":
            os.truncate(full, number)
            return {"file": self.files[full.stat().st_ino], "length": number}
        else:
            return {"file": self.files[full.stat().st_ino]}
        return {}


def made(choices: Sequence[tuple[str, str, str, int]], root: Path) -> Disk:
    disk = Disk(root)
    for choice in choices:
        disk.do(*choice)
    return disk


@settings(max_examples=60, deadline=None)
@given(CHOICES)
def test_a_replayed_log_is_the_real_folder(choices: Sequence[tuple[str, str, str, int]]) -> None:
    """Names, sizes and bytes after any sequence of operations that a file system accepted."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        disk = made(choices, root)
        tree = whole_tree(log_of(disk.operations), (len(disk.operations),))

        assert set(tree.entries) == {str(path.relative_to(root)) for path in root.rglob("*")}
        for path, what in tree.entries.items():
            if isinstance(what, str):
                held = b"".join(
                    b"\0" * length if source < 0 else bytes([source]) * length for length, source, _ in tree.contents[what].pieces
                )
                assert held == (root / path).read_bytes(), path


@settings(max_examples=60, deadline=None)
@given(CHOICES)
def test_power_loss_keeps_what_was_synced_and_reaches_every_subset_of_names(choices: Sequence[tuple[str, str, str, int]]) -> None:
    """Brute force over the operations after the last sync: each order-keeping subset of them, with all of its data, is generated."""
    with tempfile.TemporaryDirectory() as folder:
        operations = made(choices, Path(folder)).operations
    log, digests = log_of(operations), {made.n: made.digest for made in operations}
    part = progress(log, requirements(log, {}), 0, len(operations))
    start = first_tree({})
    generated = {key_of(describe(loss.tree, digests)) for loss in after_power_loss(part, start, 4096, [])}
    last = max((made.n for made in operations if made.op in ("sync", "sync_folder")), default=-1)
    tail = [made for made in operations if made.n > last]
    if last >= 0 or not tail:
        return
    for wanted in itertools.product((False, True), repeat=len(tail)):
        chosen = [made for made, kept in zip(tail, wanted, strict=True) if kept or made.op in ("write", "truncate")]
        if not keeps_order(tail, {made.n for made in chosen}):
            continue
        tree = start
        for made_op in chosen:
            try:
                tree = apply(tree, made_op)
            except Impossible:
                continue
        whole = whole_tree(log, (len(operations),))
        tree = replace(tree, contents=whole.contents)
        assert key_of(describe(tree, digests)) in generated


def keeps_order(tail: Sequence[Operation], chosen: set[int]) -> bool:
    """Of two changes of one name, the later one is there only with the earlier one."""
    naming = [made for made in tail if made.op in ("open", "mkdir", "rename", "unlink")]
    return all(
        first.n in chosen or second.n not in chosen
        for first, second in itertools.combinations(naming, 2)
        if {first.path, first.to} & {second.path, second.to} - {""}
    )


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=5))
def test_the_cuts_are_all_those_that_messages_allow(owners: list[int], pairs: list[tuple[int, int]]) -> None:
    """Three processes, messages between their operations: exactly the combinations in which nobody has heard of what was not yet done."""
    counts = [0, 0, 0]
    operations = []
    for n, owner in enumerate(owners):
        counts[owner] += 1
        operations.append(replace(one(n, "mkdir", f"p{n}", process=owner, count=counts[owner]), order=10 * (n + 1)))
    sent = [(a, b) for a, b in pairs if a < b < len(owners) and owners[a] != owners[b]]
    messages = [Message(10 * (b + 1) - 5, owners[b], owners[a], 10 * (a + 1) + 1, -1) for a, b in sent]
    log = log_of(operations, sorted(messages, key=lambda message: message.order))
    part = progress(log, requirements(log, {}), 0, len(operations))
    found, complete = cuts(part, 10_000)

    def allowed(cut: tuple[int, ...]) -> bool:
        done = {made.n for made in operations if made.count <= cut[made.process]}
        return all(first in done for first, second in sent if second in done)

    processes = len(part.by_process)
    ranges = [range(counts[process] + 1) for process in range(processes)]
    assert complete
    assert sorted(found) == sorted(cut for cut in itertools.product(*ranges) if allowed(cut))


def save(*, synced: bool) -> Log:
    """Write beside, perhaps sync, rename, perhaps sync the folder; an older file is there."""
    ones = [
        one(0, "open", "new", file="f", creates=True, empties=True),
        one(1, "write", "new", file="f", length=20_000, digest="n"),
        *([one(2, "sync", "new", file="f")] if synced else []),
    ]
    ones.append(one(len(ones), "rename", "new", to="latest"))
    ones += [one(len(ones), "sync_folder", "")] if synced else []
    return Log(tuple(ones), (), {"latest": 9}, "made up", True)


def latest_of(log: Log) -> set[str]:
    """What `latest` can be, in words."""
    part = progress(log, requirements(log, {}), 0, len(log.operations))
    found = set()
    for state in crash_states(log, part, Bounds()).states:
        content = state.tree.contents[str(state.tree.entries["latest"])]
        found.add("old" if content.size == 9 else "whole" if content.pieces == ((20_000, 1, 0),) else "damaged")
    return found


def test_a_synced_replace_leaves_the_old_or_the_new_file_and_an_unsynced_one_more() -> None:
    assert latest_of(save(synced=True)) == {"old", "whole"}
    assert latest_of(save(synced=False)) == {"old", "whole", "damaged"}


def test_blame_is_the_operation_that_makes_the_state_possible() -> None:
    log = save(synced=False)
    part = progress(log, requirements(log, {}), 0, len(log.operations))
    states = crash_states(log, part, Bounds()).states
    damaged = [
        state for state in states
        if state.kind == "power loss" and state.tree.contents[str(state.tree.entries["latest"])].size not in (9, 20_000)
    ]  # fmt: skip

    assert {state.blame.words for state in damaged} == {"rename new -> latest"}


def test_a_write_is_cut_at_block_borders_and_a_small_one_not_at_all() -> None:
    assert torn_lengths(one(0, "write", "a", length=4096)) == []
    assert torn_lengths(one(0, "write", "a", length=4097)) == [4096]
    assert torn_lengths(one(0, "write", "a", length=20_000)) == [4096, 8192, 16_384]


def test_a_bound_says_what_it_leaves_out() -> None:
    ones = [one(n, "mkdir", f"d{n}", process=n % 2, count=n // 2 + 1) for n in range(12)]
    log = log_of(ones)
    states = crash_states(log, progress(log, requirements(log, {}), 0, 12), Bounds(cuts=10, orders=16))

    assert any("first 10 combinations" in words for words in states.cut_off)
    assert any("12 names unsynced at once" in words for words in states.cut_off)

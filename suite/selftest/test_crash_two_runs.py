"""Two runs in one folder, on made-up recordings: one temporary name for both is torn, a name of its own for each is not."""

from __future__ import annotations

from dataclasses import replace

from fixtures.crash.late import beside, late_states, shared
from fixtures.crash.looks import Looks
from fixtures.crash.observed import seen, told_apart
from fixtures.crash.operations import Log, Operation
from fixtures.crash.planted import late_run_clears
from fixtures.crash.progress import progress, requirements
from fixtures.crash.states import State, States, whole_tree

OLD = {"latest": 10}


def save(name: str) -> Log:
    """Open a temporary file, write 9,000 bytes, rename it."""
    ones = (
        Operation(0, 0, 1, 0, "open", name, file="file0", creates=True, empties=True, order=1),
        Operation(1, 0, 2, 0, "write", name, file="file0", length=9000, data_at=0, digest=f"data of {name}", order=2),
        Operation(2, 0, 3, 0, "rename", name, "latest", order=3),
    )
    return Log(ones, (), OLD, "made up", True)


def together(first: Log, second: Log) -> States:
    """The first run stands before its rename; the second runs through."""
    part = progress(first, requirements(first, {}), 0, 3)
    operations = beside(first, second, 9000)
    digests = {one.n: one.digest for one in (*first.operations, *operations)}
    return late_states(part, (2,), whole_tree(first, (2,)), operations, digests)


def sizes(states: States) -> set[tuple[int, ...]]:
    """Of each state the sizes of what `latest` may be."""
    return {tuple(one.tree.contents[what].size for path, what in one.tree.entries.items() if path == "latest" and isinstance(what, str)) for one in states.states}  # fmt: skip


def test_a_late_rename_of_a_shared_name_publishes_half_a_file() -> None:
    same, own = together(save("tmp"), save("tmp")), together(save("tmp.1"), save("tmp.2"))

    assert sizes(same) == {(9000,), (0,), (4096,), (8192,)}
    assert sizes(own) == {(9000,)}
    assert {one.kind for one in same.states} == {"two runs"}
    torn = next(one for one in same.states if one.tree.contents[str(one.tree.entries["latest"])].size == 4096)
    assert torn.words == (
        "when the restarted run had done the first 4096 bytes of write tmp (9000 bytes at 0), the run that was given up did rename tmp -> latest on rank 0"
    )
    assert torn.blame.words == "rename tmp -> latest"


def test_an_operation_that_cannot_happen_any_more_ends_the_late_run() -> None:
    first = save("tmp")
    gone = replace(save("tmp"), operations=(replace(first.operations[0], op="unlink", creates=False, empties=False),))

    assert [one.words for one in together(first, gone).states] == [
        "before the restarted run changed anything, the run that was given up did rename tmp -> latest on rank 0"
    ]


def test_what_was_late_has_numbers_names_and_data_of_its_own() -> None:
    first, second = save("a"), save("b")
    moved = beside(first, second, 9000)

    assert [one.n for one in moved] == [3, 4, 5]
    assert {one.file for one in moved} == {"restarted:file0", ""}
    assert moved[1].data_at == 9000
    assert shared(whole_tree(first, (0,))).file("restarted:base:latest") == "base:latest"


def test_the_twin_removes_what_the_restart_saved() -> None:
    first, second = save("c/tmp"), save("c/tmp")
    base = {"c": None, "c/latest": 10}
    start = whole_tree(replace(first, base=base), (0,))
    saved = tuple(replace(one, to="c/latest") if one.to else one for one in beside(first, second, 9000))
    digests = {one.n: one.digest for one in saved}
    states, fired = late_run_clears(States((), {"two runs": 0}, ()), saved, start, "c", digests)
    _, nothing = late_run_clears(States((), {"two runs": 0}, ()), (), start, "c", digests)

    assert (fired, nothing) == (True, False)
    assert set(states.states[0].tree.entries) == {"c"}
    assert states.states[0].words.endswith("the run that was given up removed all of c")


def test_a_file_that_was_moved_counts_with_its_content() -> None:
    """It can be read under its other name, which is not there in the state."""
    states = [
        State(key, "process death", save("tmp").operations[0], "", whole_tree(save("tmp"), (0,)), {"latest": key, "other": key}) for key in ("one", "two")
    ]  # fmt: skip
    entries = frozenset({"latest", "taken"})
    moved = Looks(frozenset({"taken"}), frozenset(), entries, frozenset({"latest", "taken"}))
    looked = replace(moved, trees=frozenset())

    assert told_apart(states[1], {"one": seen(states[0], moved)}) is None
    assert told_apart(states[1], {"one": seen(states[0], looked)}) == "one"

"""The mutation itself: what is changed and what is left out by rule, how a change gets in place, how results are counted."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suite.selftest.mutants.operators import Mutation, mutations
from suite.selftest.mutants.scope import modules, quick_tests_of
from suite.selftest.mutants.sheet import Excuse, Sheet, Survivor, counted, page, read_excuses
from suite.selftest.mutants.swap import NotSwapped, swap

SOURCE = """
LIMIT = 3
SHOWN_NAMES = 2


class Judge:
    bound: float = 0.5

    def over(self, value: float) -> bool:
        return value > self.bound


def first(values: list[int], other: int) -> int:
    if other in values and not other == LIMIT:
        return min(values[1:])
    return sum(value * 2 for value in values if value)


def named(ranks: list[int]) -> str:
    more = "s" if len(ranks) > 9 else ""
    return f"rank{'s' if len(ranks) > 8 else ''} {', '.join(map(str, sorted(ranks)[:SHOWN_NAMES]))} of {len(ranks) + 7:5.2f}{more}"
"""


def changes(source: str = SOURCE) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for mutation in mutations(source):
        found.setdefault(mutation.function, []).append(mutation.what)
    return found


def test_what_becomes_of_a_judge() -> None:
    found = changes()
    assert set(found[""]) == {"3 -> 4", "3 -> 2"}
    assert set(found["Judge"]) == {"0.5 -> 1.0", "0.5 -> 0.25"}
    assert set(found["Judge.over()"]) == {"value > self.bound -> value >= self.bound", "value > self.bound -> value <= self.bound"}
    assert {
        "min -> max", "1 -> 2", "1 -> 0", "other in values -> other not in values", "other == LIMIT -> other != LIMIT", "value * 2 -> value / 2",
        "not other == LIMIT -> other == LIMIT", "other in values and (not other == LIMIT) -> other in values or not other == LIMIT",
    } <= set(found["first()"])  # fmt: skip
    assert [what.rsplit(" ", 2)[1:] for what in found["first()"] if what.endswith(("or True", "and False"))].count(["and", "False"]) == 1


def test_what_only_shapes_words_is_left_out() -> None:
    named = changes()["named()"]
    assert not any("8" in what.split(" -> ")[0] or "SHOWN" in what or "sorted" in what or "5.2" in what for what in named)
    assert "7 -> 8" in named  # a number in a sentence is a number


def made(name: str = "suite.made_up") -> ModuleType:
    module = ModuleType(name)
    module.__file__ = "made_up.py"
    exec(SOURCE, module.__dict__)
    return module


def one(what: str, function: str) -> Mutation:
    return next(mutation for mutation in mutations(SOURCE) if (mutation.what, mutation.function) == (what, function))


def test_a_change_counts_for_everybody_who_imported_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = made()
    importer: Any = ModuleType("suite.importer")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, importer.__name__, importer)
    held = module.first
    importer.LIMIT = module.LIMIT
    assert held([5, 1], 1) == 1
    swap(module, one("min -> max", "first()").statement)
    assert held([5, 1, 4], 1) == 4
    swap(module, one("3 -> 4", "").statement)
    assert (module.LIMIT, importer.LIMIT) == (4, 4)
    judge = module.Judge
    assert not judge().over(0.4)
    swap(module, one("value > self.bound -> value <= self.bound", "Judge.over()").statement)
    assert judge().over(0.4)
    with pytest.raises(NotSwapped):
        swap(module, ast.parse("import os").body[0])


def test_which_tests_are_asked() -> None:
    assert [file.name for file in quick_tests_of("release/fallback")] == ["test_judges_fallback.py"]
    assert {name.split("/")[0] for name in modules()} == {
        "equivalence",
        "efficiency",
        "recovery",
        "stragglers",
        "inputs",
        "release",
        "reports",
    }
    assert modules(["inputs/cases"]) == ["inputs/cases"]
    with pytest.raises(ValueError, match="no judge 'inputs/none'"):
        modules(["inputs/none"])


def test_results_are_counted(tmp_path: Path) -> None:
    lives = (Survivor(3, "f()", "a < b -> a <= b", 4), Survivor(4, "f()", "1 -> 2", 0), Survivor(9, "g()", "1 -> 2", 2))
    sheets = {"inputs/cases": Sheet("0", 10, lives, 2), "release/quality": Sheet("1", 10, ())}
    excuse = Excuse("inputs/cases", "both are zero there", True, "f()", ("a < b -> a <= b",))
    total = counted(sheets, [excuse])
    assert (total.mutants, total.killed, total.equivalent, total.survived) == (20, 17, 1, 2)
    assert total.share == pytest.approx(17 / 19)
    shown = page(sheets, [excuse], ["release/quality"], ["inputs/broken"])
    assert (
        "20 mutants: 17 killed, 1 equivalent, 2 survived. Of the 19 that can be told from the original 89.5% are killed, of all 85.0%."
        in shown
    )
    for words in (
        "both are zero there",
        "No quick test runs this line.",
        "No test asks for it yet.",
        "only each 2. mutant was tried",
        "Not mutated yet: inputs/broken.",
    ):
        assert words in shown
    assert Sheet.from_json(sheets["inputs/cases"].to_json()) == sheets["inputs/cases"]
    file = tmp_path / "survivors.toml"
    file.write_text(
        '[[equivalent]]\nmodule = "inputs/cases"\nreason = "both are zero there"\nfunction = "f()"\nchanges = ["a < b -> a <= b"]\n'
    )
    assert read_excuses(file) == [excuse]
    file.write_text('[[open]]\nmodule = "inputs/cases"\n')
    with pytest.raises(ValueError, match="no reason"):
        read_excuses(file)

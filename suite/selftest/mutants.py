"""Mutants of the judges: `python -m suite.selftest.mutants [MODULE ...]` breaks each judge in many small ways and counts what its own tests notice.

Comparisons are flipped, thresholds moved, ranks swapped, conditions negated. mutmut and cosmic-ray start Python anew for each mutant, 6 s with torch and
pandas; here each is a fork of one warm process, in which only the mutated module and the tests are imported: about 1 s. Exit code 1 below 95 %.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
TIME_LIMIT_S = 60
REQUIRED_SHARE = 0.95
STATE, SCALE = "suite/selftest/test_judges_equivalence_state.py", "suite/selftest/test_judges_equivalence_scale.py"
NUMBERS, SAMPLES = "suite/selftest/test_judges_equivalence_numbers.py", "suite/selftest/test_judges_equivalence_samples.py"
TESTS = {
    **dict.fromkeys(("buffers", "unused", "scaler", "rates", "draws", "workers", "reshuffling", "repeats", "overfit"), STATE),
    **dict.fromkeys(("weights", "normalisation", "micro_batches", "batch_size", "clipping", "precision", "evaluation"), SCALE),
    **dict.fromkeys(("gradient", "trajectory", "cause", "power", "agreement"), NUMBERS),
    **dict.fromkeys(("ledger", "coverage", "order", "recognition"), SAMPLES),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module. line: where; what: the change in words; source: all of it."""

    module: str
    line: int
    what: str
    source: str


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a judge's module, in the order of its lines."""
    tree = ast.parse((ROOT / "suite" / "equivalence" / f"{module}.py").read_text())
    count = sum(1 for _ in ast.walk(tree))
    for place in range(count):
        changed = copy.deepcopy(tree)
        node = next(one for index, one in enumerate(ast.walk(changed)) if index == place)
        if said := _mutate(node):
            yield Mutant(module, getattr(node, "lineno", 0), said, ast.unparse(changed))


def _mutate(node: ast.AST) -> str:
    """Change a node in place; what was done, "" where nothing can be."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
        return f"comparison became {ast.unparse(node)}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        return f"condition became {ast.unparse(node)}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
        return f"negation went away: {ast.unparse(node)}"
    if isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
        node.id = NAMES[node.id]
        return f"became {node.id}"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value = (
            (not node.value) if isinstance(node.value, bool) else (node.value + 1 if isinstance(node.value, int) else node.value * 3)
        )
        return f"constant became {node.value}"
    return ""


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from its mutated source."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.mutant = f"suite.equivalence.{mutant.module}", mutant

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.source, f"{self.mutant.module} (mutant)", "exec"), module.__dict__)


def survives(mutant: Mutant) -> bool:
    """Whether the module's own tests pass with the mutant in its place. One that never ends is noticed, too."""
    child = os.fork()
    if not child:
        _try(mutant)
    signal.signal(signal.SIGALRM, lambda number, frame: os.kill(child, signal.SIGKILL))
    signal.alarm(TIME_LIMIT_S)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    return os.waitstatus_to_exitcode(status) == 0


def _try(mutant: Mutant) -> None:
    """In the child: run the tests, silently, and leave with their exit code."""
    import pytest

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.meta_path.insert(0, _Mutated(mutant))
    code = 3
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ROOT / TESTS[mutant.module])]))
    finally:
        os._exit(code)


def main(chosen: Sequence[str]) -> int:
    """Try all mutants of the chosen modules (of all, where none is named); print survivors and the share that was killed."""
    os.chdir(ROOT)
    _warm_up()
    made = killed = 0
    for module in chosen or sorted(TESTS):
        here = [(mutant, survives(mutant)) for mutant in mutants(module)]
        for mutant, lives in here:
            if lives:
                print(f"{module}.py:{mutant.line}: {mutant.what}", flush=True)
        made, killed = made + len(here), killed + sum(not lives for _, lives in here)
        print(f"{module}: {sum(not lives for _, lives in here)} of {len(here)} killed", flush=True)
    print(f"{killed} of {made} mutants killed ({killed / max(made, 1):.1%})")
    return 0 if made and killed >= REQUIRED_SHARE * made else 1


def _warm_up() -> None:
    """What every child needs, imported once; none of the judges."""
    import numpy
    import pandas
    import pytest
    import scipy.stats

    import fixtures.trace
    import suite.selftest.synthetic

    assert all((numpy, pandas, pytest, scipy.stats, fixtures.trace, suite.selftest.synthetic))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

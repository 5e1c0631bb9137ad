"""What is mutated, and by whose tests: the judges of every room, what may be concluded from them, and the tests that import them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("equivalence", "efficiency", "recovery", "stragglers", "inputs", "release")
CONCLUSIONS = ("decide", "statistics", "verdicts", "compare*")
LAYOUT = {
    "reports/compare_text",
    "reports/compare_files",
}  # text and files of a comparison that is concluded elsewhere: wording and layout alone
TESTS = (
    "test_judges_*.py",
    "test_decide*.py",
    "test_statistics*.py",
    "test_verdicts*.py",
    "test_compare_*.py",
    "test_crash_window.py",
    "test_watch.py",
)
STARTS_RANKS = re.compile(r"_runs\.py$")


def modules(chosen: Sequence[str] = ()) -> list[str]:
    """The chosen modules ("equivalence/cause"), all of a chosen room ("equivalence"), or all. Raises ValueError for one that there is not."""
    every = [f"{room}/{file.stem}" for room in ROOMS for file in sorted((ROOT / "suite" / room).glob("*.py")) if _is_judge(file)]
    found = (f"reports/{file.stem}" for pattern in CONCLUSIONS for file in sorted((ROOT / "reports").glob(f"{pattern}.py")))
    every += [name for name in found if name not in LAYOUT]
    for name in chosen:
        if not any(name in {one, one.split("/")[0]} for one in every):
            raise ValueError(f"there is no judge {name!r}; choose a room or a module of {', '.join(every)}")
    return [one for one in every if not chosen or {one, one.split("/")[0]} & set(chosen)]


def import_name(module: str) -> str:
    """ "equivalence/cause" -> "suite.equivalence.cause"."""
    return ("" if module.startswith("reports/") else "suite.") + module.replace("/", ".")


def quick_tests_of(name: str) -> list[Path]:
    """The test files that import a module themselves, as they know best what it has to do; where there is none, those that reach it."""
    wanted = import_name(name)
    direct = [file for file in quick_tests() if wanted in _imports(file)]
    return direct or [file for file in quick_tests() if wanted in _reachable(_imports(file))]


def quick_tests() -> list[Path]:
    """All test files of judges that start no rank."""
    files = sorted({file for pattern in TESTS for file in (ROOT / "suite" / "selftest").glob(pattern)})
    return [file for file in files if not STARTS_RANKS.search(file.name)]


def _is_judge(file: Path) -> bool:
    """Neither a criterion nor what asks an audit for runs and finds nothing itself: those are tried by tests that start ranks."""
    text = file.read_text()
    return not file.name.startswith(("test_", "__init__")) and ("Finding" in text or "import Audit" not in text)


def _reachable(first: frozenset[str]) -> set[str]:
    seen: set[str] = set()
    waiting = set(first)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= _imports_of(name) - seen
    return seen


def _imports_of(name: str) -> frozenset[str]:
    file = ROOT / (name.replace(".", "/") + ".py")
    return _imports(file) if file.exists() else frozenset()


@cache
def _imports(file: Path) -> frozenset[str]:
    return frozenset(_imported(ast.parse(file.read_text())))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in {"suite", "reports"}:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)

"""What the judges found in each selftest, kept and compared: verdict, value, bound, samples, and whom they named, not the words they said it in.

A test asserts what it is about; whatever else the same findings say (another value, one step further, the wrong rank in the table) is held here against
`findings/<test file>.json`. After a judge was changed on purpose: `python -m suite.selftest.recorded [TEST FILE ...]` writes them again; read the
difference before it is committed. Tests that are not in the file are not compared, such as those whose numbers come from a clock.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fixtures.trace import Trace
from reports.evidence import Finding
from suite.selftest.mutants.scope import ROOT, STARTS_RANKS, import_name, modules, quick_tests

FOLDER = Path(__file__).with_name("findings")
LISTED = 12  # of the results of one test
NAMED, LONGEST, DETAILS = 12, 100, " | "
NAMES = re.compile(r"\b(?:rank|step|epoch|group) \d+|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?%?|\b[a-z_]+\d*\.[a-z_]+")
NOTHING = 1e-13  # what is left of an exact cancellation differs between machines


@dataclass(slots=True)
class Recording:
    """The results of one test, in the order in which the judges returned them."""

    results: list[str] = field(default_factory=list)

    def listed(self) -> list[str]:
        """The first ones, and how many there are."""
        return [*self.results[:LISTED], str(len(self.results))]

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose results are noted, or what it raises."""

        @wraps(function)
        def noted(*arguments: Any, **named: Any) -> Any:
            try:
                result = function(*arguments, **named)
            except Exception as error:
                self.results.append(f"{function.__name__} raises {type(error).__name__} {' '.join(_names(str(error)))}")
                raise
            if line := said(result):
                self.results.append(f"{function.__name__} {line}")
            return result

        return noted


def said(result: object) -> str:
    """A result on one line; "" for what is too long to be read there. Of a finding the digest of each detail follows behind a bar."""
    if isinstance(result, Finding):
        short = [
            result.accepted,
            "absent" if result.absent else "",
            facts(result.value),
            facts(result.bound),
            facts(result.interval),
            result.samples,
        ]
        details = [f"{key}{_digest(facts(value))}" for key, value in sorted(result.details.items())]
        return " ".join(map(str, [*short, *_names(result.explanation)[:NAMED], DETAILS, *details]))
    text = json.dumps(facts(result), sort_keys=True)
    return text if len(text) <= LONGEST and not is_dataclass(result) else ""


def as_before(before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether the results of a test are those that are kept; a finding may have further details."""
    return len(before) == len(now) and all(_same(one, two) for one, two in zip(before, now, strict=True))


def _same(before: str, now: str) -> bool:
    (one, _, old), (two, _, new) = before.partition(DETAILS), now.partition(DETAILS)
    return one == two and set(old.split()) <= set(new.split())


def facts(value: object) -> Any:
    """What a result says, without its words: numbers to six digits, texts as the numbers and names in them, everything in a fixed order."""
    if isinstance(value, str):
        return _names(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float | np.floating):
        return _rounded(float(value))
    if isinstance(value, Trace):
        return "trace"
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: facts(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): facts(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, Set):
        return sorted(json.dumps(facts(item), sort_keys=True) for item in value)
    if isinstance(value, np.ndarray):
        return facts(value.tolist())
    if isinstance(value, pd.DataFrame | pd.Series):
        return facts(value.to_dict())
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [facts(item) for item in value]
    return facts(value.item()) if isinstance(value, np.generic) else type(value).__name__


def judges_in(module: ModuleType) -> dict[str, FunctionType]:
    """The functions of judges that a test file imported, by the name that it knows them by."""
    return {name: value for name, value in vars(module).items() if isinstance(value, FunctionType) and value.__module__ in _known()}


@cache
def _known() -> frozenset[str]:
    return frozenset(import_name(name) for name in modules())


@cache
def stored(file: Path) -> dict[str, list[str]]:
    """The kept results of a test file, by test; empty where none are kept."""
    kept = FOLDER / f"{file.stem}.json"
    return json.loads(kept.read_text()) if kept.exists() else {}


@dataclass(slots=True, eq=False)
class Renewing:
    """A pytest plugin: the results of this session's tests are to be kept, not compared."""

    kept: dict[Path, dict[str, list[str]]] = field(default_factory=dict)

    def keep(self, file: Path, test: str, results: list[str]) -> None:
        self.kept.setdefault(file, {})[test] = results

    def pytest_sessionfinish(self) -> None:
        FOLDER.mkdir(exist_ok=True)
        for file, found in self.kept.items():
            lines = [f"{json.dumps(name)}: {json.dumps(results)}" for name, results in sorted(found.items()) if len(results) > 1]
            (FOLDER / f"{file.stem}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _names(text: str) -> list[str]:
    return NAMES.findall(text)


def _rounded(value: float) -> str:
    return "0" if abs(value) < NOTHING else f"{value:.6g}" if math.isfinite(value) else str(value)


def _digest(value: object) -> str:
    return "#" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def main(chosen: Sequence[str]) -> int:
    """Run the tests of all judges (or the chosen files) and keep what the judges found; pytest's exit code."""
    files = [ROOT / file for file in chosen] or quick_tests()
    assert not any(STARTS_RANKS.search(file.name) for file in files), "what real ranks measure differs from run to run"
    return int(pytest.main(["-q", "-p", "no:cacheprovider", *map(str, files)], plugins=[Renewing()]))


if __name__ == "__main__":
    from suite.selftest.recorded import main as renew  # the module that the tests know, of which this one is a second copy

    sys.exit(renew(sys.argv[1:]))

"""Tries mutants: pytest collects the tests once, learns which test runs which line, and then each mutant is a fork of that process.

mutmut and cosmic-ray start Python anew for each mutant, 6 s with pandas; here a mutant costs some 30 ms and the tests that run its lines, quickest
first, up to the first one that fails. Not asked are tests of more than a second, those that start ranks, and what goes beyond two seconds a mutant.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from suite.selftest.mutants.operators import Mutation, mutations
from suite.selftest.mutants.scope import direct_tests
from suite.selftest.mutants.swap import NotSwapped, swap

TIME_LIMIT_S = 20
MEMORY_LIMIT_BYTES = 4 << 30
TEST_LIMIT_S, TESTS_LIMIT_S = 1.0, 2.0
KILLED, SURVIVED, UNTRIED = "killed", "survived", "untried"


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a mutant: killed, survived, or untried where it could not be put in place. tests: how many run its lines."""

    mutation: Mutation
    outcome: str
    tests: int


@dataclass(slots=True, eq=False)
class Trial:
    """A pytest plugin that tries mutants in place of running the tests. modules: by name, what to mutate; done: told of each module's mutants."""

    modules: dict[str, ModuleType]
    done: Callable[[str, list[Tried], str], None]
    only: str = ""
    failed: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reached = self._reached(session.items)
        if self.failed:
            raise pytest.UsageError(f"tests fail without any mutant, mend them first: {', '.join(self.failed)}")
        gc.collect()
        gc.freeze()
        for name, module in self.modules.items():
            source = Path(module.__file__ or "").read_text()
            found = [mutation for mutation in mutations(source) if not self.only or self.only in mutation.function]
            tried = list(self._try_all(module, found, reached))
            self.done(name, tried, hashlib.sha256(source.encode()).hexdigest())
        return True

    def _reached(self, items: Sequence[pytest.Item]) -> list[tuple[float, pytest.Item, set[tuple[str, int]]]]:
        """Each test with its seconds and the lines of the judges that it runs, quickest first."""
        files = {module.__file__ for module in self.modules.values()}
        found = []
        for item in items:
            lines: set[tuple[str, int]] = set()
            started = time.process_time()
            _traced(lambda item=item: _run(item), files, lines)  # type: ignore[misc]
            seconds = time.process_time() - started
            if lines and seconds <= 2 * TEST_LIMIT_S:  # tracing takes about as long again
                found.append((seconds / 2, item, lines))
        return sorted(found, key=lambda one: one[0])

    def _try_all(self, module: ModuleType, found: Sequence[Mutation], reached: Sequence[Any]) -> Iterator[Tried]:
        file = module.__file__ or ""
        direct = set(direct_tests(module.__name__))
        own = [(seconds, item, {line for name, line in lines if name == file}) for seconds, item, lines in reached]
        own.sort(key=lambda one: (one[1].path not in direct, one[0]))
        inside = _entered(file)
        for mutation in found:
            wanted = set(range(mutation.first, mutation.last + 1)) if "()" in mutation.function else inside
            items = _affordable([(seconds, item) for seconds, item, lines in own if lines & wanted])
            outcome = self._try(module, mutation, items) if items else SURVIVED
            yield Tried(mutation, outcome, len(items))

    def _try(self, module: ModuleType, mutation: Mutation, items: Sequence[pytest.Item]) -> str:
        """In a child of its own; one that never ends, or eats the memory, is noticed by its end."""
        child = os.fork()
        if not child:
            _limit()
            code = 3
            try:
                code = self._in_child(module, mutation, items)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return {0: SURVIVED, 3: UNTRIED}.get(os.waitstatus_to_exitcode(status), KILLED)

    def _in_child(self, module: ModuleType, mutation: Mutation, items: Sequence[pytest.Item]) -> int:
        folder = _own_folder(items[0].config)
        try:
            swap(module, mutation.statement)
        except NotSwapped:
            return 3
        except Exception:  # noqa: BLE001 - whatever the changed statement raises at import, every test would notice
            return 1
        for item in items:
            _run(item)
            if self.failed:
                break
        shutil.rmtree(folder, ignore_errors=True)
        return 1 if self.failed else 0


def _affordable(asked: Sequence[tuple[float, pytest.Item]]) -> list[pytest.Item]:
    """As many as fit, from the first on, one at least."""
    spent = list(itertools.accumulate(seconds for seconds, _ in asked))
    return [item for (_, item), until in zip(asked, spent, strict=True) if until <= max(TESTS_LIMIT_S, spent[0])]


def _run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _traced(run: Callable[[], None], files: set[str | None], lines: set[tuple[str, int]]) -> None:
    """Run, and note every line of these files that is run."""

    def local(frame: FrameType, event: str, argument: object) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        return local(frame, event, argument) if frame.f_code.co_filename in files else None

    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(None)


def _entered(file: str) -> set[int]:
    """All lines of a file: whoever runs one of them may notice a change of its constants."""
    return set(range(1, len(Path(file).read_text().splitlines()) + 1))


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 10 * TIME_LIMIT_S)  # the machine may be busy: what counts is the processor time
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT_S, TIME_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)


def _own_folder(config: pytest.Config) -> Path:
    """Temporary folders of this child's own below the session's, so that they can go with it."""
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    folder = Path(factory.getbasetemp()) / f"mutant{os.getpid()}"
    folder.mkdir()
    factory._basetemp = folder
    return folder

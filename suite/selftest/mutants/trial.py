"""Tries mutants: pytest collects the tests once, learns which test runs which line, and then each mutant is a fork of that process.

mutmut and cosmic-ray start Python anew for each mutant, 6 s with pandas; here a mutant costs some 30 ms and the tests that run its lines, quickest
first, up to the first one that fails. Not asked are tests of more than a second, those that start ranks, and what goes beyond a second a mutant.
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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from suite.selftest.mutants.operators import Mutation, mutations
from suite.selftest.mutants.swap import NotSwapped, swap

TIME_LIMIT_S = 20
MEMORY_LIMIT_BYTES = 4 << 30
TEST_LIMIT_S, TESTS_LIMIT_S = 1.0, 1.0
KILLED, SURVIVED, UNTRIED = "killed", "survived", "untried"


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a mutant: killed, survived, or untried where it could not be put in place. tests: how many run its lines."""

    mutation: Mutation
    outcome: str
    tests: int


@dataclass(slots=True, eq=False)
class Trial:
    """A pytest plugin that tries the mutants of a module in place of running the tests.

    done: told what became of them, and the digest of the source. only: a function, where not all are asked for; every: try each n-th.
    """

    module: ModuleType
    done: Callable[[list[Tried], str], None]
    only: str = ""
    every: int = 1
    failed: list[str] = field(default_factory=list)
    in_child: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """The first failure decides: a child ends there, before anything is said about it."""
        if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
            if self.in_child:
                os._exit(1)
            self.failed.append(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reached = self._reached(session.items)
        if self.failed:
            raise pytest.UsageError(f"tests fail without any mutant, mend them first: {', '.join(self.failed)}")
        gc.collect()
        gc.freeze()
        source = Path(self.module.__file__ or "").read_text()
        found = [mutation for mutation in mutations(source) if self.only in mutation.function]
        self.done(list(self._try_all(found[:: self.every], reached)), hashlib.sha256(source.encode()).hexdigest())
        return True

    def _reached(self, items: Sequence[pytest.Item]) -> list[tuple[float, pytest.Item, set[int]]]:
        """Each test with its seconds and the lines of the module that it runs, quickest first."""
        found = []
        for item in items:
            lines: set[int] = set()
            started = time.process_time()
            _traced(lambda item=item: _run(item), self.module.__file__ or "", lines)  # type: ignore[misc]
            seconds = (time.process_time() - started) / 2  # tracing takes about as long again
            if lines and seconds <= TEST_LIMIT_S:
                found.append((seconds, item, lines))
        return sorted(found, key=lambda one: one[0])

    def _try_all(self, found: Sequence[Mutation], reached: Sequence[tuple[float, pytest.Item, set[int]]]) -> Iterator[Tried]:
        anywhere = set(range(1, len(Path(self.module.__file__ or "").read_text().splitlines()) + 1))
        for mutation in found:
            # Whoever runs any line of a module may notice a change of its constants.
            wanted = set(range(mutation.first, mutation.last + 1)) if "()" in mutation.function else anywhere
            items = _affordable([(seconds, item) for seconds, item, lines in reached if lines & wanted])
            yield Tried(mutation, self._try(mutation, items) if items else SURVIVED, len(items))

    def _try(self, mutation: Mutation, items: Sequence[pytest.Item]) -> str:
        """In a child of its own; one that never ends, or eats the memory, is noticed by its end."""
        folder = Path(tempfile.mkdtemp(dir=items[0].config._tmp_path_factory.getbasetemp()))  # type: ignore[attr-defined]
        child = os.fork()
        if not child:
            _limit()
            gc.disable()
            items[0].config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
            code = 3
            try:
                code = self._in_child(mutation, items)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
        return {0: SURVIVED, 3: UNTRIED}.get(os.waitstatus_to_exitcode(status), KILLED)

    def _in_child(self, mutation: Mutation, items: Sequence[pytest.Item]) -> int:
        try:
            swap(self.module, mutation.statement)
        except NotSwapped:
            return 3
        except Exception:  # noqa: BLE001 - whatever the changed statement raises at import, every test would notice
            return 1
        self.in_child = True
        for item in items:
            _run(item)
        return 0


def _affordable(asked: Sequence[tuple[float, pytest.Item]]) -> list[pytest.Item]:
    """As many as fit, from the first on, one at least."""
    spent = list(itertools.accumulate(seconds for seconds, _ in asked))
    return [item for (_, item), until in zip(asked, spent, strict=True) if until <= max(TESTS_LIMIT_S, spent[0])]


def _run(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _traced(run: Callable[[], None], file: str, lines: set[int]) -> None:
    """Run, and note every line of this file that is run."""

    def local(frame: FrameType, event: str, argument: object) -> Any:
        lines.add(frame.f_lineno)
        return local

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        return local(frame, event, argument) if frame.f_code.co_filename == file else None

    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(None)


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 10 * TIME_LIMIT_S)  # the machine may be busy: what counts is the processor time
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT_S, TIME_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)

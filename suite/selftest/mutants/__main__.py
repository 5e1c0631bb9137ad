"""`python -m suite.selftest.mutants [ROOM|MODULE ...]`: mutate the judges, try their tests on each mutant, write docs/mutation.md.

Results are kept beside the page (`mutation.json`), module by module with the digest of the source they are about. Exit code 0 where at least 95 % of the
mutants that can be told from the original are killed, 1 below, 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from suite.selftest.mutants.operators import mutations
from suite.selftest.mutants.scope import ROOT, import_name, modules, quick_tests_of
from suite.selftest.mutants.sheet import REQUIRED_SHARE, Sheet, Survivor, counted, page, read_excuses
from suite.selftest.mutants.trial import KILLED, SURVIVED, Trial, Tried

STORE, PAGE = ROOT / "docs" / "mutation.json", ROOT / "docs" / "mutation.md"
EXCUSES = Path(__file__).with_name("survivors.toml")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        chosen = modules(asked.modules)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.unfinished:
        chosen = [name for name in chosen if name not in _stored() or _changed(name, _stored()[name])]
    if not asked.page:
        _warm_up()
        for name in chosen:
            if _in_child(name, asked.function, asked.every):
                print(f"error: the tests of {name} could not be tried, see above", file=sys.stderr)
                return 2
    if asked.function:
        return 0
    return _write()


def _in_child(name: str, function: str, every: int) -> int:
    """Mutate one module in a process of its own, so that the next one's tests find nothing changed; its exit code."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = _mutate(name, function, every)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _mutate(name: str, function: str, every: int) -> int:
    """Try every mutant of a module and renew its result; pytest's exit code."""
    began = time.monotonic()

    def done(tried: list[Tried], sha256: str) -> None:
        lives = [
            Survivor(one.mutation.first, one.mutation.function, one.mutation.what, one.tests) for one in tried if one.outcome != KILLED
        ]
        for one in lives:
            print(f"  {name}:{one.line} {one.function} {one.what}  [{one.tests} tests]", flush=True)
        print(f"{name}: {len(tried) - len(lives)} of {len(tried)} killed ({time.monotonic() - began:.0f} s)", flush=True)
        if not function:
            _keep({**_stored(), name: Sheet(sha256, len(tried), tuple(lives), every)})

    if not (files := quick_tests_of(name)):  # nothing to ask: every mutant survives
        source = _file(name).read_text()
        done([Tried(one, SURVIVED, 0) for one in list(mutations(source))[::every]], hashlib.sha256(source.encode()).hexdigest())
        return 0
    trial = Trial(importlib.import_module(import_name(name)), done, function, every)
    with tempfile.TemporaryDirectory(prefix="rankproof-mutants-") as folder:
        options = ["-qq", "-s", "--timeout=0", "--assert=plain", "--tb=native", "-p", "no:cacheprovider", "-p", "no:xdist"]
        return int(pytest.main([*options, f"--basetemp={folder}/tests", *map(str, files)], plugins=[trial]))


def _warm_up() -> None:
    """What every child needs, imported once; none of the judges."""
    for name in ("pandas", "scipy.stats", "pyarrow"):
        importlib.import_module(name)


def _write() -> int:
    stored = _stored()
    sheets = {name: stored[name] for name in modules() if name in stored}
    _keep(sheets)
    excuses = read_excuses(EXCUSES)
    changed = [name for name, sheet in sheets.items() if _changed(name, sheet)]
    PAGE.write_text(page(sheets, excuses, changed, [name for name in modules() if name not in sheets]))
    total = counted(sheets, excuses)
    print(f"{total.killed} of {total.mutants} mutants killed, {total.equivalent} equivalent: {total.share:.1%}; {PAGE.relative_to(ROOT)}")
    return 0 if total.mutants and total.share >= REQUIRED_SHARE else 1


def _stored() -> dict[str, Sheet]:
    return {name: Sheet.from_json(value) for name, value in json.loads(STORE.read_text()).items()} if STORE.exists() else {}


def _keep(sheets: dict[str, Sheet]) -> None:
    STORE.write_text(json.dumps({name: sheet.to_json() for name, sheet in sorted(sheets.items())}, indent=1) + "\n")


def _changed(name: str, sheet: Sheet) -> bool:
    return hashlib.sha256(_file(name).read_bytes()).hexdigest() != sheet.sha256


def _file(name: str) -> Path:
    return ROOT / (import_name(name).replace(".", "/") + ".py")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m suite.selftest.mutants", description="Break each judge in small ways and count what its tests notice."
    )
    parser.add_argument("modules", nargs="*", help="a room (equivalence) or a module (equivalence/cause); all where none is named")
    parser.add_argument("--function", default="", help="only mutants of this function; nothing is stored")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try only each N-th mutant, spread over the whole module")
    parser.add_argument("--unfinished", action="store_true", help="leave out modules that have a result and did not change since")
    parser.add_argument("--page", action="store_true", help="only write the page again from what is stored")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Two audits compared: is the head still as right and as fast as the base?

Verdicts come first, then numbers; what is right is never weighed against what is fast. Exit codes: 0 accept, 1 regression or a criterion that
newly fails or has gone, 2 wrong use, 3 the two cannot be compared, 4 undecided, 5 nothing measured. The worst of these that applies, in the
order 2, 5, 3, 1, 4, 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from reports.compare_benchmarks import benchmark_rows
from reports.compare_context import FIELDS, mismatches, notes
from reports.compare_find import Side, find
from reports.compare_model import ALWAYS_FAIL, MAY_FAIL, Comparison, Row, order
from reports.compare_policy import CompareBounds, load_bounds
from reports.compare_rows import criterion_rows
from reports.evidence import EvidenceError
from reports.policy import Policy, check_waivers, load_policy


def compare(
    base: Side,
    head: Side,
    policy: Policy,
    bounds: CompareBounds,
    *,
    allow_mismatch: Sequence[str] = (),
    fail_on: Sequence[str] = (),
    allow_missing: Sequence[str] = (),
) -> Comparison:
    """The comparison; a pure function. Nothing is joined where a side measured nothing or a mismatch was not allowed."""
    found = mismatches(base.evidence, head.evidence, allow_mismatch)
    empty = _empty(base, head)
    told = tuple(side.note for side in (base, head) if side.note) + notes(base.evidence, head.evidence)
    rows: tuple[Row, ...] = ()
    if not empty and all(item.allowed for item in found):
        both = (*criterion_rows(base.evidence, head.evidence, policy, bounds), *benchmark_rows(base.benchmarks, head.benchmarks, bounds))
        rows = tuple(sorted(both, key=order))
    failing = tuple(dict.fromkeys([*ALWAYS_FAIL, *fail_on]))
    return Comparison(base.title, head.title, found, told, rows, failing, tuple(allow_missing), empty)


def _empty(base: Side, head: Side) -> str:
    names = [name for name, side in (("base", base), ("head", head)) if not side.measured]
    return f"Nothing was measured in the {' and the '.join(names)}: there is no record and no benchmark." if names else ""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb of `python -m reports`."""
    parser = commands.add_parser("compare", help="compare two audits: verdict changes first, then numbers by interval", description=__doc__)
    parser.add_argument("base", metavar="BASE", help="the directory of an audit, its name below audits/, or a commit")
    parser.add_argument("head", metavar="HEAD", help="the same for the audit that is to be accepted")
    parser.add_argument("--audits", type=Path, default=Path("audits"), metavar="DIR", help="where names and commits are looked up")
    parser.add_argument("--job", default="", metavar="NAME", help="the job, where a commit has audits of several")
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="critical criteria, waivers and bounds from here instead of reports/policy.toml"
    )
    repeated = {"action": "append", "default": []}
    parser.add_argument("--allow-mismatch", choices=FIELDS, help="compare although this differs; may be repeated", **repeated)  # type: ignore[arg-type]
    parser.add_argument("--fail-on", choices=MAY_FAIL, help="exit 1 for this too; may be repeated", **repeated)  # type: ignore[arg-type]
    parser.add_argument("--allow-missing", metavar="ID", help="this criterion or benchmark may be gone; may be repeated", **repeated)  # type: ignore[arg-type]
    for name in ("json", "markdown", "junit"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"write the comparison as {name} too")
    parser.set_defaults(run=run)


def run(asked: argparse.Namespace) -> int:
    """Print the comparison, write the files asked for, and return the exit code. Raises EvidenceError and PolicyError."""
    from reports.compare_files import as_json, as_junit, as_markdown
    from reports.compare_text import as_text

    policy, bounds = load_policy(asked.policy), load_bounds(asked.policy)
    base, head = (find(name, asked.audits, asked.job) for name in (asked.base, asked.head))
    if head.evidence.catalogue:
        check_waivers(policy, head.evidence.catalogue, datetime.now(UTC))
    found = compare(
        base, head, policy, bounds, allow_mismatch=asked.allow_mismatch, fail_on=asked.fail_on, allow_missing=asked.allow_missing
    )  # fmt: skip
    for file, render in ((asked.json, as_json), (asked.markdown, as_markdown), (asked.junit, as_junit)):
        if file is not None:
            _write(file, render(found))
    print(as_text(found), end="")
    return found.exit_code


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EvidenceError(f"{file} cannot be written: {error.strerror}; name a file in a folder that exists.") from error

"""`python -m suite judge | watch | metrics | requirements`: judge stored traces again, say what is the matter with a run, show what was asked for.

judge DIR     stored traces -> evidence -> decision, with no GPU and no rerun; exits 0 approve, 1 reject, 2 usage, 4 hold
watch RUN     a run under way (or over): exits 0 every rank moves, 1 a rank is named, 2 usage
metrics RUN   the same run as OpenMetrics text
requirements  every line that was asked for, the command that shows it, and what it printed; exits 0 all shown, 1 one is not, 2 usage
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports.evidence import EvidenceError, load

ROOT = Path(__file__).resolve().parents[1]
EXIT_OF_DECISION = {"approve": 0, "reject": 1, "hold": 4}
EXIT_NAMED = 1
EXIT_NOT_SHOWN = 1
EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    from fixtures.rejudge import RejudgeError
    from fixtures.trace import TraceError

    asked = _parser().parse_args(arguments)
    try:
        return int(asked.run(asked))
    except (RejudgeError, EvidenceError, TraceError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m suite", description="Judge the stored traces of an audit again, or look at one run.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    judge = commands.add_parser("judge", help="judge stored traces again and rewrite evidence, audit.json and audit.html")
    judge.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    judge.add_argument("--criterion", metavar="ID", help="only this criterion, with its explanation")
    judge.set_defaults(run=lambda asked: _judge(asked.audit_dir, asked.criterion))
    watch = commands.add_parser("watch", help="name the rank that is gone, stands still, or makes the others wait")
    watch.add_argument("run_dir", type=Path, metavar="RUN", help="the directory that the run's probe writes to (RANKPROOF_TRACE)")
    watch.add_argument(
        "--stall-s", type=float, metavar="S", help="silence after which the world stands still (default: from the run's own steps)"
    )
    watch.add_argument(
        "--late-share", type=float, default=0.10, metavar="X", help="lateness that makes a rank slow, as a share of a step (default 0.10)"
    )
    watch.add_argument("--stacks", action="store_true", help="have every rank of this machine write its Python stack first")
    watch.set_defaults(run=_watch)
    metrics = commands.add_parser("metrics", help="print a run's metrics as OpenMetrics text")
    metrics.add_argument("run_dir", type=Path, metavar="RUN", help="the directory that the run's probe writes to (RANKPROOF_TRACE)")
    metrics.set_defaults(run=_metrics)
    asked_for = commands.add_parser("requirements", help="run what shows each line that was asked for; print the table in Markdown")
    asked_for.add_argument("--audit", type=Path, required=True, metavar="DIR", help="an audit of the flights job")
    asked_for.add_argument("--naive", type=Path, required=True, metavar="DIR", help="an audit of the naive job")
    asked_for.add_argument("--only", default="", metavar="WORDS", help="only the lines whose text holds these words")
    asked_for.set_defaults(run=_requirements)
    return parser


def _judge(folder: Path, only: str | None) -> int:
    from fixtures.measure import measure
    from fixtures.rejudge import rejudge
    from fixtures.session import decision_lines, render

    changed = 0
    for judged in rejudge(folder, ROOT / "suite", only):
        differs = judged.before != judged.now
        changed += differs
        if only or differs:
            said = f" (stored: {judged.before})" if differs else ""
            print(f"{judged.id} [{judged.backend}-{judged.part}] {judged.now}{said}: {judged.explanation}")
    if not load(folder).meta.get("altered_runs"):  # figures stay as they were measured, where their traces are no longer what they were
        measure(folder)
    audit = render(folder)
    print(*decision_lines(audit, folder), sep="\n")
    print("same verdicts as stored" if not changed else f"{changed} verdicts differ from the stored ones")
    return EXIT_OF_DECISION[audit["decision"]["verdict"]]


def _watch(asked: argparse.Namespace) -> int:
    from fixtures.live import look, processes
    from fixtures.watch import ask_stacks
    from suite.stragglers.watching import what_is_wrong

    live = look(asked.run_dir)
    if asked.stacks:
        ask_stacks(processes(live), asked.run_dir)
        live = look(asked.run_dir)
    seen = what_is_wrong(live, bound=asked.late_share, stall_s=asked.stall_s)
    print(seen.words)
    return EXIT_NAMED if seen.ranks else 0


def _metrics(asked: argparse.Namespace) -> int:
    from fixtures.live import look
    from fixtures.metrics import openmetrics, samples_of

    print(openmetrics(samples_of(look(asked.run_dir))), end="")
    return 0


def _requirements(asked: argparse.Namespace) -> int:
    from suite.requirements import heading, lines, shown, table

    wanted = [line for line in lines() if asked.only.lower() in line.asked.lower()]
    audits = {"audit": asked.audit.resolve(), "naive": asked.naive.resolve()}
    results = shown(wanted, audits)
    print(table(wanted, results, heading(load(asked.audit).meta)))
    return 0 if all(result.held for row in results for result in row) else EXIT_NOT_SHOWN


if __name__ == "__main__":
    sys.exit(main())

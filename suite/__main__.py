"""`python -m suite init | judge | watch | metrics | matrix | history | stacks | overhead | signals | requirements`: begin with a job, judge, look, try the suite.

init -- CMD   runs a training command once and writes a first job.toml from what was seen; exits 0 written, 2 not
judge DIR     stored traces -> evidence -> decision, with no GPU and no rerun; exits 0 approve, 1 reject, 2 usage, 4 hold
watch RUN     a run under way (or over): exits 0 every rank moves, 1 a rank is named, 2 usage
metrics RUN   the same run as OpenMetrics text
matrix        the fault catalogue through the criteria -> docs/detection_matrix.md; exits 0 all found and no false alarm, 1 otherwise, 2 usage
history       unmodified releases that bug reports name, through the criteria -> docs/history.md; exits 0 all as expected, 1 otherwise, 2 usage
overhead      what the probe costs a step -> docs/probe_overhead.md; needs a quiet machine; exits 0 within its targets, 1 not, 2 usage
signals       what the probe sees of training loops of every shape -> docs/signals.md; exits 0, 1 something is unexplained
stacks        the jobs on other stacks (workloads/stacks/) audited -> docs/stacks.md; exits 0 every finding explained, 1 otherwise, 2 usage
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


def main(arguments: list[str] | None = None, prog: str = "python -m suite") -> int:
    from fixtures.rejudge import RejudgeError
    from fixtures.trace import TraceError
    from suite.matrix.entries import CatalogueError

    asked = _parser(prog).parse_args(arguments)
    try:
        return int(asked.run(asked))
    except (RejudgeError, EvidenceError, TraceError, CatalogueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Judge the stored traces of an audit again, or look at one run.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    first = commands.add_parser(
        "init",
        help="write a first job.toml from one observed run",
        usage=f"{prog} init [-o FILE] [--limit-s S] -- torchrun --nproc-per-node 2 train.py ...",
    )
    first.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("job.toml"),
        metavar="FILE",
        help="the file to write (default job.toml); never overwritten",
    )
    first.add_argument(
        "--limit-s", type=float, default=600.0, metavar="S", help="end the run after so long and write what was seen (default 600)"
    )
    first.add_argument("command", nargs=argparse.REMAINDER, help="the command, as you start the job")
    first.set_defaults(run=_init)
    judge = commands.add_parser("judge", help="judge stored traces again and rewrite evidence, audit.json and audit.html")
    judge.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    judge.add_argument("--criterion", metavar="ID", help="only this criterion, with its explanation")
    judge.set_defaults(run=lambda asked: _judge(asked.audit_dir, asked.criterion))
    _add_looks(commands)
    _add_matrix(commands)
    _add_history(commands)
    _add_overhead(commands)
    _add_signals(commands)
    _add_stacks(commands)
    asked_for = commands.add_parser("requirements", help="run what shows each line that was asked for; print the table in Markdown")
    asked_for.add_argument("--audit", type=Path, required=True, metavar="DIR", help="an audit of the flights job")
    asked_for.add_argument("--naive", type=Path, required=True, metavar="DIR", help="an audit of the naive job")
    asked_for.add_argument("--only", default="", metavar="WORDS", help="only the lines whose text holds these words")
    asked_for.set_defaults(run=_requirements)
    return parser


def _init(asked: argparse.Namespace) -> int:
    from suite.init import init

    return init(asked.command[1:] if asked.command[:1] == ["--"] else asked.command, asked.output, asked.limit_s)


def _add_looks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def _add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    past = commands.add_parser(
        "history", help="run unmodified releases that public bug reports name through the criteria, write docs/history.md"
    )
    past.add_argument("--only", nargs="+", default=[], metavar="WORD", help="jobs or releases whose name holds the word")
    past.add_argument("--page", type=Path, default=ROOT / "docs" / "history.md", metavar="FILE", help="the page (default docs/history.md)")
    past.add_argument(
        "--folder", type=Path, required=True, metavar="DIR", help="where releases are installed, each into a folder of its own"
    )
    past.set_defaults(run=_history)


def _add_signals(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    seen = commands.add_parser("signals", help="run training loops of every shape, write down what the probe sees of each")
    seen.add_argument("--page", type=Path, default=ROOT / "docs" / "signals.md", metavar="FILE", help="the page (default docs/signals.md)")
    seen.set_defaults(run=_signals)


def _add_matrix(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    matrix = commands.add_parser(
        "matrix", help="run the fault catalogue and its clean twins through the criteria, write the detection matrix"
    )
    matrix.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="entries by name, family, criterion or bug number; patterns allowed"
    )
    matrix.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of each clean twin (default 1)")
    matrix.add_argument("--jobs", type=int, default=1, metavar="N", help="entries at a time (default 1)")
    matrix.add_argument("--quick", action="store_true", help="only the criterion that has to find the fault, not all that concern its kind")
    matrix.add_argument("--more", action="store_true", help="keep what the stored rows hold and run only what they lack: seeds add up")
    matrix.add_argument("--timed", action="store_true", help="criteria that time the job, too; needs a quiet machine")
    matrix.add_argument("--scratch", type=Path, metavar="DIR", help="where runs are kept while they last (default: the temporary folder)")
    page = ROOT / "docs" / "detection_matrix.md"
    matrix.add_argument(
        "--page", type=Path, default=page, metavar="FILE", help="the page (default docs/detection_matrix.md); .json beside it"
    )
    matrix.set_defaults(run=_matrix)


def _add_overhead(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cost = commands.add_parser("overhead", help="measure what the probe costs a step, write the page; needs a quiet machine")
    cost.add_argument(
        "--million", type=int, nargs="+", default=[1, 20], choices=[1, 20], help="sizes, in millions of parameters (default 1 20)"
    )
    cost.add_argument("--pairs", type=int, default=4, metavar="N", help="turns of each level (default 4); 0 leaves them as they are")
    cost.add_argument(
        "--traincheck", type=Path, metavar="PYTHON", help="the python of an environment that has TrainCheck, to measure it too"
    )
    cost.add_argument("--page", type=Path, default=ROOT / "docs" / "probe_overhead.md", metavar="FILE", help="the page; .json beside it")
    cost.set_defaults(run=_overhead)


def _add_stacks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stacks = commands.add_parser("stacks", help="audit the jobs on other stacks (extra [stacks]), write the page of results")
    stacks.add_argument("--only", nargs="+", default=[], metavar="NAME", help="stacks by folder or folder/file; patterns allowed")
    stacks.add_argument("--world-size", type=int, default=2, metavar="N", help="the largest world (default 2)")
    stacks.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="seeds; the first is audited, the others judged without twins (default 1)"
    )
    stacks.add_argument(
        "--audits", type=Path, metavar="DIR", help="keep the audits there; one of the same job is judged again, not run again"
    )
    stacks.add_argument("--kept", action="store_true", help="run nothing: make the page of the audits that are kept")
    page = ROOT / "docs" / "stacks.md"
    stacks.add_argument("--out", type=Path, default=page, metavar="FILE", help="the page (default docs/stacks.md); .json beside it")
    stacks.set_defaults(run=_stacks)


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


def _matrix(asked: argparse.Namespace) -> int:
    from suite.matrix.command import run_matrix

    wrong = run_matrix(
        asked.only,
        seeds=asked.seeds,
        jobs=asked.jobs,
        timed=asked.timed,
        quick=asked.quick,
        out=asked.page,
        scratch=asked.scratch,
        more=asked.more,
    )
    return EXIT_NAMED if wrong else 0


def _history(asked: argparse.Namespace) -> int:
    from suite.history.command import run_history

    return EXIT_NAMED if run_history(asked.only, asked.page, asked.folder) else 0


def _overhead(asked: argparse.Namespace) -> int:
    from suite.overhead.command import run_overhead

    missed = run_overhead(asked.million, pairs=asked.pairs, traincheck=asked.traincheck, out=asked.page)
    return EXIT_NAMED if missed else 0


def _signals(asked: argparse.Namespace) -> int:
    from suite.signals import run_signals

    unexplained = run_signals(asked.page)
    print(*(f"nothing explains {one}" for one in unexplained), f"written: {asked.page}", sep="\n")
    return EXIT_NAMED if unexplained else 0


def _stacks(asked: argparse.Namespace) -> int:
    from suite.stacks.command import run_stacks

    wrong = run_stacks(asked.only, world_size=asked.world_size, seeds=asked.seeds, out=asked.out, audits=asked.audits, kept_only=asked.kept)
    return EXIT_NAMED if wrong else 0


def _requirements(asked: argparse.Namespace) -> int:
    from suite.requirements import heading, lines, shown, table

    wanted = [line for line in lines() if asked.only.lower() in line.asked.lower()]
    audits = {"audit": asked.audit.resolve(), "naive": asked.naive.resolve()}
    results = shown(wanted, audits)
    print(table(wanted, results, heading(load(asked.audit).meta)))
    return 0 if all(result.held for row in results for result in row) else EXIT_NOT_SHOWN


if __name__ == "__main__":
    sys.exit(main())

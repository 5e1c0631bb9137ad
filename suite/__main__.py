"""`python -m suite judge DIR [--criterion ID]`: stored traces -> evidence -> decision, with no GPU and no rerun.

Exit codes: 0 approve, 1 reject, 2 usage, 4 hold.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fixtures.rejudge import RejudgeError, rejudge
from fixtures.session import decision_lines, render
from reports.evidence import EvidenceError

ROOT = Path(__file__).resolve().parents[1]
EXIT_OF_DECISION = {"approve": 0, "reject": 1, "hold": 4}
EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m suite", description="Judge the stored traces of an audit again.")
    commands = parser.add_subparsers(dest="command", required=True)
    judge = commands.add_parser("judge", help="judge stored traces again and rewrite evidence, audit.json and audit.html")
    judge.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    judge.add_argument("--criterion", metavar="ID", help="only this criterion, with its explanation")
    asked = parser.parse_args(arguments)
    try:
        return _judge(asked.audit_dir, asked.criterion)
    except (RejudgeError, EvidenceError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE


def _judge(folder: Path, only: str | None) -> int:
    changed = 0
    for judged in rejudge(folder, ROOT / "suite", only):
        differs = judged.before != judged.now
        changed += differs
        if only or differs:
            said = f" (stored: {judged.before})" if differs else ""
            print(f"{judged.id} [{judged.backend}-{judged.part}] {judged.now}{said}: {judged.explanation}")
    audit = render(folder)
    print(*decision_lines(audit, folder), sep="\n")
    print("same verdicts as stored" if not changed else f"{changed} verdicts differ from the stored ones")
    return EXIT_OF_DECISION[audit["decision"]["verdict"]]


if __name__ == "__main__":
    sys.exit(main())

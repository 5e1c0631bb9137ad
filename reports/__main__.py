"""`python -m reports page | runbook | explain | verify | compare | history`: an audit's page and runbook, one criterion explained, traces checked, audits compared.

Exit codes: 0 done and sound, 1 the traces are not those that were judged, 2 wrong use; errors are one sentence on standard error.
`compare` has more of them: see `reports/compare.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from reports.compare import add_parser as add_compare
from reports.decide import PolicyError, decide
from reports.evidence import EvidenceError
from reports.history import add_parser as add_history

EXIT_CHANGED = 1
EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        return int(asked.run(asked))
    except (EvidenceError, PolicyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reports", description="What may be concluded from the evidence of an audit.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    page = commands.add_parser("page", help="write audit.json and audit.html again from the evidence")
    page.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    page.add_argument("--policy", type=Path, metavar="FILE", help="decide by this policy instead of reports/policy.toml")
    page.set_defaults(run=_page)
    book = commands.add_parser("runbook", help="write RUNBOOK.md and alerts.yml again from the evidence")
    book.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    book.add_argument("--policy", type=Path, metavar="FILE", help="owners and assumptions of this policy instead of reports/policy.toml")
    book.set_defaults(run=_runbook)
    explain = commands.add_parser("explain", help="say what one criterion claims, what was found and how to check it")
    explain.add_argument("criterion", metavar="ID", help="such as recovery.continuation")
    explain.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    explain.add_argument("--policy", type=Path, metavar="FILE", help="decide by this policy instead of reports/policy.toml")
    explain.set_defaults(run=_explain)
    verify = commands.add_parser("verify", help="recompute the digest of every trace file and name what differs")
    verify.add_argument("audit_dir", type=Path, metavar="DIR", help="the directory of an audit")
    verify.set_defaults(run=_verify)
    add_compare(commands)
    add_history(commands)
    return parser


def _page(asked: argparse.Namespace) -> int:
    from reports.finish import finish

    decision = finish(asked.audit_dir, asked.policy)
    print(asked.audit_dir / "audit.html")
    print(f"decision: {decision.verdict}" + (f" {decision.next_exposure}" if decision.verdict == "approve" else ""))
    return 0


def _runbook(asked: argparse.Namespace) -> int:
    from reports.finish import write_runbook
    from reports.seal import seal

    print(write_runbook(asked.audit_dir, _audit(asked)))
    seal(asked.audit_dir)
    return 0


def _explain(asked: argparse.Namespace) -> int:
    from reports.explain import explanation

    print(explanation(_audit(asked), asked.criterion))
    return 0


def _audit(asked: argparse.Namespace) -> dict[str, Any]:
    """What audit.json would hold now."""
    from datetime import UTC, datetime

    from reports.audit_json import audit_json
    from reports.decide import load_policy
    from reports.evidence import load
    from reports.verdicts import rulings

    evidence, policy = load(asked.audit_dir), load_policy(asked.policy)
    decision = decide(evidence, policy, datetime.now(UTC))
    return audit_json(evidence, rulings(evidence, policy.waivers), decision, policy)


def _verify(asked: argparse.Namespace) -> int:
    from reports.verify import differences

    found, files = differences(asked.audit_dir)
    for line in found:
        print(line)
    print(
        f"{files:,} files checked, {len(found):,} differ from the evidence"
        if found
        else f"{files:,} files checked, all as they were judged"
    )
    return EXIT_CHANGED if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""When monitoring should call somebody: alert rules whose thresholds come from what this job was measured to do while it was well.

Rules of thumb from elsewhere cry wolf on one job and sleep through another. A threshold here is the job's own bound, or a multiple of the worst
that its healthy runs showed, whichever is larger; what was not measured gives no rule. Metrics: `python -m suite metrics RUN`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reports.outlook import planned_every

SHORTEST_STALL_S = 5.0
SILENCES = 2.0  # a silence that no healthy run showed, twice over: the same rule as the criterion stragglers.hang
SLOWER = 1.5
WORSE = 2.0
OVERDUE = 2  # one save may fail and be made good by the next
LATENESS = 0.10


def alerts(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rules, in the order in which somebody should look: name, expr, threshold, unit, provenance, how, words, runbook (an anchor of RUNBOOK.md)."""
    figures = audit["measured"]["figures"]
    bounds = {name: bound["value"] for name, bound in audit["policy"]["bounds"].items()}
    every = planned_every(audit["job"].get("checkpoint") or {})
    made = [
        _rule("RankLost", "rankproof_rank_lost", 0, "", "assumed", "one is too many", "a rank is gone without having finished", "dead-rank"),
        _silent(figures),
        _above(figures, "RankLate", "rankproof_lateness_ratio", "lateness_ratio", bounds.get("rank_lateness", LATENESS), "a rank makes the others wait", "slow-rank"),
        _slow(figures),
        _above(figures, "InputSlow", "rankproof_data_wait_ratio", "data_wait_ratio", bounds.get("data_wait_share", LATENESS), "a rank waits for its input", "slow-rank"),
        _rule("LossNotFinite", "rankproof_loss_not_finite", 0, "", "assumed", "one is too many", "a loss is NaN or infinite", "rollback"),
        _overdue(every),
    ]  # fmt: skip
    return [rule for rule in made if rule is not None]


def rules_text(rules: list[dict[str, Any]], job: str) -> str:
    """A Prometheus rule file (YAML; strings are written as JSON, which YAML is a superset of)."""
    lines = [
        "# Written by `python -m reports page`: thresholds from the audit beside this file. Load it with rule_files in prometheus.yml.",
        "groups:",
    ]
    lines += [f"  - name: {json.dumps(f'rankproof {job}')}", "    rules:"]
    for rule in rules:
        lines += [
            f"      - alert: {rule['name']}",
            f"        expr: {rule['expr']}",
            "        labels:",
            "          severity: page",
            "        annotations:",
        ]
        lines += [
            f"          summary: {json.dumps(rule['words'])}",
            f"          threshold: {json.dumps(rule['how'])}",
            f"          runbook: {json.dumps('RUNBOOK.md#' + rule['runbook'])}",
        ]
    return "\n".join(lines) + "\n"


def _rule(name: str, metric: str, threshold: float, unit: str, provenance: str, how: str, words: str, runbook: str) -> dict[str, Any]:
    text = f"{threshold:.6g}"
    return {
        "name": f"Rankproof{name}", "metric": metric, "expr": f"{metric} > {text}", "threshold": float(text), "unit": unit, "provenance": provenance,
        "how": how, "words": words, "runbook": runbook,
    }  # fmt: skip


def _silent(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    seen = figures.get("silence_s")
    if seen is None:
        return None
    limit = max(SHORTEST_STALL_S, SILENCES * seen["high"])
    how = f"{SILENCES:g} x the longest silence of {seen['samples']} healthy runs, at least {SHORTEST_STALL_S:g} s"
    return _rule("WorldSilent", "rankproof_silence_seconds", limit, "s", "calculated", how, "no rank shows a sign of life", "hang")


def _slow(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    seen = figures.get("step_s")
    if seen is None:
        return None
    how = f"{SLOWER:g} x the slowest of {seen['samples']} healthy runs"
    return _rule(
        "StepSlow",
        "rankproof_step_seconds",
        SLOWER * seen["high"],
        "s",
        "calculated",
        how,
        "steps take longer than in any healthy run",
        "slow-rank",
    )


def _above(
    figures: Mapping[str, Any], name: str, metric: str, figure: str, bound: float, words: str, runbook: str
) -> dict[str, Any] | None:
    """The bound of the job or policy, unless healthy runs come so near it that it would cry wolf."""
    seen = figures.get(figure)
    if seen is None:
        return None
    limit = max(bound, WORSE * seen["high"])
    how = f"the bound {bound:g}, or {WORSE:g} x the worst of {seen['samples']} healthy runs ({seen['high']:.3g}) where that is more"
    return _rule(name, metric, limit, "ratio", "calculated", how, words, runbook)


def _overdue(every: int | None) -> dict[str, Any] | None:
    if every is None:
        return None
    how = f"{OVERDUE} x the cadence of {every} steps in job.toml"
    return _rule(
        "CheckpointOverdue",
        "rankproof_checkpoint_age_steps",
        OVERDUE * every,
        "steps",
        "calculated",
        how,
        "no checkpoint was published when it was due",
        "full-disk",
    )

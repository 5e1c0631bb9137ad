"""Which inputs of a job a criterion goes through, and one finding over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fixtures.job import Job
from reports.evidence import Finding


def training_inputs(job: Job) -> tuple[str, ...]:
    """The inputs that a training run reads: named in the command, or lying in {out} where the job finds them by itself."""
    return tuple(name for name, path in job.inputs.items() if "{" + name + "}" in job.command or "{out}" in path)


def record_inputs(job: Job) -> tuple[str, ...]:
    """Those of them whose rows have a declared time of availability."""
    return tuple(name for name in training_inputs(job) if name in job.records)


def over_all(judge: Callable[..., Finding], cases: Sequence[Sequence[Any]]) -> Finding:
    """The first objection, else the first doubt, else the last acceptance with what was found of each input."""
    findings = [judge(*case) for case in cases]
    for wanted in (False, None):
        for finding in findings:
            if finding.accepted is wanted:
                return finding
    if not findings:
        return Finding(accepted=None, explanation="no input of the job can be damaged: name it as a placeholder in [job] command")
    return replace(findings[-1], explanation="; ".join(finding.explanation for finding in findings))

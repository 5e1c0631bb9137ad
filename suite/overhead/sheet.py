"""docs/probe_overhead.md: what was measured, as a page; the numbers stand beside it as JSON, and the page is a pure rendering of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TARGETS = {(1, "default"): 0.02, (20, "default"): 0.01, (1, "full"): 0.03, (20, "full"): 0.03}
"""The share of a step that the probe may take, by millions of parameters and level."""
PUBLISHED = (
    "Published of TrainCheck (Jiang et al., Training with Confidence, OSDI 2025, section 5.6): in selective mode, with 100 invariants deployed, "
    "typically less than 2 %, at most 1.6 times, on GPUs; its own full instrumentation and `sys.settrace` cost more."
)
HEAD = """# What the probe costs

Written by `python -m suite overhead`; the numbers are in [probe_overhead.json](probe_overhead.json).

A transformer of 1 and of 20 million parameters is trained by two DDP ranks on gloo, one core each, with gradient clipping and AdamW
([steps.py](../suite/bench/ranks/steps.py)). Runs take turns, forwards and backwards; each times its own steps.

- **inside the probe**: time that the ranks spent in it, by their own clocks, as a share of the step: the main figure. Median over steps behind the
  first {settled}, with its 95 % interval. A step's share is what the level costs for as long as a job runs; the first steps cost more (`first steps`).
- **wall** and **CPU**: the ratio of a step to the same step of the neighbouring run without the probe, less one; the median over all pairs with its
  95 % bootstrap interval (steps of one run are not independent, so it is rather too narrow). `off again` is the control: no probe, compared with no probe.
"""


def overhead_page(document: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    lines = [HEAD.format(settled=document["settled"]), f"Machine: {document['machine']}. Commit {document['commit']}.", ""]
    for size in document["sizes"]:
        lines += _size(size)
    return "\n".join([*lines, *_targets(document), *_instructions(document), *_traincheck(document)]) + "\n"


def misses(document: Mapping[str, Any]) -> list[str]:
    """Every target that was not met, in words."""
    found = []
    for size in document["sizes"]:
        for cost in size["costs"]:
            allowed = TARGETS.get((size["million"], cost["level"]))
            if allowed is not None and cost["inside"]["estimate"] > allowed:
                found.append(
                    f"{cost['level']} at {size['million']} M takes {cost['inside']['estimate']:.2%} of a step, at most {allowed:.0%} is allowed"
                )
    return found


def _targets(document: Mapping[str, Any]) -> list[str]:
    missed = misses(document)
    return ["## Targets", "", *([f"- missed: {one}" for one in missed] or ["All are met."]), ""]


def _size(size: Mapping[str, Any]) -> list[str]:
    costs: Sequence[Mapping[str, Any]] = size["costs"]
    lines = [
        f"## {size['million']} million parameters",
        "",
        f"{size['pairs']} turns of {size['steps']} steps a level; a step without the probe takes {costs[0]['step_ms']:.1f} ms. "
        f"Load average at the end: {size['load']:g}, where these two ranks alone make 2: more than that is other work, and then only the first column means much.",
        "",
        "| level | inside the probe | allowed | ms a step | first steps, ms | wall | CPU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cost in costs[1:]:
        allowed = TARGETS.get((size["million"], cost["level"]))
        inside = _share(cost["inside"]) if cost["inside"] else "none"
        own = [f"{cost[name]:.2f}" if cost[name] is not None else "0" for name in ("probe_ms", "first_ms")]
        lines.append(
            f"| {cost['level']} | {inside} | {f'{allowed:.0%}' if allowed else ''} | {' | '.join(own)} | {_more(cost['wall'])} | {_more(cost['cpu'])} |"
        )
    return [*lines, ""]


def _instructions(document: Mapping[str, Any]) -> list[str]:
    """Instructions of a step, where the processor counts them for us."""
    every = [(size["million"], cost) for size in document["sizes"] for cost in size["costs"]]
    if not every or any(cost["instructions"] is None for _, cost in every):
        reason = next((cost["not_counted"] for _, cost in every if cost["not_counted"]), "nothing was measured")
        return [
            "## Instructions",
            "",
            f"Not counted on this machine ({reason}): its processor counters cannot be had. The processor time above is the nearest.",
            "",
        ]
    rows = [f"| {million} M | {cost['level']} | {_more(cost['instructions'])} |" for million, cost in every if cost["level"] != "off"]
    return ["## Instructions", "", "| size | level | more instructions a step |", "| --- | --- | --- |", *rows, ""]


def _traincheck(document: Mapping[str, Any]) -> list[str]:
    lines = ["## Beside it: TrainCheck", "", PUBLISHED, ""]
    measured: Sequence[Mapping[str, Any]] = document.get("traincheck", ())
    if not measured:
        return [*lines, "It was not measured here: give `--traincheck PYTHON`, the python of an environment that has it."]
    lines += [
        "Measured on the same loop, in one process, `traincheck-collect --models-to-track model` (no invariants deployed, so all that it can see is traced):",
        "",
    ]
    lines += ["| size | version | a step without, ms | with, ms | wall |", "| --- | --- | --- | --- | --- |"]
    for one in measured:
        if "reason" in one:
            lines.append(f"| {one['million']} M | | | | it did not run: {one['reason']} |")
        else:
            lines.append(
                f"| {one['million']} M | {one['version']}, torch {one['torch']} | {one['off_ms']:.1f} | {one['on_ms']:.1f} | "
                f"{one['ratio']['estimate']:.1f} times [{one['ratio']['low']:.1f}, {one['ratio']['high']:.1f}] |"
            )
    return lines


def _share(interval: Mapping[str, float]) -> str:
    return f"{interval['estimate']:.2%} [{interval['low']:.2%}, {interval['high']:.2%}]"


def _more(interval: Mapping[str, float]) -> str:
    return f"{interval['estimate'] - 1:+.1%} [{interval['low'] - 1:+.1%}, {interval['high'] - 1:+.1%}]"

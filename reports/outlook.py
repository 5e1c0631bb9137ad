"""What the audited job will cost and when it will be done, from its own measured step, save and restart: every number with its provenance.

What nobody measured (how often a run is interrupted, the price of a device hour, the deadline, how many steps the training takes) is assumed in
[economics] of the policy, overridden by [targets] of the job, and named as an assumption beside every figure that rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.economics import (
    EconomicsError,
    Figure,
    RunPlan,
    assumed,
    daly_interval,
    deadline_risk,
    expected_goodput,
    measured,
    time_to_quality,
    young_interval,
)
from reports.wording import hours

SECONDS_PER_H = 3600.0
TRIALS = 20_000
ASSUMED = {
    "mean_interruption_h": ("h", "time between two interruptions of the world, on average"),
    "launch_s": ("s", "launch: noticing, queueing, starting Python, importing torch"),
    "price_per_device_hour": ("money/h", "price of one device for an hour"),
    "planned_steps": ("steps", "steps that the target quality takes"),
    "deadline_h": ("h", "deadline, from the first start"),
}
SHORT = {
    "mean_interruption_h": "interruptions", "launch_s": "launch", "price_per_device_hour": "price", "planned_steps": "planned steps", "deadline_h": "deadline",
}  # fmt: skip
MEASURED = {
    "step_s": "one optimizer step",
    "save_s": "what a save adds to a step",
    "restart_s": "restore: from a rank's start to its first step",
}


def outlook(audit: Mapping[str, Any], assumptions: Mapping[str, float]) -> dict[str, Any]:
    """{"rows": figures for the page, "summary": sentences, "reason": why there is nothing, or ""} for the audit's job.

    audit: audit.json's job, world and figures. assumptions: the policy's [economics].
    """
    figures, job = audit["measured"]["figures"], audit["job"]
    every = planned_every(job.get("checkpoint") or {}) or 0
    missing = [words for name, words in MEASURED.items() if name not in figures]
    missing += [] if every else ["the cadence of its checkpoints"]
    given = {name: float(value) for name, value in {**assumptions, **(job.get("targets") or {})}.items() if name in ASSUMED}
    if missing or len(given) < len(ASSUMED):
        absent = missing or [name for name in ASSUMED if name not in given]
        return {"rows": [], "summary": [], "reason": f"not measured or not assumed: {', '.join(absent)}"}
    try:
        known = _known(figures, given, set(job.get("targets") or ()))
        worked = _worked(known, every, int((audit.get("world") or {}).get("world_size") or 1))
    except EconomicsError as error:
        return {"rows": [], "summary": [], "reason": str(error)}
    named = {**known, **worked}
    return {
        "rows": [_row(name, words, figure) for name, (words, figure) in named.items()],
        "summary": _summary(named, every),
        "reason": "",
    }


def planned_every(checkpoint: Mapping[str, Any]) -> int | None:
    """Steps between two saves of the real run: as planned, or as often as the audited runs save; None where the job saves nothing."""
    every = checkpoint.get("planned_every") or checkpoint.get("every")
    return int(every) if every else None


Named = dict[str, tuple[str, Figure]]


def _known(figures: Mapping[str, Any], given: Mapping[str, float], by_job: set[str]) -> Named:
    """The inputs: what was measured, and what is assumed, with who assumes it."""
    known: Named = {}
    for name, words in MEASURED.items():
        one = figures[name]
        seen = measured(one["value"], "s", f"{one['how']}; median of {one['samples']}")
        known[name] = (
            words,
            Figure(seen.value, "s", "measured", seen.formula, "traces", (), None, (one["low"], one["high"]), one["samples"]),
        )
    for name, (unit, words) in ASSUMED.items():
        where = "[targets] of the job" if name in by_job else "[economics] of the policy"
        known[name] = (words, assumed(given[name], unit, where))
    return known


def _worked(known: Named, every: int, devices: int) -> Named:
    """Everything that follows from the inputs, at the job's own cadence and at the best one."""
    one = {name: figure for name, (_, figure) in known.items()}
    mean = _scaled(one, "mean_interruption_h", SECONDS_PER_H, "s")
    deadline = _scaled(one, "deadline_h", SECONDS_PER_H, "s")
    restart = _sum(one, "restart_s", "launch_s")
    own = Figure(every * one["step_s"].value, "s", "calculated", f"{every} steps (job.toml) x step time", "", (("step_s", one["step_s"]),))
    best = daly_interval(one["save_s"], mean)
    worked: Named = {
        "young_s": ("best time between saves, first order", young_interval(one["save_s"], mean)),
        "daly_s": ("best time between saves, higher order", best),
        "daly_steps": ("the same in steps", _per_step(best, one["step_s"])),
        "own_s": ("time between saves as the job is set", own),
        "restart_whole_s": ("from an interruption to training again", restart),
    }
    for label, words, interval in (("own", "as the job is set", own), ("best", "at the best cadence", best)):
        done = time_to_quality(
            _scaled(one, "planned_steps", 1.0, "steps"), one["step_s"], devices=measured(devices, "count", "ranks of the audited world"),
            price_per_device_hour=one["price_per_device_hour"], interval_s=interval, save_s=one["save_s"], restart_s=restart, mean_interruption_s=mean,
        )  # fmt: skip
        plan = RunPlan(done.ideal_s, interval, one["save_s"], restart, mean)
        worked[f"goodput_{label}"] = (f"time that counts of all time, {words}", expected_goodput(interval, one["save_s"], restart, mean))
        worked[f"expected_{label}_s"] = (f"expected time until the training is done, {words}", done.expected_s)
        worked[f"cost_{label}"] = (f"its expected cost, {words}", done.expected_cost)
        worked[f"risk_{label}"] = (f"probability of missing the deadline, {words}", deadline_risk(plan, deadline, trials=TRIALS))
    worked["ideal_s"] = ("time without a single save or interruption", done.ideal_s)
    return worked


def _scaled(one: Mapping[str, Figure], name: str, factor: float, unit: str) -> Figure:
    return Figure(one[name].value * factor, unit, "calculated", f"{name} x {factor:g}", "", ((name, one[name]),))


def _sum(one: Mapping[str, Figure], *names: str) -> Figure:
    return Figure(
        sum(one[name].value for name in names), "s", "calculated", " + ".join(names), "", tuple((name, one[name]) for name in names)
    )


def _per_step(interval: Figure, step: Figure) -> Figure:
    return Figure(
        max(1.0, float(round(interval.value / step.value))),
        "steps",
        "calculated",
        "interval / step time, rounded",
        "",
        (("daly_s", interval), ("step_s", step)),
    )


def _row(name: str, words: str, figure: Figure) -> dict[str, Any]:
    low, high = figure.interval or (None, None)
    return {
        "name": name, "words": words, "value": figure.value, "unit": figure.unit, "provenance": figure.provenance, "formula": figure.formula,
        "source": figure.source, "inputs": [given for given, _ in figure.inputs], "rests_on": [SHORT.get(given, given) for given in figure.assumed_inputs], "low": low, "high": high,
    }  # fmt: skip


def _summary(named: Named, every: int) -> list[str]:
    """What a reader should take away, in three sentences."""
    value = {name: figure.value for name, (_, figure) in named.items()}
    gain = (value["expected_own_s"] - value["expected_best_s"]) / value["expected_own_s"]
    cadence = f"Saving every {value['daly_steps']:,.0f} steps is best; the job saves every {every}"
    kept = f"{value['goodput_own']:.1%} of its time counts as training, {value['goodput_best']:.1%} would at the best cadence"
    late = f"With interruptions every {value['mean_interruption_h']:g} h it is done after {hours(value['expected_own_s'])} instead of {hours(value['ideal_s'])}"
    risk = f"and misses its deadline of {value['deadline_h']:g} h with probability {value['risk_own']:.2g}"
    better = f"the best cadence would save {gain:.1%} of that time" if gain > 0.0005 else "no other cadence would be quicker"
    return [f"{cadence}: {kept}.", f"{late}, {risk}; {better}."]

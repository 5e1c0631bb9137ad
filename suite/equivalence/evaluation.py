"""Judge: the evaluation metric is that of one device, at every world size.

Samplers fill the last batch up with rows that were evaluated already, or drop it; means of means weigh a short last batch as a full one. The rows that each
rank evaluates are seen, and so is the number that the job prints; a job whose rows are padded but whose number is right takes the padding out again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fixtures.trace import Trace
from reports.evidence import Finding
from reports.statistics import UNIT_ROUNDOFF, random_walk_bound
from suite.equivalence.trajectory import losses_agree
from suite.equivalence.usable import absent, named, records, size, undecided, unusable

_NAME = r"(?:val|valid|validation|eval|evaluation|test|dev|held[-_ ]?out)[a-z0-9_ /.%()-]{0,40}?"
USUAL = rf"(?im)\b({_NAME})['\"]?\s*[=:]?\s*([-+]?\d*\.\d+(?:e[-+]?\d+)?|[-+]?(?:nan|inf)\b)"
NO_METRIC = re.compile(r"time|second|per_s|/s|speed|throughput|epoch|step|memory|rate", re.IGNORECASE)
DEVIATIONS = 4.0  # of the random walk of roundings: 7 in 10,000 sums go further
SYSTEMATIC = 2.0  # other world sizes deviate by up to twice what other orders on one device do (see reports.statistics.noise_envelope)
RANDOM_SHARE = 0.5  # of an evaluation's rows: padding, or a dropped tail, changes fewer
WAY_OUT = "print the metric, or name it under [job] as metric = 'a regular expression with one group'"


@dataclass(frozen=True, slots=True)
class Printed:
    """One metric as it was printed. half_unit: what its last digit leaves open."""

    name: str
    value: float
    half_unit: float


def metric_is_independent(alone: Trace, permuted: Sequence[Trace], together: Sequence[Trace], pattern: str = "") -> Finding:
    """Judge what is evaluated, and the number that comes of it. permuted: one-device runs with their samples in other orders; pattern: [job] metric."""
    if reason := unusable([alone, *permuted, *together]):
        return undecided(reason)
    if not together:
        return undecided("there is only one device to look at: start with --world-size 2")
    shown = [printed(trace, pattern) for trace in (alone, *together)]
    if not any(shown) and not any(records(trace, "evaluated") for trace in (alone, *together)):
        return _none(alone, pattern)
    if not any(shown):
        return _by_rows(alone, together)
    for trace, metrics in zip(together, shown[1:], strict=True):
        if [one.name for one in metrics] != [one.name for one in shown[0]]:
            return _rejected(
                f"{named(trace)} prints {len(metrics)} evaluation metrics, one device {len(shown[0])}: {_rows(alone, trace) or 'evaluations differ'}",
                shown,
            )
    return _by_metric(alone, permuted, together, shown, pattern)


def printed(trace: Trace, pattern: str = "") -> list[Printed]:
    """The metrics in the output of the first rank that prints any, in order."""
    for rank in range(size(trace)):
        if found := [one for one in _matches(trace.log(rank), pattern) if pattern or not NO_METRIC.search(one.name)]:
            return found
    return []


def evaluated(trace: Trace) -> dict[int, dict[int, Counter[str]]]:
    """Number of the evaluation (from 1) -> rank -> rows."""
    found: dict[int, dict[int, Counter[str]]] = {}
    steps = sorted({record["step"] for record in records(trace, "evaluated")})
    for record in records(trace, "evaluated"):
        found.setdefault(steps.index(record["step"]) + 1, {}).setdefault(record["rank"], Counter()).update(record["samples"])
    return found


def _matches(log: str, pattern: str) -> list[Printed]:
    if pattern:
        return [_printed("metric", match[1]) for match in re.finditer(pattern, log)]
    return [_printed(match[1].strip(" ._-/(").lower(), match[2]) for match in re.finditer(USUAL, log)]


def _printed(name: str, text: str) -> Printed:
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    try:
        value = float(text)
    except ValueError:
        return Printed(name, math.nan, 0.0)
    return Printed(name, value, 0.5 * 10.0 ** (int(exponent or 0) - digits) if math.isfinite(value) else 0.0)


def _none(alone: Trace, pattern: str) -> Finding:
    if pattern:
        return undecided(f"[job] metric = {pattern!r} matches nothing that any rank prints: correct it")
    if any("Optimized" in wrapper for wrapper in alone.model().get("wrappers", ())):
        return undecided(
            f"the model is compiled, so evaluations would not be seen, and nothing in the output looks like a metric: {WAY_OUT}"
        )
    return absent(
        f"no module was called in evaluation mode in {int(alone.steps['step'].max())} steps, up to the end of every rank, and nothing in the output looks like an "
        "evaluation metric"
    )


def _by_rows(alone: Trace, together: Sequence[Trace]) -> Finding:
    for trace in together:
        if said := _rows(alone, trace):
            return Finding(
                False, 1, "evaluations", 0, "at_most", f"{named(trace)}: {said}; if the metric leaves them out again, {WAY_OUT}", samples=1
            )
    return undecided(f"every row is evaluated as on one device, but no metric was seen that could be compared: {WAY_OUT}")


def _by_metric(
    alone: Trace, permuted: Sequence[Trace], together: Sequence[Trace], shown: Sequence[Sequence[Printed]], pattern: str
) -> Finding:
    single = shown[0]
    scale = np.maximum(np.abs([one.value for one in single]), np.finfo(np.float64).tiny)
    open_digits = np.asarray([one.half_unit for one in single]) / scale
    summed = max((sum(sum(row.values(), Counter()).values()) for row in evaluated(alone).values()), default=1)
    # Orders of the training samples leave the evaluated rows in their order, which another number of ranks does not: the sum over them is rounded otherwise,
    # and controls that are all equal would measure no noise at all.
    floor = random_walk_bound(summed, UNIT_ROUNDOFF["float32"], DEVIATIONS)
    controls = [
        np.maximum(_off(single, printed(trace, pattern)), floor) for trace in permuted if len(printed(trace, pattern)) == len(single)
    ]
    if len(controls) < 3 or not all(np.isfinite(control).all() for control in controls):
        return undecided(
            "the noise of the metric could not be measured: fewer than three one-device runs in other orders print it as a finite number"
        )
    bound = SYSTEMATIC * np.max(controls, axis=0) + 2 * open_digits
    for trace, metrics in zip(together, shown[1:], strict=True):
        off = _off(single, metrics)
        if outside := np.flatnonzero(~(off <= bound)).tolist():
            if (lost := _lost_share(alone, trace)) > RANDOM_SHARE:
                return undecided(_drawn_at_random(trace, lost))
            if not lost and (said := _trained_otherwise(alone, permuted, trace)):
                return undecided(
                    f"the weights that {named(trace)} evaluate are not those of one device, so their metrics cannot be compared: {said}"
                )
            at = outside[0]
            text = f"{named(trace)}: {metrics[at].name} is {metrics[at].value:.6g}, one device's {single[at].value:.6g} (evaluation {at + 1}): {_why(alone, trace)}"
            value = float(np.nan_to_num(off[at], nan=np.inf))
            return Finding(False, value, "of the metric", float(bound[at]), "at_most", text, samples=len(controls))
    for trace in together:
        if 0 < _lost_share(alone, trace) <= RANDOM_SHARE:
            return _rejected(
                f"{named(trace)}: {_rows(alone, trace)}; the metric is within its noise, but holds no row that no rank evaluated", shown
            )
    largest = max(float(_off(single, metrics).max()) for metrics in shown[1:])
    rows = [said for trace in together if (said := _rows(alone, trace))]
    text = f"{len(single)} evaluation metrics are one device's at every world size, within {largest:.2g}"
    text += f" (although {rows[0]}: the metric leaves them out)" if rows else ""
    return Finding(
        True, largest, "of the metric", float(bound.max()), "at_most", text, samples=len(controls),
        power=f"a metric that is off by {float(bound.max()):.1g} of itself",
    )  # fmt: skip


def _why(alone: Trace, trace: Trace) -> str:
    """Why a metric is not one device's, from the rows that were evaluated."""
    combined = (
        "the rows are those of one device, so the ranks' parts are not put together as one mean (a mean of means, or one rank's part)"
    )
    return _rows(alone, trace) or combined


def _trained_otherwise(alone: Trace, permuted: Sequence[Trace], trace: Trace) -> str:
    """How the training before the evaluation left one device's; "" where its loss stayed within the noise, or that could not be told."""
    training = losses_agree(alone, permuted, [trace], str(alone.spec.get("numerics") or "as_run"))
    return training.explanation if training.accepted is False else ""


def _off(single: Sequence[Printed], others: Sequence[Printed]) -> np.ndarray:
    one, two = (np.asarray([metric.value for metric in metrics], dtype=np.float64) for metrics in (single, others))
    off: np.ndarray = np.abs(two - one) / np.maximum(np.abs(one), np.finfo(np.float64).tiny)
    return np.where(np.isnan(one) & np.isnan(two), 0.0, off)


def _drawn_at_random(trace: Trace, lost: float) -> str:
    return (
        f"{named(trace)}: {lost:.0%} of the rows that one device evaluates are not evaluated, others stand in, and the metric is another one: evaluations draw their "
        'rows at random; evaluate a fixed set, or declare it under [capabilities] as "equivalence.evaluation" = "the reason"'
    )


def _lost_share(alone: Trace, trace: Trace) -> float:
    """The largest share of one device's rows of an evaluation that the ranks leave out while they take as many in all."""
    single, ranks = evaluated(alone), evaluated(trace)
    shares = [0.0]
    for number, row in single.items():
        expected, seen = sum(row.values(), Counter()), sum(ranks.get(number, {}).values(), Counter())
        if sum(seen.values()) == sum(expected.values()):
            shares.append(sum((expected - seen).values()) / sum(expected.values()))
    return max(shares)


def _rows(alone: Trace, trace: Trace) -> str:
    """How the ranks' evaluated rows differ from one device's, in words; "" where they do not."""
    single, ranks = evaluated(alone), evaluated(trace)
    for number, row in sorted(single.items()):
        expected = sum(row.values(), Counter())
        own = ranks.get(number, {})
        if own and all(one == expected for one in own.values()):
            continue  # every rank that evaluates takes the whole set
        seen = sum(own.values(), Counter())
        more, fewer = seen - expected, expected - seen
        if more or fewer:
            said = [f"{sum(more.values())} too many (filled up by the sampler?)"] if more else []
            said += [f"{sum(fewer.values())} left out"] if fewer else []
            return f"evaluation {number} takes {sum(seen.values())} rows where one device takes {sum(expected.values())}: {', '.join(said)}"
    return ""


def _rejected(text: str, shown: Sequence[Sequence[Printed]]) -> Finding:
    return Finding(False, 1, "evaluations", 0, "at_most", text, samples=len(shown))

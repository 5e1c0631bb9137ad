"""The numbers of a criterion on both sides: which there are, on which scale they are compared, and what follows for each.

Beside the finding's own value, a timed criterion is compared in the time of a step at each world size (`details.scaling`): efficiency alone
does not notice what makes one rank and many ranks slower alike.

    details.repeats              the finding's value, one per repeat
    details.scaling[].repeats_ms the step time at that world size, one per repeat; without it low and high are the range of the repeats

Numbers about correctness are never undecided: their criterion's own bound decides, and only a change that the intervals show counts here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from reports.compare_model import Number, Outcome
from reports.compare_policy import CompareBounds
from reports.compare_ratio import Limits, Measured, Scale, Worse, detectable, more_runs, outcome, worsening
from reports.finding import Finding
from reports.wording import counted

OF_A_STEP = ("of a step", "of the step")


@dataclass(frozen=True, slots=True)
class Series:
    """A number that both sides may have. across: whether it was formed across audits (an absolute time) and so drifts with the machine."""

    name: str
    unit: str
    higher_is_worse: bool
    across: bool
    measured: Measured
    world_size: int | None = None  # the one that the value is about, where the judge says so


def numbers(id: str, timed: bool, base: Finding, head: Finding, bounds: CompareBounds) -> tuple[Number, ...]:
    """Every number that either finding has, judged where both can be compared."""
    before, after = ({series.name: series for series in all_series(finding, timed)} for finding in (base, head))
    return tuple(_number(id, timed, before.get(name), after.get(name), bounds) for name in dict.fromkeys([*before, *after]))


def all_series(finding: Finding, timed: bool) -> list[Series]:
    """The finding's value and, for a timed one, the step time at each world size."""
    found = []
    if finding.value is not None and finding.direction != "equal":
        low, high = finding.interval or (None, None)
        repeats = _values(finding.details.get("repeats"))
        value = Measured(finding.value, low, high, len(repeats) or finding.samples, repeats)
        found.append(Series("value", finding.unit, finding.direction == "at_most", False, value, finding.details.get("world_size")))
    if timed:
        found += [_step_time(point, finding.samples) for point in finding.details.get("scaling") or () if _is_point(point)]
    return found


def judged(series: tuple[Series, Series], limits: Limits, *, timed: bool, named: bool) -> Number:
    """The two sides of one number against its bound. named: the policy has a bound for this one in particular."""
    before, after = series
    number = Number(after.name, after.unit, before.measured.value, after.measured.value, "shown", "")
    if before.unit != after.unit:
        return replace(
            number, outcome="incomparable", words=f"{before.unit or 'no unit'} cannot be compared with {after.unit or 'no unit'}"
        )
    scale = _scale(after, timed, named)
    if before.world_size != after.world_size:
        return replace(
            number, outcome="incomparable", words=f"it is about {before.world_size} ranks in the base, {after.world_size} in the head"
        )
    spread = all(one.measured.low is not None or len(one.measured.repeats) > 1 for one in series)
    found = worsening(before.measured, after.measured, scale=scale, higher_is_worse=after.higher_is_worse, level=limits.level)
    if found is None or not (spread or scale == "exact" or (timed and found.estimate > limits.bound)):
        return replace(number, words="shown, not judged: it has no interval")
    limits = limits if after.across else replace(limits, between=0.0)
    number = replace(number, worse=found.estimate, low=_finite(found.low), high=_finite(found.high), bound=limits.bound)
    return _concluded(number, found, limits, scale, timed)


def _concluded(number: Number, found: Worse, limits: Limits, scale: Scale, timed: bool) -> Number:
    decided = outcome(found, limits)
    if decided == "undecided" and not timed:
        return replace(number, outcome="unchanged", words=f"no change is shown: {spoken(found, scale)}")
    smallest, more = detectable(found, limits), more_runs(found, limits) if decided == "undecided" else None
    words = f"{spoken(found, scale)}, at most {_share(limits.bound, scale)} is accepted"
    if decided == "undecided":
        words = f"undecided, {_what_it_needs(found, limits, more)}: {words}"
    if smallest is not None and scale != "exact":
        words += f"; a change of {_share(smallest, scale)} would have been found"
    return replace(number, outcome=decided, words=words, detectable=smallest, more_runs=more)


def _what_it_needs(found: Worse, limits: Limits, more: int | None) -> str:
    if found.enough and limits.bound < found.low:
        return f"worse by no more than two audits of the same code may differ by ({limits.between:.0%}), so audit both again"
    if more is None:
        return (
            "needs repeats, of which it has none"
            if not math.isfinite(found.high)
            else "its bound lies inside the noise, more runs may not tell"
        )
    return f"needs about {counted(more, 'more run')} on each side"


def spoken(found: Worse, scale: Scale) -> str:
    """The worsening in words, such as "4.1 % worse [1.2 %, 7.0 %]"."""
    word = "worse" if found.estimate >= 0 else "better"
    size = _share(abs(found.estimate), scale)
    said = "equal" if found.estimate == 0 else f"{size} {word}"
    if scale == "exact" or not math.isfinite(found.high - found.low):
        return said
    return f"{said} [{found.low * 100:+.1f} %, {found.high * 100:+.1f} %]"


def _share(value: float, scale: Scale) -> str:
    if not math.isfinite(value):
        return "infinitely"
    return f"{value * 100:.3g} % of a step" if scale == "points" else f"{value * 100:.3g} %"


def _scale(series: Series, timed: bool, named: bool) -> Scale:
    """Shares of a step are compared in points, since a share that doubles from nothing costs nothing; what has no noise, exactly."""
    if not timed and named and series.measured.low is None and not series.measured.repeats:
        return "exact"
    return "points" if any(words in series.unit for words in OF_A_STEP) else "ratio"


def _number(id: str, timed: bool, base: Series | None, head: Series | None, bounds: CompareBounds) -> Number:
    if base is None or head is None:
        return _one_sided(base, head, timed)
    limits = Limits(bounds.bound(id), bounds.between_audits, bounds.level)
    return judged((base, head), limits, timed=timed, named=bounds.named(id) is not None)


def _one_sided(base: Series | None, head: Series | None, timed: bool) -> Number:
    """A number that one side lacks. A time that the head no longer has cannot be accepted: it may have been the one that became worse."""
    if base is None:
        assert head is not None, "a name comes from one of the two sides"
        return Number(head.name, head.unit, None, head.measured.value, "incomparable", "only the head has it")
    lost: Outcome = "undecided" if timed else "incomparable"
    return Number(base.name, base.unit, base.measured.value, None, lost, "the head no longer has it")


def _step_time(point: Mapping[str, Any], samples: int | None) -> Series:
    repeats = _values(point.get("repeats_ms"))
    low, high = (float(point[key]) if _is_number(point.get(key)) else None for key in ("low", "high"))
    measured = Measured(float(point["step_ms"]), low, high, len(repeats) or samples, repeats)
    return Series(f"step at {counted(int(point['world_size']), 'rank')}", "ms", True, True, measured)


def _is_point(point: Any) -> bool:
    return isinstance(point, Mapping) and _is_number(point.get("step_ms")) and _is_number(point.get("world_size"))


def _values(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or not all(map(_is_number, values)):
        return ()
    return tuple(float(value) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""The small mark beside each number: the value with its interval, and its bound with the forbidden side shaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT, BASE = 200.0, 18.0, 9.0


def bullet(finding: Mapping[str, Any]) -> Markup:
    """An `<svg>` for a finding with a value and a bound, or nothing where a line of numbers would say no more.

    The scale starts at zero, so that lengths are honest; numbers more than a factor 100 apart get a logarithmic one, ticked at its decades.
    """
    value: Any = finding.get("value")
    bound: Any = finding.get("bound")
    ends = [end for end in finding.get("interval") or () if _finite(end)]
    if not (_finite(value) and _finite(bound)) or finding.get("direction") == "equal" or value == bound:
        return Markup("")
    place = _scale([value, bound, *ends])
    at, limit = place(value), place(bound)
    wrong = (limit, WIDTH) if finding["direction"] == "at_most" else (0.0, limit)
    parts = [f'<rect class="wrong" x="{wrong[0]:.1f}" y="2" width="{max(0.0, wrong[1] - wrong[0]):.1f}" height="14"/>']
    parts.append(f'<path class="axis" d="M0 {BASE}H{WIDTH:.0f}"/>')
    if len(ends) == 2:
        parts.append(f'<path class="spread" d="M{place(ends[0]):.1f} {BASE}H{place(ends[1]):.1f}"/>')
    parts.append(f'<path class="limit" d="M{limit:.1f} 1V{HEIGHT - 1:.0f}"/><circle class="dot" cx="{at:.1f}" cy="{BASE}" r="4"/>')
    return Markup(f'<svg class="bullet" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" aria-hidden="true">{"".join(parts)}</svg>')


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scale(values: list[float]) -> Any:
    low, high = min(values), max(values)
    if low > 0 and high / low > 100:
        low, high = math.log10(low) - 0.3, math.log10(high) + 0.3
        return lambda value: (math.log10(value) - low) / (high - low) * WIDTH
    low, high = min(0.0, low * 1.15), max(0.0, high * 1.15)
    return lambda value: (value - low) / ((high - low) or 1.0) * WIDTH

"""Numbers and comparisons in words, the same on the page, in a reason and in the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

LONGEST_REPEATED_UNIT = 12
COMPARISON = {"at_most": "at most", "at_least": "at least", "equal": "exactly"}


def number(value: float | int | str | None, digits: int = 4) -> str:
    """`value` to four significant digits: 0.8731, 41.2, 1,234, 3.1e-07; whole numbers in full; "not measured" for None."""
    if value is None:
        return "not measured"
    if isinstance(value, str) or not math.isfinite(value):
        return {"nan": "not a number", "inf": "infinite", "-inf": "minus infinite"}.get(str(value), str(value))
    size = abs(value)
    if value == int(value) and size < 1e7:
        return f"{int(value):,}"
    if 1e-3 <= size < 1e7:
        places = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{value:,.{places}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, exponent = f"{value:.{digits - 2}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


def quantity(value: float | int | str | None, unit: str = "") -> str:
    """A number with its unit; "%" and "x" stand close, other units after a space."""
    text = number(value)
    if value is None or not unit:
        return text
    return f"{text}{unit}" if unit == "x" else f"{text} {unit}"


def hours(seconds: float) -> str:
    """A duration as people say it: 41 s, 12 min, 3.4 h, 2.1 d."""
    for limit, size, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:.1f} d"


def amount(value: float, unit: str) -> str:
    """A number for planning, to three digits: durations in the unit that fits, ratios as a percentage, bytes as kB to TB."""
    if unit == "s":
        return hours(value) if value >= 1 else f"{value * 1e3:.3g} ms"
    if unit == "ratio":
        return f"{value:.1%}" if value < 0.9995 else f"{value:.3%}"
    if unit == "probability":
        return f"{value:.2g}"
    if unit == "B":
        size, name = next(
            ((size, name) for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= size), (1.0, "B")
        )
        return f"{value / size:.3g} {name}"
    return quantity(
        value if value >= 1000 and value == int(value) else float(f"{value:.3g}"),
        unit.replace("money", "").replace("/h", "an hour").strip(),
    )


def requirement(direction: str, bound: float | str | None, unit: str = "") -> str:
    """What a value had to be, such as "at most 0.1 s"; empty without a bound. A unit of many words is not said a second time."""
    return "" if bound is None else f"{COMPARISON.get(direction, direction)} {beside(bound, unit)}"


def beside(value: float | int | str | None, unit: str) -> str:
    """A number that stands next to another one of the same unit: with the unit only where that is short."""
    return quantity(value, unit if len(unit) <= LONGEST_REPEATED_UNIT else "")


def counted(count: int, noun: str, plural: str = "") -> str:
    """The count with its noun: 1 rank, 2 ranks."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def sentence(text: str) -> str:
    """`text` with a capital at its start, unless that is a name such as job.toml, and a full stop at its end."""
    text = text.strip()
    head = text.split(" ", 1)[0]
    if head.isalpha() and head.islower():
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?", ":")) else f"{text}."


def spoken(text: str, meta: Mapping[str, Any]) -> str:
    """`text` with the commands in it as its reader can give them: `rankproof judge DIR` where an installed suite wrote the evidence.

    Everywhere else they stand as in a checkout: `python -m suite judge DIR`, `pytest -m cpu`.
    """
    if not meta.get("installed"):
        return text
    return re.sub(r"\bpytest -m (?=cpu|gpu|bench)", "rankproof audit -m ", re.sub(r"\bpython -m (?:suite|reports)(?= )", "rankproof", text))

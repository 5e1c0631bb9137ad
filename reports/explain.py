"""One criterion in plain text: what it claims, what was found, what would have been noticed, and how to check it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from reports.evidence import EvidenceError
from reports.wording import number, quantity, requirement


def explanation(audit: Mapping[str, Any], id: str) -> str:
    """The text for every backend of criterion `id`. Raises EvidenceError, naming the known ids, where the catalogue lacks it."""
    found = [item for item in audit["criteria"] if item["id"] == id]
    if not found:
        known = ", ".join(sorted({item["id"] for item in audit["criteria"]})) or "none"
        raise EvidenceError(f"criterion {id!r} is not in the catalogue; it has {known}.")
    return "\n\n".join("\n".join(_lines(item)) for item in found)


def _lines(item: Mapping[str, Any]) -> Iterator[str]:
    yield f"{item['id']} [{item['backend']}] {item['verdict'].replace('_', ' ')}" + ("  (critical)" if item["critical"] else "")
    for name, text in _fields(item):
        yield textwrap.fill(text, 110, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16)
    for name in ("verify", "rerun"):  # never folded: they are to be copied
        if item[name]:
            yield f"  {name:<14}{item[name]}"


def _fields(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    finding = item["finding"]
    yield "claim", item["claim"]
    yield "found", item["reason"]
    if finding["value"] is not None:
        required = requirement(finding["direction"], finding["bound"], finding["unit"])
        yield (
            "value",
            f"{quantity(finding['value'], finding['unit'])} ({finding['provenance']})" + (f", required {required}" if required else ""),
        )
    if finding["margin"] is not None:
        yield "margin", quantity(finding["margin"], finding["unit"])
    if finding["interval"]:
        yield "interval", f"{number(finding['interval'][0])} to {number(finding['interval'][1])}"
    if finding["samples"] is not None:
        yield "samples", number(finding["samples"])
    if finding["power"]:
        yield "power", finding["power"]
    yield from (("twin", f"{twin['words']}: {twin_words(twin)}. {twin['explanation']}") for twin in item["twins"])
    yield from (("assumes", text) for text in item["assumptions"])
    yield from (("limited by", text) for text in item["limitations"])
    if item["overturned_by"]:
        yield "overturned by", item["overturned_by"]
    yield "owner", item["owner"]


def twin_words(twin: Mapping[str, Any]) -> str:
    """What became of the planted fault, in a few words."""
    if twin["outcome"] is None:
        return "not run"
    if twin["outcome"] == "not_applicable":
        return "not applicable"
    fired = "fired" if twin["fired"] else "did not fire"
    rejected = {True: "rejected", False: "not rejected"}[bool(twin["rejected"])]
    reason = "" if not twin["rejected"] else (", for the reason foretold" if twin["as_foretold"] else ", for another reason than foretold")
    return f"{fired}, {rejected}{reason}"

"""`audit.html`: audit.json made readable. One file that asks the network for nothing, complete with scripts off.

Allure, pytest-html and the dashboards of the field show results and leave the reader to trust them. This page puts the decision first with what
blocks it, shows every check failing on a planted fault, adds its ledger up in the open, and gives the command that checks each claim.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from reports.bullet import bullet
from reports.charts import KINDS, Chart, draw
from reports.device_use import device_use
from reports.plot_svg import StyleSheet
from reports.verdicts import VERDICTS
from reports.wording import amount, beside, counted, number, quantity, requirement, sentence

TEMPLATES = Path(__file__).with_name("templates")
MOST_EMBEDDED_BYTES = 1_000_000
WORD = {name: name.replace("_", " ") for name in VERDICTS}


def render_page(audit: Mapping[str, Any], text: str) -> str:
    """The page of an audit; `text` is audit.json as written, which the page carries along unless it is large."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    engine = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    engine.filters.update(
        number=number,
        cell=_cell,
        digest=lambda value: str(value)[:12],
        breakable=_breakable,
        sentence=sentence,
        row_of=_row_of,
        figures_by_name=_by_name,
    )
    engine.globals.update(
        beside=beside, quantity=quantity, requirement=requirement, counted=counted, amount=amount, bullet=bullet, word=WORD
    )
    sheet = StyleSheet()
    criteria = _ordered(audit)
    charts = {item["anchor"]: _charts(item, sheet) for item in criteria}
    use = device_use(audit["measured"]["devices"], sheet)
    style = (TEMPLATES / "page.css").read_text() + sheet.rules()
    script = (TEMPLATES / "page.js").read_text()
    return engine.get_template("audit.html.j2").render(
        audit=audit, criteria=criteria, anchors={(item["id"], item["backend"]): item["anchor"] for item in criteria}, areas=_areas(audit, criteria), charts=charts, use=use, ledger=_ledger(audit), style=Markup(style), script=Markup(script),
        policy=_content_policy(style, script), embedded=_embedded(text), blocking_sentences=_sentences_of_blocking(audit),
    )  # fmt: skip


def _ordered(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The criteria, worst verdict first and else as in the catalogue, each with the anchor that links to it."""
    backends: dict[str, list[str]] = {}
    for item in audit["criteria"]:
        backends.setdefault(item["id"], []).append(item["backend"])
    ordered = sorted(audit["criteria"], key=lambda item: (VERDICTS.index(item["verdict"]), not item["critical"]))
    first = {id: names[0] for id, names in backends.items()}
    return [
        {**item, "anchor": item["id"] if item["backend"] == first[item["id"]] else f"{item['id']}.{item['backend']}"} for item in ordered
    ]


def _areas(audit: Mapping[str, Any], criteria: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The criteria by area: areas in the order of the catalogue, worst verdict first in each."""
    areas: dict[str, list[dict[str, Any]]] = {item["area"]: [] for item in audit["criteria"]}
    for item in criteria:
        areas[item["area"]].append(item)
    return areas


def _charts(item: Mapping[str, Any], sheet: StyleSheet) -> list[Chart]:
    """The drawings for one criterion, and its table where it has one."""
    details, charts = item["finding"]["details"], []
    for kind in KINDS:
        if details.get(kind):
            name = f"{kind}-{hashlib.sha256(item['anchor'].encode()).hexdigest()[:6]}"
            charts.append(draw(kind, details[kind], name, item["finding"], sheet))
    return charts


def _ledger(audit: Mapping[str, Any]) -> dict[str, Any]:
    """The counts as they stand and as they are found by counting again: a page that hides a criterion must not look complete."""
    coverage = audit["coverage"]
    counts = {name: coverage[name] for name in VERDICTS}
    found = {name: sum(item["verdict"] == name for item in audit["criteria"]) for name in VERDICTS}
    closes = sum(counts.values()) == coverage["catalogue"] == len(audit["criteria"]) and counts == found
    return {
        "catalogue": coverage["catalogue"],
        "counts": counts,
        "sum": sum(counts.values()),
        "found": len(audit["criteria"]),
        "closes": closes,
    }


def _sentences_of_blocking(audit: Mapping[str, Any]) -> list[str]:
    """The reasons that concern no single criterion; the others are shown as a table of actual against required."""
    heads = tuple(f"{item['id']} [{item['backend']}]" for item in audit["decision"]["blocking"])
    return [reason for reason in audit["decision"]["reasons"] if not (heads and reason.startswith(heads)) or "rests on run" in reason]


def _content_policy(style: str, script: str) -> str:
    """Nothing may be loaded, and of what is inside only the one style sheet and the one script, by their digests."""

    def source(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    return f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; img-src data:; base-uri 'none'; form-action 'none'"


def _embedded(text: str) -> Markup | None:
    """audit.json for the page to carry; no "<" in it, so that no string in the evidence can end the element."""
    if len(text.encode()) > MOST_EMBEDDED_BYTES:
        return None
    compact = json.dumps(json.loads(text), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return Markup(compact.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _cell(value: Any) -> str:
    """A value in a table: numbers shortened, absent ones as a dash, lists and tables as JSON."""
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else value if isinstance(value, str) else _pretty(value)


def _by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def _row_of(item: Mapping[str, Any], names: list[str]) -> list[Any]:
    """A row of a table: these values of a mapping, in this order."""
    return [item[name] for name in names]


def _breakable(name: str) -> Markup:
    """A dotted name that may be folded after a dot or an underscore."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", name))


def _pretty(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

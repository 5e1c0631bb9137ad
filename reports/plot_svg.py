"""matplotlib figures as SVG that fits the page: its colours and type follow the page's theme, and no attribute breaks its security policy.

A figure is drawn in stand-in colours (`COLOUR`), each of which becomes a variable of the page's style sheet; so one drawing serves light, dark
and print. Inline `style` attributes, which the policy forbids, become classes whose rules the page collects. Unused ids go, the others are
made unique.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = (
    "ink", "muted", "rule", "paper", "panel", "passed", "failed", "inconclusive", "not_run", "waived", "not_applicable", "line",
    "data_wait", "forward", "backward", "exposed", "optimizer", "other",
)  # fmt: skip
COLOUR = {name: f"#0a0b{index:02x}" for index, name in enumerate(_NAMES, start=1)}

SETTINGS: Any = {
    "svg.hashsalt": "rankproof", "svg.fonttype": "none", "text.parse_math": False, "font.size": 11, "axes.labelsize": 11, "xtick.labelsize": 11,
    "ytick.labelsize": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": COLOUR["muted"],
    "axes.labelcolor": COLOUR["muted"], "xtick.color": COLOUR["muted"], "ytick.color": COLOUR["muted"], "text.color": COLOUR["ink"],
    "axes.linewidth": 0.8, "axes.facecolor": "none", "figure.facecolor": "none", "legend.frameon": False, "legend.fontsize": 11,
    "grid.color": COLOUR["rule"], "grid.linewidth": 0.8, "xtick.major.size": 3, "ytick.major.size": 3, "lines.linewidth": 1.6, "lines.markersize": 5,
    "path.simplify": False,
}  # fmt: skip


@dataclass(slots=True)
class StyleSheet:
    """The rules that the drawings of one page need: declarations -> class."""

    classes: dict[str, str] = field(default_factory=dict)

    def class_of(self, declarations: str) -> str:
        return self.classes.setdefault(declarations, f"p{len(self.classes)}")

    def rules(self) -> str:
        return "".join(f".{name}{{{declarations}}}" for declarations, name in self.classes.items())


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of `width` x `height` units, in the page's settings whatever the user's matplotlibrc says. Loads matplotlib now."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on missing glyphs (the page's own font draws the text) and very long labels
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        drawing = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        FigureCanvasAgg(drawing)
        yield drawing


def themed_svg(drawing: Figure, name: str, alternative: str, sheet: StyleSheet) -> str:
    """The figure as an `<svg>` element; `name` makes its ids unique on the page, `alternative` says in words what it shows."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _clean(buffer.getvalue(), name, alternative, sheet)


def _clean(text: str, name: str, alternative: str, sheet: StyleSheet) -> str:
    body = text[text.index("<svg") :]
    view_box = re.search(r'viewBox="([^"]+)"', body)
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.S)
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r' style="([^"]*)"', lambda match: f' class="{sheet.class_of(_declarations(match[1]))}"', body)
    body = _unique_ids(body, name)
    body = re.sub(r">\s+<", "><", body)
    label = alternative.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return f'<svg viewBox="{view_box[1] if view_box else "0 0 1 1"}" class="plot" role="img" aria-label="{label}">{body.strip()}'


def _declarations(style: str) -> str:
    style = re.sub(
        r"font: (?:[a-z]+ )*(\d+ )?([\d.]+px) [^;]+",
        lambda match: f"font-size: {match[2]}" + (f"; font-weight: {match[1]}" if match[1] else ""),
        style,
    )
    for name, stand_in in COLOUR.items():
        style = style.replace(stand_in, f"var(--{name.replace('_', '-')})")
    return style.strip()


def _unique_ids(body: str, name: str) -> str:
    used = set(re.findall(r'href="#([^"]+)"', body)) | set(re.findall(r"url\(#([^)]+)\)", body))
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    return re.sub(r"url\(#", f"url(#{name}-", body)


def blank_axes(drawing: Any) -> tuple[Any, float]:
    """Axes over the whole drawing, in points from its upper left corner, with nothing drawn; and its width in points."""
    axes = drawing.add_axes((0.0, 0.0, 1.0, 1.0))
    drawing.set_layout_engine("none")
    width, height = (float(inches) * 72 for inches in drawing.get_size_inches())
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    return axes, width

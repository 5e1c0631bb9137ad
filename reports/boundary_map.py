"""The map of crash boundaries: one cell per file operation of a save and rank, with what became of a job killed just before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reports.plot_svg import COLOUR, blank_axes

Rows = Sequence[Mapping[str, Any]]
PER_LINE = 26
CELL_UNITS = 15.0

# outcome -> (letter in the cell, colour, words); the letter tells apart what the colour groups
OUTCOMES: dict[str, tuple[str, str, str]] = {
    "resumed_newest": ("N", "passed", "resumed from the newest checkpoint"),
    "resumed_previous": ("P", "passed", "resumed from the one before"),
    "loud_failure": ("L", "failed", "loud failure"),
    "silent_divergence": ("D", "failed", "silent divergence"),
    "fresh_start": ("F", "failed", "started afresh"),
    "torn": ("T", "failed", "torn mix of two steps"),
    "exit_0_without_resuming": ("0", "failed", "exit 0 without resuming"),
    "hang": ("H", "failed", "hang"),
    "wrong_checkpoint": ("W", "failed", "wrong checkpoint"),
    "not_seen": ("?", "inconclusive", "not seen"),
}
OTHER = ("*", "inconclusive", "")


def boundary_height(rows: Rows) -> float:
    """The height in units: the lines of the map, one line per rank between them, and the key."""
    return 26.0 + CELL_UNITS * len(_lines(rows)) + 15.0 * len(_seen(rows))


def draw_boundaries(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    from matplotlib.patches import Rectangle

    axes, width = blank_axes(drawing)
    cell = (width - 52.0) / PER_LINE
    for line, (rank, first, members) in enumerate(_lines(rows)):
        top = 20.0 + line * CELL_UNITS
        axes.text(44.0, top + CELL_UNITS / 2, f"rank {rank}" if first == 1 else f"{first}…", ha="right", va="center", color=COLOUR["muted"])
        for column, row in enumerate(members):
            letter, colour, _ = OUTCOMES.get(str(row["outcome"]), OTHER)
            corner = (50.0 + column * cell, top)
            faint = str(row["outcome"]) == "resumed_previous"
            face = COLOUR["panel"] if faint else COLOUR[colour]
            axes.add_patch(Rectangle(corner, cell - 1.5, CELL_UNITS - 1.5, facecolor=face, edgecolor=COLOUR[colour], linewidth=0.8))
            ink = COLOUR[colour] if faint else COLOUR["paper"]
            axes.text(corner[0] + cell / 2 - 0.75, top + CELL_UNITS / 2 - 0.2, letter, ha="center", va="center", fontsize=9, color=ink)
    axes.text(50.0, 12.0, "file operations of one save, in order →", color=COLOUR["muted"], va="center")
    _key(axes, rows, 28.0 + len(_lines(rows)) * CELL_UNITS)


def _key(axes: Any, rows: Rows, top: float) -> None:
    for index, (outcome, count) in enumerate(_seen(rows)):
        letter, colour, words = OUTCOMES.get(outcome, OTHER)
        axes.text(50.0, top + 15.0 * index, letter, va="center", color=COLOUR[colour], fontweight="bold")
        axes.text(64.0, top + 15.0 * index, f"{words or outcome}: {count}", va="center")


def boundary_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    parts = [f"{count} {OUTCOMES.get(outcome, OTHER)[2] or outcome}" for outcome, count in _seen(rows)]
    return f"Killed before each of {len(rows)} file operations of a save: {', '.join(parts)}."


def _lines(rows: Rows) -> list[tuple[Any, int, Rows]]:
    """(rank, number of the first operation in the line, its cells), each rank starting on a line of its own."""
    by_rank: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_rank.setdefault(row["rank"], []).append(row)
    return [
        (rank, start + 1, members[start : start + PER_LINE])
        for rank, members in sorted(by_rank.items())
        for start in range(0, len(members), PER_LINE)
    ]


def _seen(rows: Rows) -> list[tuple[str, int]]:
    """Outcomes with their counts, in the order of the table above."""
    counts = Counter(str(row["outcome"]) for row in rows)
    order = list(OUTCOMES)
    return sorted(counts.items(), key=lambda item: (order.index(item[0]) if item[0] in order else len(order), item[0]))

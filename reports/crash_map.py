"""The map of crash states: for each rank and kind of crash one cell per operation of the recorded save, with the worst that came of a crash there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reports.boundary_map import OTHER, OUTCOMES
from reports.plot_svg import COLOUR, blank_axes

Rows = Sequence[Mapping[str, Any]]
Line = tuple[str, Rows]
PER_LINE = 30
CELL_UNITS = 15.0
LEFT_UNITS = 118.0


def crash_map_height(rows: Rows) -> float:
    """The height in units: a heading for each save, its lines, and the key."""
    return 24.0 + sum(22.0 + CELL_UNITS * len(lines) for _, lines in _saves(rows)) + 15.0 * len(_seen(rows))


def draw_crash_map(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    axes, width = blank_axes(drawing)
    cell, top = (width - LEFT_UNITS - 4.0) / PER_LINE, 8.0
    for heading, lines in _saves(rows):
        axes.text(4.0, top + 9.0, heading, va="center", color=COLOUR["muted"])
        top += 22.0
        for label, members in lines:
            axes.text(LEFT_UNITS - 6.0, top + CELL_UNITS / 2, label, ha="right", va="center", color=COLOUR["muted"])
            _cells(axes, members, top, cell)
            top += CELL_UNITS
    for index, (outcome, count) in enumerate(_seen(rows)):
        letter, colour, words = OUTCOMES.get(outcome, OTHER)
        axes.text(LEFT_UNITS, top + 12.0 + 15.0 * index, letter, va="center", color=COLOUR[colour], fontweight="bold")
        axes.text(LEFT_UNITS + 14.0, top + 12.0 + 15.0 * index, f"{words or outcome}: {count} operations", va="center")


def _cells(axes: Any, members: Rows, top: float, cell: float) -> None:
    from matplotlib.patches import Rectangle

    for column, row in enumerate(members):
        letter, colour, _ = OUTCOMES.get(str(row["outcome"]), OTHER)
        faint = str(row["outcome"]) == "resumed_previous"
        left = LEFT_UNITS + column * cell
        face = COLOUR["panel"] if faint else COLOUR[colour]
        axes.add_patch(Rectangle((left, top), cell - 1.5, CELL_UNITS - 1.5, facecolor=face, edgecolor=COLOUR[colour], linewidth=0.8))
        ink = COLOUR[colour] if faint else COLOUR["paper"]
        axes.text(left + cell / 2 - 0.75, top + CELL_UNITS / 2 - 0.2, letter, ha="center", va="center", fontsize=9, color=ink)


def crash_map_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    """What the map shows, as a sentence."""
    parts = [f"{count} {OUTCOMES.get(outcome, OTHER)[2] or outcome}" for outcome, count in _seen(rows)]
    rate = finding["details"].get("states_per_s")
    runs = finding["details"].get("resumes_per_s")
    quick = f" {rate} states judged a second of resuming{f', by {runs} resumes a second' if runs else ''}." if rate else ""
    return f"The worst that came of a crash at each operation of a save, by rank and kind of crash: {', '.join(parts)}.{quick}"


def _saves(rows: Rows) -> list[tuple[str, list[Line]]]:
    """(heading, lines) of each recorded save; a line is one rank under one kind of crash, broken where it is long."""
    saves: dict[tuple[Any, Any], dict[tuple[Any, str], list[Mapping[str, Any]]]] = {}
    for row in rows:
        lines = saves.setdefault((row["world_size"], row["what"]), {})
        lines.setdefault((row["rank"], str(row["crash"])), []).append(row)
    return [(f"world size {world_size}: {what} →", _lines(held)) for (world_size, what), held in saves.items()]


def _lines(held: Mapping[tuple[Any, str], Rows]) -> list[Line]:
    return [
        (f"rank {rank}, {crash}" if start == 0 else f"{start + 1}…", members[start : start + PER_LINE])
        for (rank, crash), members in sorted(held.items())
        for start in range(0, len(members), PER_LINE)
    ]


def _seen(rows: Rows) -> list[tuple[str, int]]:
    """Outcomes with their counts, in the order of the table of outcomes."""
    counts, order = Counter(str(row["outcome"]) for row in rows), list(OUTCOMES)
    return sorted(counts.items(), key=lambda item: (order.index(item[0]) if item[0] in order else len(order), item[0]))

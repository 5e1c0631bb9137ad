"""The charts of the page, each drawn from one key of a finding's details.

    scaling     [{world_size step_ms low high samples_per_s efficiency}]
    breakdown   [{world_size rank data_wait_ms forward_ms backward_ms exposed_ms optimizer_ms other_ms}]
    timeline    [{t_s event step rank}]
    boundaries  [{rank n op path outcome resumed_step lost_steps}]
    trajectory  {steps deviation envelope}
    lateness    [{rank median_ms late_share}]

Every chart comes with its text alternative and the table that it was drawn from. matplotlib is loaded by the first chart, not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.boundary_map import boundary_height, boundary_words, draw_boundaries
from reports.crash_map import crash_map_height, crash_map_words, draw_crash_map
from reports.plot_svg import COLOUR, StyleSheet, figure, themed_svg
from reports.wording import counted, number, quantity

WIDTH = 400.0  # units; about the width of one column, so that a unit is about a pixel
PHASES = ("data_wait", "forward", "backward", "exposed", "optimizer", "other")
PHASE_WORDS = {"data_wait": "waits for input", "exposed": "waits for communication", "other": "other"}
COLUMNS = (
    "world_size", "rank", "n", "t_s", "event", "step", "op", "path", "outcome", "resumed_step", "lost_steps", "step_ms", "low", "high",
    "samples_per_s", "efficiency", *(f"{phase}_ms" for phase in PHASES), "deviation", "envelope", "median_ms", "late_share",
)  # fmt: skip
MOST_POINTS = 400  # a line of 400 units cannot show more
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing. svg "" where it could not be drawn; `words` then says why."""

    kind: str
    title: str
    svg: str
    words: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def draw(kind: str, data: Any, name: str, finding: Mapping[str, Any], sheet: StyleSheet) -> Chart:
    """The chart of `kind`. Data that lacks what the chart needs gives a chart without a drawing that says so."""
    title, height, paint, words = KINDS[kind]
    rows = _rows(kind, data)
    columns, cells = _table(rows)
    try:
        alternative = words(rows, finding)
        with figure(WIDTH, height(rows)) as drawing:
            paint(drawing, rows, finding)
            return Chart(kind, title, themed_svg(drawing, name, alternative, sheet), alternative, columns, cells)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        return Chart(kind, title, "", f"It cannot be drawn from what was recorded: {type(error).__name__}: {error}.", columns, cells)


def _rows(kind: str, data: Any) -> Rows:
    if kind == "trajectory" and isinstance(data, Mapping):
        lists = [list(data.get(key) or []) for key in ("steps", "deviation", "envelope")]
        return [dict(zip(("step", "deviation", "envelope"), row, strict=True)) for row in zip(*lists, strict=False)]
    return [row for row in data if isinstance(row, Mapping)] if isinstance(data, list) else []


def _table(rows: Rows) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """Columns in the order a reader expects, unknown ones last; stored evidence has lost the order it was given in."""
    known = {name: place for place, name in enumerate(COLUMNS)}
    columns = tuple(sorted({str(key) for row in rows for key in row}, key=lambda name: (known.get(name, len(known)), name)))
    return columns, tuple(tuple(row.get(column) for column in columns) for row in rows)


def _scaling(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    """Left: how long a step takes against what perfect scaling would give. Right: the efficiency against its bound."""
    times, shares = drawing.subplots(1, 2)
    sizes = [int(row["world_size"]) for row in rows]
    steps = [float(row["step_ms"]) for row in rows]
    spread = [
        [max(0.0, step - float(row["low"])) for step, row in zip(steps, rows, strict=True)],
        [max(0.0, float(row["high"]) - step) for step, row in zip(steps, rows, strict=True)],
    ]
    ideal = [steps[0] * sizes[0] / size for size in sizes]
    times.plot(sizes, ideal, color=COLOUR["muted"], linestyle=(0, (4, 3)), linewidth=1.2)
    times.errorbar(sizes, steps, yerr=spread, color=COLOUR["line"], marker="o", capsize=3, elinewidth=1.2)
    times.annotate(
        "perfect", (sizes[-1], ideal[-1]), xytext=(0, -4), textcoords="offset points", ha="right", va="top", color=COLOUR["muted"]
    )
    times.set_title("step time, ms", loc="left", fontsize=11, color=COLOUR["muted"])
    times.set_ylim(0, max(*steps, *ideal, *(float(row["high"]) for row in rows)) * 1.08)
    efficiency = [float(row["efficiency"]) for row in rows]
    shares.plot(sizes, efficiency, color=COLOUR["line"], marker="o")
    if isinstance(finding.get("bound"), int | float):
        _bound_line(shares, float(finding["bound"]), sizes)
    for size, share in zip(sizes[1:], efficiency[1:], strict=True):
        below = isinstance(finding.get("bound"), int | float) and share < finding["bound"]
        shares.annotate(f"{share:.0%}", (size, share), xytext=(0, -14 if below else 7), textcoords="offset points", ha="right")
    shares.set_title("efficiency", loc="left", fontsize=11, color=COLOUR["muted"])
    shares.set_ylim(0, max(1.1, *efficiency) * 1.05)
    for axes in (times, shares):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("ranks")
        axes.grid(axis="y")


def _bound_line(axes: Any, bound: float, sizes: Sequence[float]) -> None:
    axes.axhline(bound, color=COLOUR["failed"], linewidth=1.2, linestyle=(0, (2, 2)))
    axes.annotate(f"bound {number(bound)}", (sizes[0], bound), xytext=(2, -3), textcoords="offset points", va="top", color=COLOUR["failed"])


def _scaling_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    parts = [
        f"{counted(int(row['world_size']), 'rank')} {quantity(row['step_ms'], 'ms')} a step, efficiency {float(row['efficiency']):.0%}"
        for row in rows
    ]
    return "; ".join(parts) + "."


def _breakdown(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    """One bar per rank: where its step goes. What is waiting is set apart in colour from what is work."""
    axes = drawing.subplots()
    names = [f"{row['world_size']} · rank {row['rank']}" for row in rows]
    left = [0.0] * len(rows)
    for phase in PHASES:
        widths = [max(0.0, float(row[f"{phase}_ms"])) for row in rows]
        axes.barh(
            names,
            widths,
            left=left,
            height=0.66,
            color=COLOUR[phase],
            edgecolor=COLOUR["paper"],
            linewidth=0.8,
            label=PHASE_WORDS.get(phase, phase),
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for index, (total, row) in enumerate(zip(left, rows, strict=True)):
        waits = float(row["data_wait_ms"]) + float(row["exposed_ms"])
        axes.annotate(
            f"{waits / total:.0%} waits" if total else "",
            (total, index),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=COLOUR["muted"],
        )
    axes.set_xlim(0, max(left, default=1.0) * 1.22)
    axes.invert_yaxis()
    axes.set_xlabel("ms of a step (ranks in the world · rank)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    drawing.legend(loc="outside upper left", ncols=3, columnspacing=1.0, handlelength=0.9, handletextpad=0.5)


def _breakdown_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    return "; ".join(
        f"rank {row['rank']} of {row['world_size']}: " + ", ".join(f"{PHASE_WORDS.get(phase, phase)} {quantity(row[f'{phase}_ms'], 'ms')}" for phase in PHASES)
        for row in rows
    ) + "."  # fmt: skip


def _timeline(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    """One line per event, at its time; the steps down show what each phase of the recovery took."""
    axes = drawing.subplots()
    times = [float(row["t_s"]) for row in rows]
    end = max(times) or 1.0
    axes.step(times, range(len(rows)), where="pre", color=COLOUR["rule"], linewidth=1.2)
    for index, (time, row) in enumerate(zip(times, rows, strict=True)):
        colour = COLOUR["failed"] if _is_fault(row) else COLOUR["line"]
        axes.plot([time], [index], marker="o", color=colour)
        right = time < 0.55 * end
        ground = {"facecolor": COLOUR["paper"], "edgecolor": "none", "pad": 1.5}
        place = {"xytext": (7 if right else -7, 0), "textcoords": "offset points", "ha": "left" if right else "right", "va": "center"}
        axes.annotate(_event(row), (time, index), bbox=ground, **place)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.03 * end, 1.04 * end)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("seconds")
    axes.grid(axis="x")


def _is_fault(row: Mapping[str, Any]) -> bool:
    return any(word in str(row["event"]) for word in ("fault", "kill", "hang", "damage"))


def _event(row: Mapping[str, Any]) -> str:
    who = "" if row.get("rank") is None else f", rank {row['rank']}"
    step = "" if row.get("step") is None else f", step {row['step']}"
    return f"{row['event']}{who}{step}"


def _timeline_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    return "; ".join(f"{float(row['t_s']):.2f} s {_event(row)}" for row in rows) + "."


def _trajectory(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    """The deviation inside its envelope, on a logarithmic scale; equal numbers have no place there and are left out."""
    axes = drawing.subplots()
    kept = rows[:: max(1, math.ceil(len(rows) / MOST_POINTS))]
    steps = [float(row["step"]) for row in kept]
    deviation, envelope = ([float(row[key]) for row in kept] for key in ("deviation", "envelope"))
    positive = [value for value in (*deviation, *envelope) if 0 < value < math.inf]
    floor = min(positive) / 3 if positive else 1e-17
    axes.fill_between(
        steps, floor, [value if 0 < value < math.inf else floor for value in envelope], color=COLOUR["passed"], alpha=0.13, linewidth=0
    )
    axes.plot(steps, [value if value > 0 else math.nan for value in envelope], color=COLOUR["passed"], linewidth=1.1, linestyle=(0, (4, 3)))
    axes.plot(steps, [value if value > 0 else math.nan for value in deviation], color=COLOUR["line"])
    axes.set_yscale("log")
    axes.set_ylim(floor, max(positive, default=1e-16) * 2)
    axes.annotate("envelope", (steps[-1], envelope[-1]), xytext=(-24, 3), textcoords="offset points", ha="right", color=COLOUR["passed"])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step")
    axes.set_title("relative deviation", loc="left", fontsize=11, color=COLOUR["muted"])
    axes.minorticks_off()
    axes.grid(axis="y")


def _trajectory_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    worst = max(rows, key=lambda row: float(row["deviation"]) / (float(row["envelope"]) or math.inf))
    outside = sum(float(row["deviation"]) > float(row["envelope"]) for row in rows)
    where = "all inside the envelope" if not outside else f"{outside} outside the envelope"
    return f"{counted(len(rows), 'step')}, {where}; closest at step {worst['step']}: {number(worst['deviation'])} of {number(worst['envelope'])}."


def _lateness(drawing: Any, rows: Rows, finding: Mapping[str, Any]) -> None:
    """Per rank, how late it enters the collectives at the median, and how often."""
    axes = drawing.subplots()
    values = [float(row["median_ms"]) for row in rows]
    axes.barh([f"rank {row['rank']}" for row in rows], values, height=0.6, color=COLOUR["line"])
    for index, (value, row) in enumerate(zip(values, rows, strict=True)):
        text = f"{value:.2f} ms, late in {float(row['late_share']):.0%}"
        axes.annotate(text, (max(value, 0.0), index), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_xlim(min(0.0, *values), max(*values, 1e-3) * 1.9)
    axes.invert_yaxis()
    axes.set_xlabel("ms after the other ranks, at the median")
    axes.tick_params(axis="y", length=0)


def _lateness_words(rows: Rows, finding: Mapping[str, Any]) -> str:
    return "; ".join(f"rank {row['rank']} {quantity(row['median_ms'], 'ms')}, late in {float(row['late_share']):.0%}" for row in rows) + "."


Paint = Callable[[Any, Rows, Mapping[str, Any]], None]
Words = Callable[[Rows, Mapping[str, Any]], str]
KINDS: dict[str, tuple[str, Callable[[Rows], float], Paint, Words]] = {
    "scaling": ("Scaling", lambda rows: 200.0, _scaling, _scaling_words),
    "breakdown": ("Where a step goes", lambda rows: 96.0 + 26.0 * len(rows), _breakdown, _breakdown_words),
    "timeline": ("Recovery", lambda rows: 52.0 + 19.0 * len(rows), _timeline, _timeline_words),
    "boundaries": ("Crash boundaries", boundary_height, draw_boundaries, boundary_words),
    "crash_map": ("Crash states", crash_map_height, draw_crash_map, crash_map_words),
    "trajectory": ("Deviation from one device", lambda rows: 200.0, _trajectory, _trajectory_words),
    "lateness": ("Lateness at the collectives", lambda rows: 60.0 + 26.0 * len(rows), _lateness, _lateness_words),
}

"""What each rank used, for the page: one table, a chart of it in words and bars, and in one sentence what was not measured and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.charts import WIDTH, Chart
from reports.plot_svg import COLOUR, StyleSheet, figure, themed_svg
from reports.wording import amount, counted, number

NOT_MEASURED = "not measured"
GPU_WORDS = "GPU utilisation, memory, power, clocks, throttle reasons and topology"
OWN_COLUMNS = ("backend", "ranks", "rank", "CPU, of one core", "peak memory", "of it since the start")
GPU_COLUMNS = ("GPU", "GPU busy", "GPU memory", "torch's peak on it", "power", "clock", "held back by")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """`sentences` say what was and was not measured; the tables are (columns, rows); topology None where fewer than two GPUs were seen."""

    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cores: tuple[tuple[Any, ...], ...]
    topology: tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]] | None
    chart: Chart


def device_use(devices: Mapping[str, Any] | None, sheet: StyleSheet) -> DeviceUse | None:
    """The view of audit.json's measured.devices; None where no healthy run was stored."""
    if not devices or not devices["rows"]:
        return None
    rows, gpus = devices["rows"], any(row["gpu"] for row in devices["rows"])
    columns = OWN_COLUMNS + (GPU_COLUMNS if gpus else ())
    return DeviceUse(
        tuple(_sentences(devices, gpus)), columns, tuple(_own(row) + (_gpu(row) if gpus else ()) for row in rows),
        tuple(_core(core) for core in devices["cores"]), _topology(devices), _chart(rows, gpus, sheet),
    )  # fmt: skip


def _sentences(devices: Mapping[str, Any], gpus: bool) -> list[str]:
    runs = counted(len(devices["runs"]), "healthy run")
    told = [f"From {runs}: the ranks' own peaks, and {counted(devices['samples'], 'sample')} of the machine taken from outside."]
    if gpus:
        names = ", ".join(_gpu_words(gpu) for gpu in devices["gpus"])
        return [*told, f"GPUs: {names}."]
    return [*told, f"{GPU_WORDS}: {NOT_MEASURED} ({devices['not_measured'] or 'no GPU belongs to a rank'})."]


def _gpu_words(gpu: Row) -> str:
    facts = [
        "" if gpu.get("memory_total_bytes") is None else amount(gpu["memory_total_bytes"], "B"),
        "" if gpu.get("power_limit_w") is None else f"limit {number(gpu['power_limit_w'])} W",
        "" if gpu.get("nvlinks") is None else counted(gpu["nvlinks"], "NVLink"),
    ]
    return f"{gpu['index']} {gpu.get('name') or 'of unknown name'} ({', '.join(filter(None, facts)) or NOT_MEASURED})"


def _own(row: Row) -> tuple[Any, ...]:
    share = row["cpu_share"]
    spread = "" if share is None or share["low"] == share["high"] else f" ({share['low']:.0%} to {share['high']:.0%})"
    used = NOT_MEASURED if share is None else f"{share['value']:.0%}{spread}"
    return (row["backend"], row["world_size"], row["rank"], used, _bytes(row["peak_resident_bytes"]), _bytes(row["grown_bytes"]))


def _gpu(row: Row) -> tuple[Any, ...]:
    gpu = row["gpu"]
    if gpu is None:
        return (NOT_MEASURED,) * len(GPU_COLUMNS)
    held = gpu["throttled"]
    words = NOT_MEASURED if held is None else ", ".join(f"{word} {share:.0%}" for word, share in sorted(held.items())) or "nothing"
    return (
        gpu["index"], _unit(gpu["utilisation_percent"], "%"), _bytes(gpu["memory_used_bytes"]), _bytes(row["peak_allocated_bytes"]),
        _unit(gpu["power_w"], " W"), _unit(gpu["sm_clock_mhz"], " MHz"), words,
    )  # fmt: skip


def _core(core: Row) -> tuple[Any, ...]:
    def share(name: str) -> str:
        return NOT_MEASURED if core[name] is None else f"{core[name]:.0%}"

    heat = core["thermal_throttles"]
    return (
        core["core"],
        share("busy_share"),
        share("steal_share"),
        _unit(core["frequency_mhz"], " MHz"),
        NOT_MEASURED if heat is None else heat,
    )


def _topology(devices: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]] | None:
    joined = devices["topology"]
    if len(joined) < 2:
        return None
    names = [f"GPU {gpu['index']}" for gpu in devices["gpus"]]
    return ("", *names), tuple(
        (name, *(NOT_MEASURED if one is None else one for one in row)) for name, row in zip(names, joined, strict=True)
    )


def _bytes(value: float | None) -> str:
    return NOT_MEASURED if value is None else amount(value, "B")


def _unit(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None else f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"


Panel = tuple[str, Callable[[Row], float | None], Callable[[float], str]]
PANELS: tuple[Panel, ...] = (
    ("CPU, of one core", lambda row: row["cpu_share"] and row["cpu_share"]["value"], lambda value: f"{value:.0%}"),
    ("peak memory", lambda row: row["peak_resident_bytes"], lambda value: amount(value, "B")),
)
GPU_PANELS: tuple[Panel, ...] = (
    ("GPU busy", lambda row: row["gpu"] and row["gpu"]["utilisation_percent"], lambda value: f"{value:.0f}%"),
    ("GPU memory", lambda row: row["gpu"] and row["gpu"]["memory_used_bytes"], lambda value: amount(value, "B")),
)


def _chart(rows: Sequence[Row], gpus: bool, sheet: StyleSheet) -> Chart:
    """Bars by world size and rank, a panel for each measure; a rank without a number has none, and the words say so."""
    panels = PANELS + (GPU_PANELS if gpus else ())
    words = (
        "; ".join(f"{_name(row)}: " + ", ".join(f"{title} {_shown(row, take, show)}" for title, take, show in panels) for row in rows) + "."
    )
    lines = len(panels) // 2
    with figure(WIDTH, lines * (44.0 + 24.0 * len(rows))) as drawing:
        axes = drawing.subplots(lines, 2, sharey=True, squeeze=False)
        for place, panel in zip(axes.flat, panels, strict=True):
            _bars(place, rows, panel)
        return Chart("devices", "What each rank used", themed_svg(drawing, "devices", words, sheet), words, (), ())


def _bars(axes: Any, rows: Sequence[Row], panel: Panel) -> None:
    title, take, show = panel
    values = [take(row) for row in rows]
    axes.barh([_name(row) for row in rows], [value or 0.0 for value in values], height=0.6, color=COLOUR["line"])
    for index, value in enumerate(values):
        text = NOT_MEASURED if value is None else show(value)
        axes.annotate(text, (value or 0.0, index), xytext=(4, 0), textcoords="offset points", va="center", color=COLOUR["muted"])
    axes.set_xlim(0, max([value for value in values if value] or [1.0]) * 1.75)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontsize=11, color=COLOUR["muted"])


def _shown(row: Row, take: Callable[[Row], float | None], show: Callable[[float], str]) -> str:
    value = take(row)
    return NOT_MEASURED if value is None else show(value)


def _name(row: Row) -> str:
    return f"{row['world_size']} · rank {row['rank']}"

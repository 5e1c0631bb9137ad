"""The page of what the reference saver costs: a pure rendering of the stored seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.statistics import Interval, median_interval, ratio_interval

QUIET_PERCENT = 10.0
Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """`what` takes at most `bound` times what `beside` takes; without a bound the ratio is only told."""

    what: str
    beside: str
    bound: float | None


CLAIMS = (
    Claim("save", "raw_write", 1.25), Claim("save", "dcp_save", 1.0), Claim("restore", "raw_read", 1.25), Claim("restore", "dcp_restore", 1.0),
    Claim("dcp_save", "raw_write", None), Claim("dcp_restore", "raw_read", None),
)  # fmt: skip
WORDS = {
    "save": "save, until it is published and durable", "stall": "stall of the training", "restore": "restore", "dcp_save": "DCP's save",
    "dcp_restore": "DCP's load", "raw_write": "one file written and synced", "raw_read": "that file read by each rank",
}  # fmt: skip


def is_quiet(run: Mapping[str, Any]) -> bool:
    """Whether next to nothing waited for a CPU before the run began; not known counts as quiet."""
    waited = run["waited_percent_before"]
    return waited is None or bool(waited <= QUIET_PERCENT)


def counted(runs: Runs, megabytes: int) -> Runs:
    """The runs of a size on a quiet machine; all of that size where there is none."""
    of_size = [run for run in runs if run["megabytes"] == megabytes]
    return [run for run in of_size if is_quiet(run)] or of_size


def seconds_of(runs: Runs) -> dict[str, list[float]]:
    """By what was done, the seconds of all runs, one behind the other; the first of each run, a warm-up, is left out."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, every in run["seconds"].items():
            found.setdefault(name, []).extend(every[1:])
    return found


def verdict(ratio: Interval, bound: float | None, *, quiet: bool = True) -> str:
    """holds, does not hold, or undecided where the interval has the bound inside; empty without a bound."""
    if bound is None:
        return ""
    if not quiet:
        return "undecided: busy machine"
    if ratio.high <= bound:
        return "holds"
    return "does not hold" if ratio.low > bound else "undecided"


def page(runs: Runs) -> str:
    """The whole page in Markdown."""
    sizes = sorted({int(run["megabytes"]) for run in runs})
    return "\n".join([_HEAD, *(_of_size(runs, size) for size in sizes), _raw(runs)])


_HEAD = """# What the reference saver costs

`workloads/checkpoint.py` on two ranks of one machine that hold the same state (weights and two Adam moments), beside `torch.distributed.checkpoint` (DCP), and beside
one rank that writes and syncs the same bytes as one file (each rank reads it back). All take turns in one run, in rotating order. What is restored is
not in the page cache. Ratios are medians of the ratios within a turn, with 95 % bootstrap intervals: *holds* where the whole interval keeps the bound, *undecided*
where the bound lies inside it. A run is of a busy machine where, in two seconds before it, something waited for a CPU in more than 10 % of the time (the number
beside it below); it counts only where there is no other, and decides nothing. Written by `python -m suite.bench.saver`; do not edit.
"""


def _of_size(runs: Runs, megabytes: int) -> str:
    chosen = counted(runs, megabytes)
    seconds, quiet = seconds_of(chosen), all(map(is_quiet, chosen))
    turns = len(seconds["save"])
    rows = [_claimed(claim, ratio_interval(seconds[claim.beside], seconds[claim.what]), quiet) for claim in CLAIMS]
    medians = ((name, median_interval(seconds[name])) for name in WORDS)
    times = [(WORDS[name], f"{1e3 * one.estimate:.0f}", f"{1e3 * one.low:.0f} to {1e3 * one.high:.0f}") for name, one in medians]
    return "\n".join([
        f"## {megabytes} MB, {turns} turns in {len(chosen)} run{'s' if len(chosen) > 1 else ''}\n", _table(("", "median, ms", "interval"), times),
        _table(("claim", "ratio", "interval", "bound", "verdict"), rows),
    ])  # fmt: skip


def _claimed(claim: Claim, ratio: Interval, quiet: bool) -> tuple[str, ...]:
    words = f"{WORDS[claim.what].split(',')[0]} / {WORDS[claim.beside]}"
    bound = "" if claim.bound is None else f"{claim.bound:g}"
    return words, f"{ratio.estimate:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}", bound, verdict(ratio, claim.bound, quiet=quiet)


def _raw(runs: Runs) -> str:
    """Every number that was taken, the warm-ups in brackets."""
    parts = ["## The seconds themselves\n", "In the order in which they were taken; the warm-up in brackets.\n"]
    for run in runs:
        waited = "not known whether quiet" if run["waited_percent_before"] is None else f"{run['waited_percent_before']} % before"
        where = f"{run['cores']} cores, Linux {run['kernel']}, {run['file_system']}, {waited}"
        parts.append(f"{run['megabytes']} MB ({run['bytes']:,} bytes), {run['taken_utc']}, {where}:\n")
        rows = [(name.replace("_", " "), _numbers(run["seconds"][name])) for name in WORDS]
        parts.append(_table(("", "seconds"), rows))
    return "\n".join(parts)


def _numbers(seconds: Sequence[float]) -> str:
    return " ".join([f"({seconds[0]:.3f})", *(f"{one:.3f}" for one in seconds[1:])])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"

"""Where the second save of a run can be cut: file operations of one of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from fixtures.trace import Trace
from suite.recovery.boundaries import turn_of


@dataclass(frozen=True, slots=True)
class Cut:
    """A rank dies before its file operation `n` (1-based, counted per rank), the `turn`-th after the step that is saved."""

    rank: int
    n: int
    op: str
    path: str
    turn: int = 0

    @property
    def words(self) -> str:
        return f"before rank {self.rank}'s file operation {self.n} ({self.op} {PurePath(self.path).name})"


def cuts(control: Trace, *, step: int) -> list[Cut]:
    """The first, a middle and the last operation, by the clock, of the save that follows `step`; of equal ones one."""
    files = control.files
    during = files[files["step"] == step].sort_values(["t_ns", "rank", "n"]) if not files.empty else files
    rows = during.to_dict("records")
    places = sorted({0, len(rows) // 2, len(rows) - 1}) if rows else []
    return [
        Cut(int(row["rank"]), int(row["n"]), str(row["op"]), str(row["path"]), turn_of(files, row))
        for row in (rows[place] for place in places)
    ]

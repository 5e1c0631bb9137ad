"""Where the second save of a run can be cut: file operations of one of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from fixtures.trace import Trace


@dataclass(frozen=True, slots=True)
class Cut:
    """A rank dies before its file operation `n` (1-based, counted per rank)."""

    rank: int
    n: int
    op: str
    path: str

    @property
    def words(self) -> str:
        return f"before rank {self.rank}'s file operation {self.n} ({self.op} {PurePath(self.path).name})"


def cuts(control: Trace, *, step: int) -> list[Cut]:
    """The first, a middle and the last operation, by the clock, of the save that follows `step`; of equal ones one."""
    files = control.files
    during = files[files["step"] == step].sort_values(["t_ns", "rank", "n"]) if not files.empty else files
    rows = during.to_dict("records")
    places = sorted({0, len(rows) // 2, len(rows) - 1}) if rows else []
    return [Cut(int(rows[place]["rank"]), int(rows[place]["n"]), str(rows[place]["op"]), str(rows[place]["path"])) for place in places]

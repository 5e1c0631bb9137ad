"""Judge: every registered artifact joins to all that it was made from and to the decision about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.evidence import Finding


def joins_to_everything(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """No row of the lineage has a gap, and the environment that an artifact names is the one that was audited."""
    if not rows:
        return Finding(accepted=None, explanation="no artifact is registered in the evidence, so there is nothing to join")
    gaps = [
        f"{row['artifact']} joins to no {column.replace('_', ' ')}" for row in rows for column, value in row.items() if value in (None, "")
    ]
    gaps += [
        f"{row['artifact']} was made with {row['environment']}, but {row['audited_environment']} was audited"
        for row in rows
        if row.get("environment") and str(row.get("audited_environment")) not in str(row["environment"])
    ]
    columns = [name for name in rows[0] if name != "decision"]  # its verdict follows from this finding, so it is no part of it
    details = {"table": {"columns": columns, "rows": [[row[column] for column in columns] for row in rows]}}
    if gaps:
        text = f"orphan: {gaps[0]} ({len(gaps)} gaps in {len(rows)} rows)"
        return Finding(accepted=False, value=len(gaps), unit="gaps", bound=0, explanation=text, samples=len(rows), details=details)
    text = f"{len(rows)} artifacts join to {', '.join(name.replace('_', ' ') for name in list(rows[0])[2:])} in one query, without a gap"
    return Finding(accepted=True, value=0, unit="gaps", bound=0, explanation=text, samples=len(rows), details=details)

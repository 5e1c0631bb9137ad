"""Judge: a batch that ends at a moment is scored as it would be with everything that came later at hand."""

from __future__ import annotations

import io

import pandas as pd

from fixtures.audit import Program
from reports.evidence import Finding
from suite.release.scores import same_scores


def replays(batch: Program, reference: bytes | None, *, scores: str, tolerance: float) -> Finding:
    """Records whose decision (second column) lies at or before the batch's moment have the reference's score (last column)."""
    served, moment = batch.files.get(scores), batch.damage_report.get("cutoff")
    if reference is None or moment is None:
        return Finding(accepted=None, explanation="there are no reference scores, or the batch has no moment at which it ends")
    if batch.exit_code != 0 or served is None:
        return Finding(accepted=False, explanation=f"the batch was not scored (exit code {batch.exit_code}): {batch.said()}")
    rows = batch.damage_report.get("rows_kept")
    return same_scores(
        _decided_by(served, moment), _decided_by(reference, moment), tolerance, f"; a batch of {rows} raw records as they stood at {moment}"
    )


def _decided_by(written: bytes, moment: str) -> pd.Series:
    table = pd.read_csv(io.BytesIO(written))
    decided = table[pd.to_datetime(table.iloc[:, 1], utc=True) <= pd.Timestamp(moment)]
    return pd.Series(decided.iloc[:, -1].to_numpy(float), index=decided.iloc[:, 0].astype(str))

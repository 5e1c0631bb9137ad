"""Judges: what is served is what was trained, from raw events, in a process that has none of the training code."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fixtures.audit import Program
from reports.evidence import Finding


def serves_what_was_trained(
    program: Program, reference: bytes | None, *, scores: str, tolerance: float, training_code: Sequence[str]
) -> Finding:
    """Every record that the reference scores is served with the same score, within `tolerance`, and no training module was imported."""
    served = program.files.get(scores)
    if reference is None:
        return Finding(accepted=None, explanation="the training side wrote no reference scores, so there is nothing to compare with")
    if program.exit_code != 0 or served is None:
        return Finding(accepted=False, explanation=f"inference exited with code {program.exit_code} and no scores: {program.said()}")
    imported = program.imported()
    if not imported:
        return Finding(accepted=None, explanation="the modules that inference imported were not seen: its output holds no import times")
    if loaded := _training_modules(imported, training_code):
        return Finding(accepted=False, explanation=f"inference imported training code: {', '.join(loaded)}")
    return same_scores(
        table_of(served), table_of(reference), tolerance, f"; none of {len(training_code)} training modules among {len(imported)} imported"
    )


def same_scores(served: pd.Series, wanted: pd.Series, tolerance: float, remark: str = "") -> Finding:
    """Both hold the same records, by name, with scores that differ by at most `tolerance`."""
    missing, extra = wanted.index.difference(served.index), served.index.difference(wanted.index)
    if wanted.empty or not wanted.index.is_unique or not served.index.is_unique:
        return Finding(accepted=None, explanation=f"the reference has {len(wanted)} records, not each named once: nothing can be compared")
    if len(missing) or len(extra):
        first = missing[0] if len(missing) else extra[0]
        text = f"{len(missing)} records of the reference were not served and {len(extra)} others were, the first {first}"
        return Finding(accepted=False, value=len(missing) + len(extra), unit="records", bound=0, explanation=text, samples=len(wanted))
    apart = (served[wanted.index] - wanted).abs()
    worst, at = float(apart.max()), str(apart.idxmax())
    count = int((~(apart <= tolerance)).sum())
    details = {
        "table": {
            "columns": ["record", "served", "reference"],
            "rows": [[name, float(served[name]), float(wanted[name])] for name in apart.nlargest(5).index],
        }
    }
    if count or np.isnan(apart).any():
        text = f"scores differ from the training side's by up to {worst:.3g} ({at}); {count} of {len(wanted)} by more than {tolerance:g}"
        return Finding(
            accepted=False, value=worst, unit="of a score", bound=tolerance, explanation=text, samples=len(wanted), details=details
        )
    text = f"{len(wanted)} records scored from raw events agree with the training side within {worst:.3g} (allowed {tolerance:g}){remark}"
    return Finding(accepted=True, value=worst, unit="of a score", bound=tolerance, explanation=text, samples=len(wanted), details=details)


def table_of(written: bytes) -> pd.Series:
    """The last column of a CSV by its first: record -> score."""
    table = pd.read_csv(io.BytesIO(written))
    return pd.Series(table.iloc[:, -1].to_numpy(float), index=table.iloc[:, 0].astype(str))


def _training_modules(imported: Sequence[str], training_code: Sequence[str]) -> list[str]:
    return [name for name in training_code if any(one == name or one.startswith(name + ".") for one in imported)]

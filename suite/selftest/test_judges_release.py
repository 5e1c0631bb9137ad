"""The judges of the release room on made-up programs and tables: each accepts what is sound and rejects what is not, for its reason."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fixtures.altered import altered
from fixtures.audit import Program
from fixtures.criterion import Inconclusive
from fixtures.faults import Fault
from fixtures.trace import trace_from_records
from reports.evidence import Finding, create, lineage_rows, set_meta, write_artifact, write_run
from suite.inputs.replay import replays
from suite.release.going_back import goes_back
from suite.release.guardrails import stays_inside
from suite.release.held_out import mean_by_day
from suite.release.lineage import joins_to_everything
from suite.release.publication import Attempt, Operation, operations_of, partial, publishes_whole
from suite.release.quality import beats_baseline, no_slice_is_worse, protects_the_slice
from suite.release.scores import serves_what_was_trained

PUBLISHED = ("artifact-*", "current.json")
WHOLE = {"artifact-1/model": "m", "artifact-1/manifest": "f", "current.json": "p"}
IMPORTS = "import time:       120 |        300 | torch\nimport time:        20 |         20 | job.features\n"


def program(files: dict[str, bytes | None] | None = None, *, code: int = 0, log: str = "", **more: Any) -> Program:
    return Program(code, log, files or {}, more.pop("report", {}), **more)


def csv(scores: dict[str, float], moment: str = "2013-10-01T00:00:00Z") -> bytes:
    return ("name,decided,score\n" + "".join(f"{name},{moment},{score!r}\n" for name, score in scores.items())).encode()


def served(scores: dict[str, float], log: str = IMPORTS) -> Finding:
    return serves_what_was_trained(
        program({"s": csv(scores)}, log=log), csv({"a": 0.25, "b": 0.5}), scores="s", tolerance=1e-6, training_code=("job.train",)
    )


def test_equal_scores_without_training_code_are_accepted() -> None:
    finding = served({"b": 0.5 + 5e-7, "a": 0.25})

    assert finding.accepted
    assert finding.value == pytest.approx(5e-7)


@pytest.mark.parametrize(
    ("scores", "log", "words"),
    [
        ({"a": 0.25, "b": 0.5001}, IMPORTS, "differ from the training side's by up to 0.0001 (b)"),
        ({"a": 0.25, "b": float("nan")}, IMPORTS, "differ"),
        ({"a": 0.25}, IMPORTS, "1 records of the reference were not served"),
        ({"a": 0.25, "b": 0.5, "c": 1.0}, IMPORTS, "1 others were, the first c"),
        ({"a": 0.25, "b": 0.5}, IMPORTS + "import time: 1 | 1 |   job.train.loop\n", "imported training code: job.train"),
    ],
)
def test_other_scores_or_training_code_are_rejected(scores: dict[str, float], log: str, words: str) -> None:
    finding = served(scores, log)

    assert finding.accepted is False
    assert words in finding.explanation


def test_unseen_imports_decide_nothing() -> None:
    assert served({"a": 0.25, "b": 0.5}, "no import times\n").accepted is None


def test_a_batch_is_compared_up_to_its_moment_only() -> None:
    early, late = "2013-09-01T00:00:00Z", "2013-11-01T00:00:00Z"
    reference = csv({"a": 0.25}, early) + csv({"b": 0.5}, late).split(b"\n", 1)[1]
    for scores, verdict in (({"a": 0.25}, True), ({"a": 0.3}, False)):
        batch = program(
            {"s": csv(scores, early) + csv({"b": 0.9}, late).split(b"\n", 1)[1]}, report={"cutoff": "2013-10-01 00:00:00+00:00"}
        )

        assert replays(batch, reference, scores="s", tolerance=1e-6).accepted is verdict


# ---- publish


def publish(left: dict[str, str], *, killed: bool = False, operations: int = 0) -> Program:
    records: list[dict[str, Any]] = [
        {"kind": "file", "rank": 0, "n": n + 1, "op": "write", "path": f"/r/{n}", "step": 0, "t_ns": n} for n in range(operations)
    ]
    records += [{"kind": "fault", "rank": 0, "fault": {"kind": "kill"}, "step": 1, "t_ns": 9}] if killed else []
    return program(code=-9 if killed else 0, left=left, trace=trace_from_records(records))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({}, ""),
        (WHOLE, ""),
        ({".unfinished-artifact-1/model": "m"}, ""),
        ({name: WHOLE[name] for name in ("artifact-1/model", "artifact-1/manifest")}, ""),
        ({"artifact-1/model": "m"}, "artifact-1 is advertised with 1 of 2 files"),
        (WHOLE | {"artifact-1/model": "torn"}, "artifact-1 is advertised with 2 of 2 files"),
        ({"current.json": "p"}, "current.json is advertised before artifact-*"),
    ],
)
def test_what_readers_see_is_whole_or_absent(left: dict[str, str], words: str) -> None:
    said = partial(left, WHOLE, PUBLISHED)

    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_every_operation_killed_and_retried_is_accepted_and_a_part_or_a_failed_retry_rejected() -> None:
    control, sound = publish(WHOLE, operations=2), publish(WHOLE)
    attempts = [Attempt(one, publish({}, killed=True), sound) for one in operations_of(control)]
    torn = Attempt(attempts[0].operation, publish({"artifact-1/model": "m"}, killed=True), sound)
    stuck = Attempt(attempts[0].operation, publish({}, killed=True), program(code=2, log="it is in the way", left={}))

    assert publishes_whole(control, sound, attempts, published=PUBLISHED).accepted
    assert publishes_whole(control, sound, attempts[:1], published=PUBLISHED).accepted is None
    assert publishes_whole(control, publish({**WHOLE, "artifact-2/model": "m"}), attempts, published=PUBLISHED).accepted is False
    assert "1 of 2 files" in publishes_whole(control, sound, [torn, attempts[1]], published=PUBLISHED).explanation
    assert "it is in the way" in publishes_whole(control, sound, [stuck, attempts[1]], published=PUBLISHED).explanation


def test_a_kill_that_never_happened_decides_nothing() -> None:
    control = publish(WHOLE, operations=1)
    attempt = Attempt(Operation(1, "write", "model"), publish(WHOLE), publish(WHOLE))

    assert publishes_whole(control, publish(WHOLE), [attempt], published=PUBLISHED).accepted is None


# ---- quality


def held_out(gain: float, bad: str = "", days: int = 40) -> pd.DataFrame:
    """20 rows a day; the model's probability is nearer to the label than the baseline's by `gain`, further away where origin is `bad`."""
    rng = np.random.default_rng(7)
    day = np.repeat(np.arange(days), 20)
    label = (rng.random(len(day)) < 0.3).astype(float)
    origin = np.array(["EWR", "JFK"])[np.arange(len(day)) % 2]
    baseline = np.full(len(day), 0.3)
    sign = np.where(origin == bad, -1.0, 1.0)
    return pd.DataFrame(
        {
            "label": label, "baseline": baseline, "probability": baseline + sign * gain * (label - baseline), "day": day, "origin": origin,
            "evening": origin == "JFK",
        }
    )  # fmt: skip


def evaluation(table: pd.DataFrame, said: float | None = None) -> Program:
    buffer = io.BytesIO()
    table.to_parquet(buffer)
    ours, theirs = (-np.log(np.where(table.label == 1, table[name], 1 - table[name])) for name in ("probability", "baseline"))
    mean = float((ours - theirs).mean()) if said is None else said
    return program({"table": buffer.getvalue(), "report": json.dumps({"difference": {"mean": mean}}).encode()})


def test_a_model_better_with_certainty_beats_the_baseline() -> None:
    assert beats_baseline(evaluation(held_out(0.3)), held_out="table", report="report").accepted


@pytest.mark.parametrize(
    ("table", "said", "words"),
    [
        (held_out(-0.2), None, "not better"),
        (held_out(0.0), None, "not better"),
        (held_out(0.3, days=4), None, "not better"),
        (held_out(0.3), -0.9, "the evaluation report says -0.9"),
    ],
)
def test_a_model_not_better_or_misreported_is_rejected(table: pd.DataFrame, said: float | None, words: str) -> None:
    finding = beats_baseline(evaluation(table, said), held_out="table", report="report")

    assert finding.accepted is False
    assert words in finding.explanation


def test_a_slice_that_is_worse_is_named_although_the_whole_is_better() -> None:
    mixed = pd.concat([held_out(0.5), held_out(0.2, bad="JFK")], ignore_index=True)
    sound = no_slice_is_worse(evaluation(held_out(0.3)), held_out="table", slices=("origin",), allowed=0.02)
    hidden = no_slice_is_worse(evaluation(held_out(0.3, bad="JFK")), held_out="table", slices=("origin",), allowed=0.02)

    assert beats_baseline(evaluation(mixed), held_out="table", report="report").accepted
    assert sound.accepted
    assert hidden.accepted is False
    assert "origin JFK" in hidden.explanation


def test_rows_outside_every_slice_and_unknown_columns_are_noticed() -> None:
    table = held_out(0.3)
    table.loc[3, "origin"] = None

    assert no_slice_is_worse(evaluation(table), held_out="table", slices=("origin",), allowed=0.02).accepted is False
    assert no_slice_is_worse(evaluation(table), held_out="table", slices=("month",), allowed=0.02).accepted is None


def test_harm_in_the_slice_to_protect_must_be_ruled_out() -> None:
    judged = [
        protects_the_slice(evaluation(table), held_out="table", high_risk="evening", allowed=0.02).accepted
        for table in (held_out(0.3), held_out(0.3, bad="JFK"), held_out(0.3, days=4))
    ]

    assert judged == [True, False, None]


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    """400 tables of 30 days with a common shift per day: the 95 % interval holds 0 in 92 to 98 % of them."""
    rng = np.random.default_rng(3)
    day = np.repeat(np.arange(30), 10)
    found = [mean_by_day(rng.normal(size=30)[day] + rng.normal(size=300), day) for _ in range(400)]
    share = np.mean([one.low <= 0 <= one.high for one in found])

    assert 0.92 <= share <= 0.98, f"expected about 0.95, saw {share}"


# ---- guardrails, rollback, lineage

BOUNDS = {"serving_latency_ms": 50.0, "serving_cost": 1.0, "serving_capacity": 100.0, "model_age_days": 31.0, "subgroup_regression": 0.02}
SERVED = {
    "flights": 1000, "latencies_ms": [2.0] * 50, "newest_decision": "2013-10-05T00:00:00Z", "identity": {"trained_until": "2013-10-01T00:00:00Z"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "wall_s", "subgroup", "broken"),
    [
        ({}, 2.0, 0.0, ""),
        ({"latencies_ms": [2.0] * 40 + [80.0] * 10}, 2.0, 0.0, "serving_latency_ms"),
        ({}, 20.0, 0.0, "serving_capacity"),
        ({"flights": 1}, 100.0, 0.0, "serving_cost"),
        ({"newest_decision": "2013-12-05T00:00:00Z"}, 2.0, 0.0, "model_age_days"),
        ({}, 2.0, 0.05, "subgroup_regression"),
    ],
)
def test_each_guardrail_rejects_by_itself(told: dict[str, Any], wall_s: float, subgroup: float, broken: str) -> None:
    service = program({"served": json.dumps(SERVED | told).encode()}, wall_s=wall_s)
    finding = stays_inside(service, Finding(None, value=subgroup, explanation="slices"), served="served", bounds=BOUNDS)

    assert finding.accepted is (not broken)
    assert broken in finding.explanation


def pointing(name: str, **more: Any) -> Program:
    return program({"current": json.dumps({"artifact": name}).encode()}, **more)


@pytest.mark.parametrize(
    ("healthy", "incident", "rolled", "verdict", "words"),
    [
        ("good", "bad", pointing("good", wall_s=1.0), True, "good was back in service"),
        ("good", "bad", pointing("good", wall_s=99.0), False, "too slow"),
        ("good", "bad", pointing("bad", code=2, log="model is lost"), False, "it did not go back: bad is in service"),
        ("other", "bad", pointing("good"), False, "replaced a sound artifact"),
        ("good", "good", pointing("good"), None, "no incident"),
    ],
)
def test_going_back_is_seen_in_the_registry(healthy: str, incident: str, rolled: Program, verdict: bool | None, words: str) -> None:
    finding = goes_back(pointing("good"), pointing(healthy), pointing(incident), rolled, pointer="current", within_s=60)

    assert finding.accepted is verdict
    assert words in finding.explanation


def test_the_lineage_query_joins_everything_and_finds_every_gap(tmp_path: Path) -> None:
    create(tmp_path)
    set_meta(tmp_path, "identity", {"code_commit": "c0ffee", "config_hash": "cf"})
    set_meta(tmp_path, "environment", {"torch": "2.13.0"})
    set_meta(tmp_path, "decision", {"verdict": "hold"})
    write_run(tmp_path, run_id="build", spec={}, ended={}, sha256={})
    whole = {"code": "c", "data": "d", "features": "f", "configuration": "{}", "environment": "torch 2.13.0"}
    write_artifact(tmp_path, name="one", run_id="build", sha256="s", bytes=1, data=whole)

    assert joins_to_everything(lineage_rows(tmp_path)[0]).accepted
    orphaned, gone = lineage_rows(tmp_path, without_runs=True)
    assert gone
    assert "one joins to no run" in joins_to_everything(orphaned).explanation
    assert joins_to_everything(lineage_rows(tmp_path)[0]).accepted, "the evidence itself was changed"
    for lost in whole:
        write_artifact(
            tmp_path, name="one", run_id="build", sha256="s", bytes=1, data={key: value for key, value in whole.items() if key != lost}
        )
        assert f"joins to no {lost}" in joins_to_everything(lineage_rows(tmp_path)[0]).explanation
    write_artifact(tmp_path, name="one", run_id="build", sha256="s", bytes=1, data=whole | {"environment": "torch 1.0"})
    assert "2.13.0 was audited" in joins_to_everything(lineage_rows(tmp_path)[0]).explanation


def test_no_artifact_decides_nothing() -> None:
    assert joins_to_everything([]).accepted is None


# ---- the faults


def test_scores_of_other_rows_leave_every_score_in_place_and_touch_only_the_chosen_rows(tmp_path: Path) -> None:
    before = held_out(0.3)
    before.to_parquet(tmp_path / "t.parquet")
    fault = Fault("artifact_scores_of_other_rows", path="t.parquet", column="probability", where="origin=JFK")

    report = altered(tmp_path, [fault], None)
    after = pd.read_parquet(tmp_path / "t.parquet")
    chosen = before.origin == "JFK"

    assert report is not None
    assert report["planted"]
    assert sorted(after.probability) == pytest.approx(sorted(before.probability))
    assert (after.probability[~chosen] == before.probability[~chosen]).all()
    assert (after.probability[chosen] != before.probability[chosen]).any()


def test_a_fault_with_nothing_to_damage_is_inconclusive(tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match="nothing below"):
        altered(tmp_path, [Fault("artifact_lost", path="*.pt2")], None)
    with pytest.raises(Inconclusive, match="unknown fault"):
        altered(tmp_path, [Fault("artifact_eaten", path="*")], None)


def test_a_program_names_what_it_imported_and_said_last() -> None:
    done = program(log=IMPORTS + "12 flights\nimport time: 1 | 1 | late\n")

    assert done.imported() == ("torch", "job.features", "late")
    assert done.said() == "12 flights"
    assert dataclasses.replace(done, log="").said() == "nothing"

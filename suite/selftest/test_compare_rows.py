"""Every pair of verdicts has its change, every change its exit code; what may not differ is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reports.compare import compare
from reports.compare_benchmarks import Benchmarks
from reports.compare_context import FIELDS
from reports.compare_find import Side
from reports.compare_model import Comparison, Row
from reports.compare_policy import CompareBounds, bounds_of
from reports.compare_ratio import Measured
from reports.decide import PolicyError, load_policy
from reports.evidence import Evidence, Finding
from reports.policy import DEFAULT_POLICY
from reports.verdicts import Waiver
from suite.selftest.compared import EXACT, GRADIENT, SCALING, audited, entry, side

POLICY = load_policy()
BOUNDS = CompareBounds()
GOOD, BAD, OPEN = (
    Finding(True, explanation="It holds."),
    Finding(False, explanation="It does not hold."),
    Finding(None, explanation="Unknown."),
)
FINDINGS = {"passed": GOOD, "failed": BAD, "inconclusive": OPEN, "not_run": GOOD, "not_applicable": GOOD}
ID = "recovery.restore"

EXPECTED = {
    ("passed", "passed"): ("unchanged", 0), ("passed", "failed"): ("regressed", 1), ("passed", "inconclusive"): ("unstable", 4),
    ("passed", "not_run"): ("missing", 1), ("passed", "not_applicable"): ("missing", 1),
    ("failed", "passed"): ("improved", 0), ("failed", "failed"): ("unchanged", 0), ("failed", "inconclusive"): ("unstable", 4),
    ("failed", "not_run"): ("missing", 1), ("failed", "not_applicable"): ("missing", 1),
    ("inconclusive", "passed"): ("improved", 0), ("inconclusive", "failed"): ("regressed", 1), ("inconclusive", "inconclusive"): ("unchanged", 0),
    ("inconclusive", "not_run"): ("missing", 1), ("inconclusive", "not_applicable"): ("missing", 1),
    ("not_run", "passed"): ("improved", 0), ("not_run", "failed"): ("regressed", 1), ("not_run", "inconclusive"): ("unstable", 4),
    ("not_run", "not_run"): ("unchanged", 0), ("not_run", "not_applicable"): ("unchanged", 0),
    ("not_applicable", "passed"): ("improved", 0), ("not_applicable", "failed"): ("regressed", 1), ("not_applicable", "inconclusive"): ("unstable", 4),
    ("not_applicable", "not_run"): ("missing", 1), ("not_applicable", "not_applicable"): ("unchanged", 0),
}  # fmt: skip


def _with(verdict: str) -> Side:
    """A side on which one criterion has this verdict, beside another one that passed."""
    made = side({"equivalence.ranks_agree": GOOD, ID: FINDINGS[verdict]})
    if verdict == "not_run":
        kept = {key: record for key, record in made.evidence.records.items() if key[0] != ID}
        return replace(made, evidence=replace(made.evidence, records=kept))
    if verdict == "not_applicable":
        job = {**made.evidence.meta["job"], "capabilities": {ID: "the job cannot"}}
        return replace(made, evidence=replace(made.evidence, meta={**made.evidence.meta, "job": job}))
    return made


def _compared(base: Side, head: Side, **more: Any) -> Comparison:
    return compare(base, head, POLICY, BOUNDS, **more)


def _row(found: Comparison, id: str) -> Row:
    return next(row for row in found.rows if row.id == id)


@pytest.mark.parametrize(("before", "after"), list(EXPECTED))
def test_every_pair_of_verdicts_has_the_tabled_change_and_exit_code(before: str, after: str) -> None:
    found = _compared(_with(before), _with(after), allow_mismatch=("job",))
    row = _row(found, ID)

    assert (row.before, row.after) == (before, after)
    assert (row.change, found.exit_code) == EXPECTED[before, after]
    assert row.words


def test_the_table_of_verdicts_is_complete() -> None:
    assert set(EXPECTED) == {(one, other) for one in FINDINGS for other in FINDINGS}


def test_verdict_changes_come_before_numbers_and_critical_ones_first() -> None:
    rng = np.random.default_rng(0)
    base, head = audited(rng, repeats=15), audited(rng, repeats=15, slower=1.3)
    head = {**head, "inputs.late": BAD, EXACT: BAD}
    found = _compared(side({**base, "inputs.late": GOOD}), side(head))

    assert [row.id for row in found.rows][:3] == [EXACT, "inputs.late", SCALING]
    assert [row.change for row in found.rows][:3] == ["regressed"] * 3


def test_speed_never_makes_up_for_correctness() -> None:
    rng = np.random.default_rng(0)
    found = _compared(side(audited(rng, repeats=15)), side({**audited(rng, repeats=15, slower=0.5), EXACT: BAD}))

    assert {number.outcome for number in _row(found, SCALING).numbers if number.unit == "ms"} == {"improved"}
    assert found.exit_code == 1


def test_a_removed_criterion_fails_unless_it_may_be_missing() -> None:
    base, head = side({ID: GOOD, GRADIENT: GOOD}), side({GRADIENT: GOOD})

    assert (_row(_compared(base, head), ID).change, _compared(base, head).exit_code) == ("missing", 1)
    assert _compared(base, head, allow_missing=("recovery.*",)).exit_code == 0
    assert _compared(base, head, allow_missing=(GRADIENT,)).exit_code == 1


def test_a_new_criterion_is_accepted_where_it_passed_and_fails_where_it_failed() -> None:
    base = side({GRADIENT: GOOD})

    assert _compared(base, side({GRADIENT: GOOD, ID: GOOD})).exit_code == 0
    assert _compared(base, side({GRADIENT: GOOD, ID: GOOD}), fail_on=("new",)).exit_code == 1
    assert _compared(base, side({GRADIENT: GOOD, ID: BAD})).exit_code == 1


def test_what_fails_on_both_sides_is_no_regression_but_can_be_made_to_fail() -> None:
    both = side({GRADIENT: GOOD, ID: BAD})

    assert _compared(both, both).exit_code == 0
    assert _compared(both, both, fail_on=("failed",)).exit_code == 1


def test_undecided_and_unstable_can_be_made_to_fail() -> None:
    base, head = side({ID: GOOD}), side({ID: OPEN})

    assert _compared(base, head).exit_code == 4
    assert _compared(base, head, fail_on=("unstable",)).exit_code == 1


def test_a_waived_failure_of_the_head_does_not_block() -> None:
    policy = replace(POLICY, waivers=(Waiver(ID, "A part is on order.", "an owner", "2999-12-31"),))
    found = compare(side({ID: GOOD}), side({ID: BAD}), policy, BOUNDS)

    assert found.exit_code == 0
    assert "Waived by an owner until 2999-12-31" in found.rows[0].words


def test_a_timed_failure_that_the_numbers_do_not_confirm_is_unstable_and_one_that_they_do_is_a_regression() -> None:
    def measured(accepted: bool, value: float) -> Finding:
        return Finding(accepted, value, "speed-up per rank", 0.7, "at_least", "Measured.", interval=(value - 0.02, value + 0.02), samples=9)

    base = side({SCALING: measured(True, 0.71)})

    assert _row(_compared(base, side({SCALING: measured(False, 0.69)})), SCALING).change == "unstable"
    assert _row(_compared(base, side({SCALING: measured(False, 0.40)})), SCALING).change == "regressed"


def test_a_verdict_that_became_better_does_not_hide_a_time_that_became_worse() -> None:
    rng = np.random.default_rng(0)
    base, head = (audited(rng, repeats=15, slower=slower, bound=bound)[SCALING] for slower, bound in ((1.0, 0.99), (1.2, 0.5)))
    row = _row(_compared(side({SCALING: base}), side({SCALING: head})), SCALING)

    assert (row.before, row.after, row.change) == ("failed", "passed", "regressed")
    assert "yet step at" in row.words


@pytest.mark.parametrize(
    ("field", "changed"),
    [("cpu", {"environment": {"cpu": "EPYC"}}), ("cores", {"environment": {"cores": 64}}), ("gpus", {"environment": {"gpu_names": ["H200"]}}),
     ("world_sizes", {"world": {"world_sizes": [1, 2, 4]}}), ("world_sizes", {"world": {"hosts": 2}}), ("backend", {"world": {"backends": ["nccl"]}}),
     ("launcher", {"world": {"launcher": "torchrun"}}), ("numerics", {"environment": {"dtype": "bfloat16"}}),
     ("job", {"job": {"global_batch": 512}}), ("job", {"job": {"declared": {"checkpoint": {"every": 3}}}})],
)  # fmt: skip
def test_what_may_not_differ_is_refused_by_name_and_can_be_allowed(field: str, changed: dict[str, Any]) -> None:
    base, head = side({GRADIENT: GOOD}), side({GRADIENT: GOOD}, **changed)
    others = [name for name in FIELDS if name != field]

    refused = _compared(base, head, allow_mismatch=others)
    allowed = _compared(base, head, allow_mismatch=(field,))

    assert (refused.exit_code, [item.field for item in refused.refused], refused.rows) == (3, [field], ())
    assert allowed.exit_code == 0
    assert [item.field for item in allowed.mismatches if item.allowed] == [field]


def test_other_numerics_of_the_runs_are_refused() -> None:
    base, head = side({GRADIENT: GOOD}), side({GRADIENT: GOOD})
    runs = {name: replace(run, spec={**run.spec, "numerics": "exact"}) for name, run in head.evidence.runs.items()}

    found = _compared(base, replace(head, evidence=replace(head.evidence, runs=runs)))

    assert (found.exit_code, found.refused[0].field) == (3, "numerics")


def test_another_version_of_a_criterion_is_refused_and_if_allowed_its_numbers_are_not_compared() -> None:
    finding = audited(np.random.default_rng(0))[SCALING]
    base, head = side({SCALING: finding}), side({SCALING: finding}, versions={SCALING: 2})

    assert (_compared(base, head).exit_code, _compared(base, head).refused[0].words) == (
        3, "criteria (efficiency.scaling [gloo]): version 1 in the base, version 2 in the head",
    )  # fmt: skip
    row = _compared(base, head, allow_mismatch=("criteria",)).rows[0]
    assert (row.change, row.numbers) == ("incomparable", ())


def test_code_paths_versions_and_host_names_may_differ_but_are_told() -> None:
    head = side(
        {GRADIENT: GOOD},
        identity={"code_commit": "ab" * 20, "job_hash": "other", "dirty": True},
        environment={"torch": "2.14.0"},
        job={"declared": {"folder": "/elsewhere", "path": "/elsewhere/job.toml", "code": []}},
    )
    found = _compared(side({GRADIENT: GOOD}, job={"declared": {"folder": "/here"}}), head)

    assert found.exit_code == 0
    assert any("uncommitted changes" in note for note in found.notes)
    assert "torch differs: 2.13.0 in the base, 2.14.0 in the head." in found.notes


@pytest.mark.parametrize("empty", ["base", "head"])
def test_a_side_without_any_record_measured_nothing(empty: str) -> None:
    whole = side({GRADIENT: GOOD})
    bare = replace(whole, evidence=Evidence(whole.evidence.meta, (entry(GRADIENT),), {}, {}))
    found = _compared(bare, whole) if empty == "base" else _compared(whole, bare)

    assert found.exit_code == 5
    assert f"in the {empty}" in found.empty


def _benchmarks(**times: tuple[float, ...]) -> Benchmarks:
    return Benchmarks({name: Measured(float(np.median(data)), samples=len(data), repeats=data) for name, data in times.items()})


def test_benchmarks_are_joined_by_name_so_that_a_renamed_one_fails() -> None:
    times = tuple(np.random.default_rng(0).normal(1.0, 0.01, 30))
    base = side({GRADIENT: GOOD}, benchmarks=_benchmarks(save=times))

    assert _compared(base, side({GRADIENT: GOOD}, benchmarks=_benchmarks(save=times))).exit_code == 0
    renamed = _compared(base, side({GRADIENT: GOOD}, benchmarks=_benchmarks(store=times)))
    assert (renamed.exit_code, {row.id: row.change for row in renamed.rows if row.backend == "benchmark"}) == (
        1,
        {"save": "missing", "store": "new"},
    )
    assert _compared(base, side({GRADIENT: GOOD})).exit_code == 1


def test_a_benchmark_that_takes_20_percent_longer_fails_though_every_verdict_is_the_same() -> None:
    times = np.random.default_rng(0).normal(1.0, 0.02, 30)
    base, head = (side({GRADIENT: GOOD}, benchmarks=_benchmarks(save=tuple(times * slower))) for slower in (1.0, 1.2))

    assert _compared(base, head).exit_code == 1
    assert _compared(head, base).exit_code == 0


def test_a_benchmark_of_thousands_of_rounds_is_judged_quickly_and_the_same() -> None:
    times = np.random.default_rng(0).normal(1.0, 0.02, 20_000)
    base, head = (side({GRADIENT: GOOD}, benchmarks=_benchmarks(save=tuple(times * slower))) for slower in (1.0, 1.2))

    assert _compared(base, head).exit_code == 1


@pytest.mark.parametrize(
    ("table", "error"),
    [({"max_slowdown": -1}, "compare.max_slowdown is -1; give a number from 0"), ({"level": 1}, "compare.level is 1.0; give a number from 0.5"),
     ({"max_slow": 1}, "unknown key compare.max_slow; known are between_audits"), ({"max_worsening": {"a.*": "x"}}, "compare.max_worsening.a.\\* is 'x'"),
     ({"max_worsening": 3}, "write it as"), ([], "must be written as \\[compare\\]")],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_is_refused_with_key_value_and_fix(table: Any, error: str) -> None:
    with pytest.raises(PolicyError, match=error):
        bounds_of(DEFAULT_POLICY, table)

"""The judge of crash states, on made-up outcomes: right ones pass, each wrong one is rejected in its own words, missing ones decide nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.crash.operations import Log, Operation
from fixtures.crash.progress import Progress, cuts, progress, requirements
from fixtures.crash.python_level import HOW
from fixtures.crash.states import Kind, State, States
from fixtures.crash.tree import first_tree
from suite.recovery.alignment import states_of
from suite.recovery.crash_states import Explored, Tried, outcome_of, survives_every_crash_state
from suite.recovery.crash_window import AGAIN, REMOVING, Window, waits_unseen
from suite.recovery.returns import Outcome, Return
from suite.selftest.synthetic import ended_well, make_trace
from suite.selftest.test_judges_recovery import control_run, resumed_run

SAVE = Operation(0, 0, 1, 0, "rename", "latest.tmp", "latest.pt")


def window(step: int = 6, oldest: int = 4, *, whole: bool = False) -> Window:
    part = Progress(((SAVE,),), {0: {}}, (0,), (1,))
    return Window(step, oldest, f"save of step {step}", Log((SAVE,), (), {}, "made up", True), part, (SAVE,), whole)


def state(key: str, kind: Kind = "process death") -> State:
    return State(key, kind, SAVE, f"killed after {SAVE.words} on rank 0", first_tree({}), {})


def explored(*outcomes: Outcome, stopped: str = "", kind: Kind = "process death") -> Explored:
    states = tuple(state(str(index), kind) for index in range(len(outcomes)))
    tried = tuple(
        Tried(one, Return(outcome, 4, f"in words: {outcome}"), index > 0)
        for index, (one, outcome) in enumerate(zip(states, outcomes, strict=True))
    )
    existing = {"process death": 7 * (kind == "process death"), "power loss": 7 * (kind == "power loss")}
    return Explored(2, window(), States(states, existing, ()), tried, 2.0, stopped)


CONTROL = control_run()


def test_right_outcomes_pass_and_the_numbers_are_told() -> None:
    finding = survives_every_crash_state(CONTROL, [explored("resumed_newest", "resumed_previous", "resumed_previous")])

    assert finding.accepted is True
    assert "7 ways to crash, 3 different folders, 3 judged by 1 resumes" in finding.explanation
    assert "1 came back from the newest checkpoint, 2 from the one before" in finding.explanation
    assert finding.details["states_per_s"] == 1.5
    assert finding.details["crash_map"][0]["outcome"] == "resumed_previous"


@pytest.mark.parametrize(
    "outcome",
    ["silent_divergence", "torn", "wrong_checkpoint", "fresh_start", "exit_0_without_resuming", "hang", "loud_failure"],
)
def test_each_wrong_outcome_is_rejected_with_the_operation_to_blame(outcome: Outcome) -> None:
    finding = survives_every_crash_state(CONTROL, [explored("resumed_newest", outcome)])

    assert finding.accepted is False
    assert finding.value == 1
    assert "killed after rename latest.tmp -> latest.pt on rank 0: in words: " + outcome in finding.explanation
    assert finding.details["bad"][0]["operation"] == "rename latest.tmp -> latest.pt"
    assert finding.details["crash_map"][0]["outcome"] == outcome


def test_process_death_is_named_before_power_loss() -> None:
    power = explored("torn", kind="power loss")
    finding = survives_every_crash_state(CONTROL, [power, explored("loud_failure")])

    assert "in words: loud_failure" in finding.explanation
    assert "1 loud failure by process death, 1 torn by power loss" in finding.explanation


def test_what_was_not_seen_or_not_tried_decides_nothing() -> None:
    unseen = survives_every_crash_state(CONTROL, [explored("resumed_newest", "not_seen")])
    hanging = survives_every_crash_state(CONTROL, [explored("resumed_newest", stopped="stopped after 2 hangs")])
    nothing = survives_every_crash_state(CONTROL, [explored()])
    refused = survives_every_crash_state(CONTROL, [], trouble="ptrace is refused")
    crashed = survives_every_crash_state(make_trace(ended=ended_well(1, rank0=1)), [explored("resumed_newest")])

    assert [one.accepted for one in (unseen, hanging, nothing, refused, crashed)] == [None] * 5
    assert refused.explanation == "ptrace is refused"


def test_what_the_probe_alone_recorded_can_fail_but_never_pass() -> None:
    def at_python_level(one: Explored) -> Explored:
        return replace(one, window=replace(one.window, log=replace(one.window.log, how=HOW)))

    right = survives_every_crash_state(CONTROL, [at_python_level(explored("resumed_newest", "resumed_previous"))])
    wrong = survives_every_crash_state(CONTROL, [at_python_level(explored("torn"))])

    assert (right.accepted, wrong.accepted) == (None, False)
    for one in (right, wrong):
        assert "writers in C++, child processes and mmap are not seen; power loss is not judged" in one.explanation
    assert "allow ptrace" in right.explanation


def test_each_hard_case_is_counted_or_said_to_be_missing() -> None:
    saved, restarted = explored("resumed_newest"), explored("resumed_previous", "torn")
    saved = replace(saved, window=replace(saved.window, phases={0: REMOVING}))
    restarted = replace(restarted, window=replace(restarted.window, phases={0: AGAIN}, restart="died of a name"))

    both, alone = (survives_every_crash_state(CONTROL, worlds).details for worlds in ([saved, restarted], [saved]))

    assert both["exercised"] == {
        "rotation racing a crash": "1 operations, 1 folders",
        "crash during recovery": "no file is changed there, and the restart died of a name",
        "second crash": "1 operations, 2 folders",
        "same step saved twice": "1 operations, 2 folders",
    }
    assert alone["exercised"]["second crash"] == "no restart was cut"
    assert {row["what"] for row in both["crash_map"]} == {
        "save of step 6: moving or removing older checkpoints",
        "save of step 6: the same step saved again",
    }


def test_a_bound_shows_in_the_verdict() -> None:
    finding = survives_every_crash_state(CONTROL, [explored("resumed_newest", stopped="bound: 1 of them drawn by seed 0")])

    assert finding.accepted is True
    assert "bound: 1 of them drawn by seed 0" in finding.explanation


def test_an_older_checkpoint_is_the_wrong_one_and_a_fresh_start_is_right_only_before_the_first() -> None:
    wanted, older, fresh = states_of(CONTROL), resumed_run(2), resumed_run(0)

    assert outcome_of(CONTROL, older, window(), wanted, advertised=True).outcome == "wrong_checkpoint"
    assert outcome_of(CONTROL, older, window(oldest=2), wanted, advertised=True).outcome == "resumed_previous"
    assert outcome_of(CONTROL, fresh, window(), wanted, advertised=False).outcome == "fresh_start"
    assert outcome_of(CONTROL, fresh, window(whole=True), wanted, advertised=False).outcome == "resumed_previous"
    assert outcome_of(CONTROL, fresh, window(whole=True), wanted, advertised=True).outcome == "fresh_start"


def test_parameters_of_one_step_with_the_optimizer_of_another_are_torn() -> None:
    mixed = resumed_run(6, change=lambda record: {**record, "optimizer_digest": f"{4 + 500:016x}"} if record["kind"] == "start" else record)
    back = outcome_of(CONTROL, mixed, window(), states_of(CONTROL), advertised=True)

    assert back.outcome == "torn"
    assert back.words == "torn: rank 0 came back with the parameters of step 6 and the optimizer state of step 4"


def test_under_nccl_only_the_recorded_order_is_believed() -> None:
    def over(device: str, backend: str) -> bool:
        told = {"device": device, "backend": backend}
        return waits_unseen(make_trace(ranks=2, change=lambda record: {**record, **told} if record["kind"] == "backend" else record))

    assert [over("cpu", "gloo"), over("cuda", "nccl"), over("cuda", "gloo"), over("cpu", "cpu:gloo,cuda:nccl")] == [
        False,
        True,
        False,
        False,
    ]


def test_without_messages_the_recorded_order_is_the_only_one() -> None:
    ones = [Operation(n, n % 2, n // 2 + 1, n % 2, "mkdir", f"d{n}", order=n + 1) for n in range(4)]
    seen, unseen = (Log(tuple(ones), (), {}, "made up", causal) for causal in (True, False))

    assert len(cuts(progress(seen, requirements(seen, {}), 0, 4), 100)[0]) == 9
    assert len(cuts(progress(unseen, requirements(unseen, {}), 0, 4), 100)[0]) == 5


def test_a_resume_that_was_stopped_on_purpose_has_not_ended_early() -> None:
    short = resumed_run(6, steps=8)
    stopped = replace(short, spec={**short.spec, "stop_after": 2})

    assert outcome_of(CONTROL, short, window(), states_of(CONTROL), advertised=True).outcome == "silent_divergence"
    assert outcome_of(CONTROL, stopped, window(), states_of(CONTROL), advertised=True).outcome == "resumed_newest"

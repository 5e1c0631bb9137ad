"""`python -m reports compare`: each exit code from the command line, and files that say the same as the exit code."""

from __future__ import annotations

import json
import shutil
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from reports.__main__ import main
from reports.compare_files import as_markdown
from reports.compare_model import Comparison, Row
from reports.evidence import Finding, create, set_meta, write_record
from suite.selftest.compared import TITLE, audited, benchmark_file
from suite.selftest.fabricated import CRITERIA, HOSTILE, LATE, STARTED, fabricate

COMMIT = "5f3c0e9a1b7d4c2288e1a6f09d3b5c7e11aa42de"
BENCHMARK = "suite/bench/test_save.py::test_save"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricate(tmp_path_factory.mktemp("sound") / "base", sound=True)


def _copy(sound: Path, folder: Path) -> Path:
    shutil.copytree(sound, folder)
    return folder


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    try:
        code = main(["compare", *map(str, arguments)])
    except SystemExit as ended:
        code = int(ended.code or 0)
    told = capsys.readouterr()
    return code, told.out, told.err


def _measure(folder: Path, rng: np.random.Generator, **options: float) -> Path:
    """Replace what the folder's criteria found by freshly measured numbers."""
    for id, finding in audited(rng, **options).items():  # type: ignore[arg-type]
        if id in {row[0] for row in CRITERIA}:
            write_record(
                folder, id=id, backend="gloo", part="as_is", finding=finding, fired=None, runs=[], started_utc=STARTED, duration_s=1.0
            )
    return folder


def _execute(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "evidence.sqlite")) as connection:
        connection.execute(statement)
        connection.commit()


def test_an_audit_compared_with_itself_is_accepted_or_undecided(sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told, _ = _run(capsys, sound, sound)

    assert code in (0, 4)
    assert told.endswith(f"compare: {'accept' if code == 0 else 'undecided'} (exit {code})\n")


def test_a_slowdown_of_20_percent_is_a_regression_from_the_command_line(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    base = _measure(_copy(sound, tmp_path / "base"), rng, repeats=15)
    head = _measure(_copy(sound, tmp_path / "head"), rng, repeats=15, slower=1.2)

    code, told, _ = _run(capsys, base, head)

    assert code == 1
    assert " x regressed  efficiency.scaling [gloo]" in told


def test_a_slowdown_with_too_few_repeats_is_undecided_from_the_command_line(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    base = _measure(_copy(sound, tmp_path / "base"), rng, repeats=3)
    head = _measure(_copy(sound, tmp_path / "head"), rng, repeats=3, slower=1.2)

    code, told, _ = _run(capsys, base, head)

    assert code == 4
    assert "needs about 2 more runs on each side" in " ".join(told.split())


def test_a_removed_criterion_fails(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = _copy(sound, tmp_path / "head")
    _execute(head, "DELETE FROM catalogue WHERE id = 'inputs.late'")

    assert _run(capsys, sound, head)[0] == 1


def test_another_world_size_is_refused_and_can_be_allowed(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = _copy(sound, tmp_path / "head")
    set_meta(head, "world", {"world_size": 4, "world_sizes": [1, 2, 4], "hosts": 1, "launcher": "warm", "backends": ["gloo"]})

    code, told, _ = _run(capsys, sound, head)
    assert code == 3
    assert "mismatch: world_sizes: [1, 2] in the base, [1, 2, 4] in the head" in told
    assert "--allow-mismatch world_sizes" in told
    code, told, _ = _run(capsys, sound, head, "--allow-mismatch", "world_sizes")
    assert code in (0, 4)
    assert "allowed mismatch: world_sizes" in told


def test_nothing_measured_is_told_apart_from_a_path_that_is_no_audit(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("no audit")
    created = create(tmp_path / "created").parent

    assert _run(capsys, sound, bare)[0] == 5
    assert _run(capsys, created, sound)[0] == 5
    for wrong, words in ((other, "holds neither"), (tmp_path / "absent", "is no directory, no audit"), (other / "notes.txt", "is a file")):
        code, _, error = _run(capsys, sound, wrong)
        assert (code, error.count("\n")) == (2, 1)
        assert words in error


@pytest.mark.parametrize("arguments", [[], ["--allow-mismatch", "weather"], ["--fail-on", "luck"]])
def test_wrong_options_are_wrong_use(arguments: list[str], sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, *([sound, sound, *arguments] if arguments else [sound]))[0] == 2


def test_a_commit_and_a_saved_name_find_their_audit(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audits = tmp_path / "audits"
    _copy(sound, audits / "nightly")

    code, told, _ = _run(capsys, COMMIT[:10], "nightly", "--audits", audits)

    assert code in (0, 4)
    assert told.count((audits / "nightly").as_posix()) == 2
    code, _, error = _run(capsys, "0000000", "nightly", "--audits", audits)
    assert (code, "is of commit 0000000; run pytest there first" in error) == (2, True)


def test_a_commit_with_several_audits_gives_the_newest_and_with_several_jobs_asks(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audits = tmp_path / "audits"
    for name, day in (("one", "20"), ("two", "23")):
        session = {"started_utc": f"2026-08-{day}T09:00:00+00:00", "finished_utc": f"2026-08-{day}T09:05:00+00:00", "complete": True}
        set_meta(_copy(sound, audits / name), "session", session)
    set_meta(_copy(sound, audits / "three"), "job", {"name": "gpt"})

    code, _, error = _run(capsys, COMMIT, sound, "--audits", audits)
    assert (code, "several jobs (flights, gpt); choose one with --job" in error) == (2, True)
    code, told, _ = _run(capsys, COMMIT, sound, "--audits", audits, "--job", "flights")
    assert code in (0, 4)
    assert f"{audits / 'two'} was taken" in told


def _written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, base: Path, head: Path, *more: str
) -> tuple[int, dict[str, object], str, ElementTree.Element]:
    files = {name: tmp_path / f"compared.{name}" for name in ("json", "markdown", "junit")}
    code, _, _ = _run(capsys, base, head, *more, *(part for name, file in files.items() for part in (f"--{name}", file)))
    tree = ElementTree.fromstring(files["junit"].read_text())
    return code, json.loads(files["json"].read_text()), files["markdown"].read_text(), tree


def test_the_files_agree_with_the_exit_code_in_every_case(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed, other, bare = _copy(sound, tmp_path / "failed"), _copy(sound, tmp_path / "other"), tmp_path / "bare"
    write_record(
        failed, id="inputs.late", backend="gloo", part="as_is", finding=LATE, fired=None, runs=[], started_utc=STARTED, duration_s=1.0
    )
    set_meta(other, "world", {"world_sizes": [1, 2, 4]})
    bare.mkdir()
    seen = set()
    for head in (sound, failed, other, bare):
        code, stored, text, tree = _written(capsys, tmp_path, sound, head)
        failures, errors = (int(tree.get(name, "-1")) for name in ("failures", "errors"))
        assert (len(tree.findall(".//failure")), len(tree.findall(".//error"))) == (failures, errors)
        assert stored["exit_code"] == code
        assert text.startswith(f"## Compare: {stored['verdict']}\n")
        assert (failures > 0) == (code == 1)
        assert (failures + errors > 0) == (code != 0)
        seen.add(code)

    assert seen >= {1, 3, 5}


def test_what_a_job_said_becomes_neither_markup_nor_a_mention(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = _copy(sound, tmp_path / "failed")
    write_record(
        failed, id="inputs.late", backend="gloo", part="as_is", finding=LATE, fired=None, runs=[], started_utc=STARTED, duration_s=1.0
    )

    _, stored, text, tree = _written(capsys, tmp_path, sound, failed)

    assert HOSTILE in json.dumps(stored, ensure_ascii=False).replace('\\"', '"')
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<script>" in "".join(tree.itertext())


def test_what_a_job_said_does_not_reach_the_terminal_as_an_escape_sequence(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = _copy(sound, tmp_path / "failed")
    finding = Finding(False, explanation="rank 1 said \x1b[32maccepted\x1b[0m and ended")
    write_record(
        failed, id="inputs.late", backend="gloo", part="as_is", finding=finding, fired=None, runs=[], started_utc=STARTED, duration_s=1.0
    )

    code, told, _ = _run(capsys, sound, failed)

    assert (code, "\x1b" in told, "accepted" in told) == (1, False, True)


def test_a_benchmark_regression_is_in_junit_and_a_renamed_one_fails(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = np.random.default_rng(0).normal(0.01, 0.0002, 30)
    base, slow, renamed = (_copy(sound, tmp_path / name) for name in ("base", "slow", "renamed"))
    for folder, name, factor, keep in (
        (base, BENCHMARK, 1.0, True),
        (slow, BENCHMARK, 1.2, False),
        (renamed, f"{BENCHMARK}_all", 1.0, True),
    ):
        benchmark_file(folder, {name: list(times * factor)}, keep=keep)

    code, _, _, tree = _written(capsys, tmp_path, base, slow)
    case = next(case for case in tree.iter("testcase") if case.get("name") == BENCHMARK)
    assert (code, case.find("failure") is not None) == (1, True)
    assert _run(capsys, base, renamed)[0] == 1
    assert _run(capsys, base, renamed, "--allow-missing", BENCHMARK)[0] in (0, 4)


def test_benchmarks_alone_can_be_compared_and_broken_ones_are_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = list(np.random.default_rng(0).normal(0.01, 0.0001, 30))
    base = benchmark_file(tmp_path / "base", {BENCHMARK: times}).parent
    broken = benchmark_file(tmp_path / "broken", {BENCHMARK: times}).parent
    (broken / "benchmarks.json").write_text('{"benchmarks": [{"fullname": "x"}]}')

    assert _run(capsys, base, base)[0] == 0
    code, _, error = _run(capsys, base, broken)
    assert (code, "cannot be read as the JSON of pytest-benchmark" in error) == (2, True)


def test_an_output_file_that_cannot_be_written_is_wrong_use(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = _run(capsys, sound, sound, "--json", tmp_path / "absent" / "x.json")

    assert (code, "cannot be written" in error) == (2, True)


def test_markdown_is_capped_and_keeps_the_blocking_list_first() -> None:
    rows = tuple(
        Row(f"recovery.case_{number}", "gloo", True, "improved", "failed", "passed", "It holds now. " * 20) for number in range(400)
    )
    bad = Row("equivalence.gradient", "gloo", True, "regressed", "passed", "failed", "The gradients differ.")
    text = as_markdown(Comparison(TITLE, TITLE, (), (), (*rows, bad)), cap=8_000)

    assert len(text) <= 8_000
    assert text.index("### Blocking") < text.index("| regressed | equivalence.gradient") < text.index("### Other changes")
    shown = sum(line.startswith("| improved") for line in text.splitlines())
    assert f"… and {400 - shown} more" in text

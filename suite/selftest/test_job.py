"""A job.toml is either understood or refused in one sentence that names key, value, line and fix."""

import json
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from fixtures.audit import world_sizes
from fixtures.job import JobError, Records, accumulating, command_line, environment_of, job_hash, limit_s, load_job, program_line, varying
from fixtures.job_checks import known_targets
from fixtures.plugin import ROOT
from fixtures.session import job_facts, stored_job

GOOD = """\
[job]
name = "tiny"
command = "train.py --batch {per_rank_batch} --steps {steps} --seed {seed} --rows {rows} --out {out}"
global_batch = 32
steps = 20
[checkpoint]
every = 5
resume = "--resume latest"
directory = "{out}/checkpoints"
[inputs]
rows = "{out}/rows.parquet"
[records.rows]
entity = "id"
event_time = "at"
availability_time = "known"
payload = ["a", "b"]
[hand_calculated]
command = "infer.py --out {out}/hand.json"
expected = "hand.json"
produces = "{out}/hand.json"
tolerance = 1e-6
[capabilities]
elastic = true
padding = "pads the last batch"
[targets]
scaling_efficiency = 0.7
"""


def write(folder: Path, text: str = GOOD) -> Path:
    for name in ("train.py", "infer.py", "hand.json"):
        (folder / name).write_text("{}")
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_a_complete_job_is_read(tmp_path: Path) -> None:
    job = load_job(write(tmp_path))
    assert (job.name, job.global_batch, job.steps, job.seed, job.time_limit_s) == ("tiny", 32, 20, 0, 120.0)
    assert job.folder == tmp_path
    assert job.checkpoint is not None
    assert (job.checkpoint.every, job.checkpoint.resume) == (5, "--resume latest")
    assert job.records == {"rows": Records("id", "at", "known", None, None, ("a", "b"))}
    assert job.hand_calculated is not None
    assert job.hand_calculated.expected == tmp_path / "hand.json"
    assert job.capabilities == {"elastic": True, "padding": "pads the last batch"}
    assert job.targets == {"scaling_efficiency": 0.7}
    with pytest.raises(FrozenInstanceError):
        job.steps = 3  # type: ignore[misc]


def test_four_lines_are_a_job(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, '[job]\nname = "n"\ncommand = "train.py"\nglobal_batch = 8\nsteps = 2\n'))
    assert (job.checkpoint, job.hand_calculated, job.inputs, job.environment, job.prepare) == (None, None, {}, {}, None)


def test_the_command_line_is_filled_word_by_word(tmp_path: Path) -> None:
    job = load_job(write(tmp_path))
    words = command_line(job, world_size=4, out="/o u t", steps=7, seed=3, resume=True)
    assert words == (
        *("train.py", "--batch", "8", "--steps", "7", "--seed", "3", "--rows", "/o u t/rows.parquet", "--out", "/o u t"),
        *("--resume", "latest"),
    )
    assert command_line(job, world_size=1, out="o", inputs={"rows": "/damaged"})[8] == "/damaged"
    assert program_line(job, "infer.py {rows} {world_size}", out="o") == ("infer.py", "o/rows.parquet", "1")


def test_another_world_size_may_have_another_command(tmp_path: Path) -> None:
    """The difference is declared: further arguments, variables and time at 4 ranks, another command at 2."""
    more = """
[worlds.4]
arguments = "--tensor-parallel 2"
environment = { PORT = "{seed}{world_size}" }
time_limit_s = 300
[worlds.2]
command = "infer.py --steps {steps} --seed {seed}"
"""
    job = load_job(write(tmp_path, GOOD.replace("steps = 20", 'steps = 20\nworld_sizes = [3]\nenvironment = { RUN = "{out}" }') + more))
    assert command_line(job, world_size=4, out="o")[-2:] == ("--tensor-parallel", "2")
    assert command_line(job, world_size=2, out="o", steps=7) == ("infer.py", "--steps", "7", "--seed", "0")
    assert environment_of(job, world_size=4, out="o", seed=3) == {"RUN": "o", "PORT": "34"}
    assert environment_of(job, world_size=1, out="o") == {"RUN": "o"}
    assert (limit_s(job, 4), limit_s(job, 2)) == (300, 120)
    assert varying(job) == ("PORT", "RUN")
    assert world_sizes(4, job.world_sizes) == [1, 2, 3, 4]
    assert world_sizes(2, job.world_sizes) == [1, 2]


def test_a_job_is_started_again_by_a_flag_a_variable_or_nothing(tmp_path: Path) -> None:
    silent = load_job(write(tmp_path, GOOD.replace('resume = "--resume latest"', 'resume = ""')))
    assert command_line(silent, world_size=1, out="o", resume=True) == command_line(silent, world_size=1, out="o")
    by_variable = load_job(write(tmp_path, GOOD.replace('resume = "--resume latest"', 'resume_environment = { RESUME = "{out}" }')))
    assert command_line(by_variable, world_size=1, out="o", resume=True) == command_line(by_variable, world_size=1, out="o")
    assert environment_of(by_variable, world_size=1, out="o", resume=True) == {"RESUME": "o"}
    assert environment_of(by_variable, world_size=1, out="o") == {}


def test_commands_run_in_the_folder_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "audits").mkdir()
    write(tmp_path)
    path = tmp_path / "audits" / "job.toml"
    path.write_text(GOOD.replace("steps = 20", 'steps = 20\nfolder = ".."'))
    job = load_job(path)
    assert job.folder == tmp_path.resolve()
    assert job.hand_calculated is not None
    assert job.hand_calculated.expected == tmp_path.resolve() / "hand.json"


def test_a_stored_job_is_the_job(tmp_path: Path) -> None:
    """What an audit keeps of a job.toml gives the same job back."""
    job = load_job(write(tmp_path, GOOD.replace("steps = 20", "steps = 20\nworld_sizes = [3]") + '[worlds.4]\narguments = "-x"\n'))
    facts = json.loads(json.dumps(job_facts(job, tmp_path)))
    stored = stored_job(facts, tmp_path)
    assert stored == replace(job, hand_calculated=stored.hand_calculated)


def test_every_target_that_a_criterion_looks_at_may_be_set() -> None:
    sources = "".join(
        path.read_text() for room in ("suite", "reports") for path in (ROOT / room).rglob("*.py") if "selftest" not in path.parts
    )
    asked = set(re.findall(r"targets(?:\.get)?\(\"(\w+)\"", sources))
    assert "scaling_efficiency" in asked
    assert asked <= set(known_targets())


def test_braces_that_are_no_placeholder_stay(tmp_path: Path) -> None:
    text = GOOD.replace('--out {out}"', '--out {out} --json \'{\\"a\\": 1}\'"', 1)
    assert command_line(load_job(write(tmp_path, text)), world_size=1, out="o")[-1] == '{"a": 1}'


MISTAKES = [
    # what is replaced, by what, line, words that the sentence must have
    ("", "[job", 29, ["not TOML"]),
    ("global_batch = 32", "global_batch = thirty", 4, ["not TOML"]),
    ("global_batch = 32", "global_batch = 32\nglobal_batch = 64", 5, ["not TOML"]),
    ("[job]", "[jobs]", 1, ['"jobs" is no known table', 'did you mean "job"', "checkpoint"]),
    ("[checkpoint]", "[checkpoints]", 6, ['did you mean "checkpoint"']),
    ("steps = 20", "step = 20", 5, ["[job] step = 20 is no known key", 'did you mean "steps"', "global_batch", "time_limit_s"]),
    ("steps = 20\n", "", 1, ['[job] has no "steps"', "add steps = 24"]),
    ("global_batch = 32", 'global_batch = "32"', 4, ['global_batch = "32"', "must be a whole number", "global_batch = 256"]),
    ("global_batch = 32", "global_batch = 32.5", 4, ["global_batch = 32.5", "a whole number"]),
    ("global_batch = 32", "global_batch = true", 4, ["global_batch = true", "a whole number"]),
    ("global_batch = 32", "global_batch = 0", 4, ["global_batch = 0", "above 0"]),
    ("steps = 20", "steps = -1", 5, ["steps = -1", "above 0"]),
    ("steps = 20", "steps = 20\ntime_limit_s = inf", 6, ["time_limit_s = inf", "finite"]),
    ("steps = 20", "steps = 20\ntime_limit_s = nan", 6, ["time_limit_s = nan", "finite"]),
    ("steps = 20", "steps = 20\nseed = -1", 6, ["seed = -1", "negative"]),
    ("steps = 20", 'steps = 20\ntime_limit_s = "2m"', 6, ['time_limit_s = "2m"', "a number"]),
    ("steps = 20", "steps = 20\nenvironment = { A = 1 }", 6, ["environment", "a table of strings", '{ NAME = "value" }']),
    ('name = "tiny"', 'name = ""', 2, ['name = ""', "a string"]),
    ("{steps}", "{stepz}", 3, ["unknown placeholder {stepz}", "{global_batch}", "{rows}"]),
    ("{out}/checkpoints", "{output}/checkpoints", 9, ["unknown placeholder {output}"]),
    ("{out}/rows.parquet", "{rows}/rows.parquet", 11, ["unknown placeholder {rows}", "use one of {out}"]),
    ('"train.py', '"trian.py', 3, ["trian.py", 'did you mean "train.py"', "infer.py"]),
    ('"train.py', '"python train.py', 3, ["starts with python", "start with the script"]),
    ('"train.py', '"torchrun train.py', 3, ["starts with torchrun"]),
    (
        '"train.py --batch {per_rank_batch} --steps {steps} --seed {seed} --rows {rows} --out {out}"',
        '"-m"',
        3,
        ["no module after -m", "-m package.train"],
    ),
    ("--out {out}", "--out '{out}", 3, ["cannot be split into words", "quotation"]),
    (
        'resume = "--resume latest"\n',
        "",
        6,
        ['[checkpoint] has no "resume"', 'add resume = "--resume"', 'resume = ""', "resume_environment"],
    ),
    ('"--resume latest"', '"--resume \'latest"', 8, ["cannot be split into words", "quotation"]),
    ('"--resume latest"', '"--resume {latest}"', 8, ["unknown placeholder {latest}"]),
    ("[targets]", "[targets]\nscaling_eficiency = 0.7", 26, ["scaling_eficiency", 'did you mean "scaling_efficiency"', "data_wait_share"]),
    ("steps = 20", 'steps = 20\nenvironment = { OMP_NUM_THREAD = "1" }', 6, ["OMP_NUM_THREAD", "did you mean OMP_NUM_THREADS"]),
    ("steps = 20", 'steps = 20\nenvironment = { omp_num_threads = "1" }', 6, ["did you mean OMP_NUM_THREADS"]),
    ("steps = 20", 'steps = 20\n[job.environment]\nNCCL_DEUBG = "INFO"', 7, ["NCCL_DEUBG", "did you mean NCCL_DEBUG"]),
    ("steps = 20", 'steps = 20\nenvironment = { "A B" = "1" }', 6, ['"A B" = "1" is no name of a variable']),
    ("steps = 20", 'steps = 20\nenvironment = { RANK = "1" }', 6, ["RANK", "is set by the suite"]),
    ("steps = 20", 'steps = 20\nenvironment = { RUN = "{outt}" }', 6, ["RUN", "unknown placeholder {outt}"]),
    ("steps = 20", 'steps = 20\nfolder = "nowhere"', 6, ["folder leads to", "which is no folder"]),
    ("steps = 20", "steps = 20\nworld_sizes = [3, 0]", 6, ["world_sizes has 0", "[3, 6]"]),
    ("steps = 20", 'steps = 20\nworld_sizes = "3"', 6, ['world_sizes = "3"', "a list of whole numbers"]),
    ("steps = 20", 'steps = 20\naccumulate = "--rows {micro_batch}"', 6, ["accumulate", "must have {micro_batches}", "but {micro_batch}"]),
    ("steps = 20", 'steps = 20\naccumulate = "--split {micro_batches} {steps}"', 6, ["accumulate", "no placeholder but {micro_batch}"]),
    ("steps = 20", "steps = 20\nstall_s = 0", 6, ["stall_s = 0", "above 0"]),
    ("[targets]", "[worlds.four]\n[targets]", 25, ["[worlds.four] names no number of ranks", "[worlds.4]"]),
    ("[targets]", "[worlds.4]\nargument = '-x'\n[targets]", 26, ["[worlds.4] argument", 'did you mean "arguments"']),
    ("[targets]", '[worlds.4]\narguments = "-x \'y"\n[targets]', 26, ["[worlds.4] arguments", "quotation"]),
    ("[targets]", "[worlds.4]\ncommand = 'trian.py'\n[targets]", 26, ["[worlds.4] command", 'did you mean "train.py"']),
    ("[targets]", "[worlds.4]\ntime_limit_s = -1\n[targets]", 26, ["[worlds.4] time_limit_s = -1", "above 0"]),
    ("[capabilities]", "[environment]\n[capabilities]", 22, ['"environment" is no known table', "it is a key of [job]"]),
    ("steps = 20", "steps = 20\nseed = 0x" + "f" * 60, 6, ["seed = a number of 240 bits", "a whole number"]),
    ('name = "tiny"', 'name = "ti\\u0000ny"', 2, ["the control character \\u0000", "take it out"]),
    ("every = 5", "every = 20", 7, ["every = 20", "between 1 and 19", "every = 5"]),
    ("every = 5", "every = 0", 7, ["every = 0"]),
    ("[records.rows]", "[records.row]", 12, ["describes no input", 'did you mean "rows"']),
    ('event_time = "at"', 'event_tim = "at"', 14, ["event_tim", 'did you mean "event_time"']),
    ("rows = ", "out = ", 11, ['"out" is taken']),
    ('expected = "hand.json"', 'expected = "paper.json"', 19, ['expected = "paper.json"', "not a file"]),
    ("tolerance = 1e-6", "tolerance = -1", 21, ["tolerance = -1", "negative"]),
    ("elastic = true", "elastic = false", 23, ["elastic = false", "true or a string", "the reason"]),
    ("scaling_efficiency = 0.7", 'scaling_efficiency = "70 %"', 26, ["a number", "scaling_efficiency = 0.8"]),
    ("steps = 20", 'steps = 20\ncode = ["../absent.py"]', 6, ["../absent.py", "not a file"]),
    ("steps = 20", 'steps = 20\nprepare = "absent.py"', 6, ["[job] prepare", "absent.py"]),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), MISTAKES, ids=[f"{index}-{one[1][:20]}" for index, one in enumerate(MISTAKES)])
def test_a_mistake_is_one_sentence(tmp_path: Path, old: str, new: str, line: int, words: list[str]) -> None:
    text = GOOD.replace(old, new, 1) if old else GOOD + "\n" * 2 + new
    path = write(tmp_path, text)
    with pytest.raises(JobError) as caught:
        load_job(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:{line}: "), said
    for word in words:
        assert word in said, f"{word!r} is missing in: {said}"
    assert "\n" not in said


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: folder / "absent.toml", ["absent.toml cannot be read", "No such file", "job.toml"]),
        (lambda folder: folder, ["is a folder", "job.toml"]),
        (lambda folder: folder / "nowhere" / "job.toml", ["cannot be read"]),
    ],
)
def test_a_wrong_path_is_named(tmp_path: Path, prepare: object, words: list[str]) -> None:
    write(tmp_path)
    with pytest.raises(JobError) as caught:
        load_job(prepare(tmp_path))  # type: ignore[operator]
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b'[job]\nname = "caf\xe9"\n')
    with pytest.raises(JobError, match=r"job.toml:2: byte 0xe9 is not UTF-8"):
        load_job(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"world_size": 3}, ["global_batch = 32 is not divisible by 3", "{per_rank_batch}", "global_batch = 33"]),
        ({"world_size": 0}, ["0 ranks"]),
        ({"world_size": 1, "inputs": {"row": "x"}}, ["input row", 'did you mean "rows"']),
    ],
)
def test_what_cannot_be_asked_for_is_refused(tmp_path: Path, asked: dict[str, object], words: list[str]) -> None:
    job = load_job(write(tmp_path))
    with pytest.raises(JobError) as caught:
        command_line(job, out="o", **asked)  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_job_may_be_told_the_samples_of_a_micro_batch(tmp_path: Path) -> None:
    text = GOOD.replace("steps = 20", 'steps = 20\naccumulate = "--batch {micro_batch} --rounds {micro_batches}"')
    job = load_job(write(tmp_path, text))
    assert accumulating(job, 4, world_size=2) == ("--batch", "4", "--rounds", "4")
    with pytest.raises(JobError, match=r"16 samples of a rank cannot be split into 3 equal micro-batches"):
        accumulating(job, 3, world_size=2)


def test_a_job_that_cannot_be_told_steps_or_resumed_says_so(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, '[job]\nname = "n"\ncommand = "train.py"\nglobal_batch = 8\nsteps = 2\n'))
    assert command_line(job, world_size=3, out="o", steps=2) == ("train.py",)
    with pytest.raises(JobError, match=r"a run with steps = 4 .* has no \{steps\}"):
        command_line(job, world_size=1, out="o", steps=4)
    with pytest.raises(JobError, match=r"there is no \[checkpoint\] table"):
        command_line(job, world_size=1, out="o", resume=True)


def test_the_hash_covers_job_code_and_named_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "shared.py").write_text("A = 1")
    path = write(folder, GOOD.replace("steps = 20", 'steps = 20\ncode = ["../shared.py"]'))
    seen = {job_hash(load_job(path))}
    (folder / "notes.txt").write_text("no code")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.py").write_text("stale")
    assert job_hash(load_job(path)) in seen
    for changed in (folder / "train.py", folder / "parts" / "model.py", tmp_path / "shared.py", path):
        changed.write_text((changed.read_text() if changed.exists() else "") + "\n# changed")
        seen.add(job_hash(load_job(path)))
    assert len(seen) == 5
    assert all(len(one) == 64 for one in seen)

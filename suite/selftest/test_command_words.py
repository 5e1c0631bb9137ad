"""What the installed command hands to pytest: a job is a job, however it is written."""

from __future__ import annotations

import pytest

from rankproof.command import pytest_words


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["my/job.toml"], ["-m", "cpu", "--job", "my/job.toml"]),
        (["--job", "my/job.toml"], ["-m", "cpu", "--job", "my/job.toml"]),
        (["--job=my/job.toml", "-m", "gpu"], ["--job", "my/job.toml", "-m", "gpu"]),
        (["one.toml", "--job=two.toml"], ["-m", "cpu", "--job", "one.toml", "--job", "two.toml"]),
        (["--audit-dir", "odd.toml"], ["-m", "cpu", "--audit-dir", "odd.toml"]),
    ],
)
def test_a_job_is_given_as_an_option_whichever_way_it_was_written(words: list[str], given: list[str]) -> None:
    every = pytest_words(words)
    behind = every[every.index("fixtures.benchmarks") + 1 :]
    assert behind[: len(given)] == given
    assert all("/suite/" in one for one in behind[len(given) :])

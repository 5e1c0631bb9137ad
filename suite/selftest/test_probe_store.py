"""The faults of the checkpoint store and of the input path, in real worlds: each does to the job what such a store or demand would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fixtures.faults import Fault
from fixtures.world import open_launcher
from suite.release.restore_load import restart_s
from suite.selftest.probe_runs import ProbeRuns, Ran, copied, exit_codes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeRuns]:
    with open_launcher() as launcher:
        yield ProbeRuns(launcher, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def clean(runs: ProbeRuns) -> Ran:
    return runs.start("ddp", watch=str(runs.folder))


@pytest.mark.parametrize(
    ("kind", "words", "what"),
    [
        ("full_store", "[Errno 28] No space left on device", "torch_save_record"),
        ("missing_store", "[Errno 2] No such file or directory", "open"),
    ],
)
def test_a_store_that_refuses_from_the_second_save_on(runs: ProbeRuns, clean: Ran, kind: str, words: str, what: str) -> None:
    """Rank 0 of the job saves every second step, and does not look at errors."""
    ran = runs.start("ddp", faults=[Fault(kind)], watch=str(runs.folder))
    fired = ran.trace.faults()

    assert [(one["rank"], one["step"], one["detail"].split()[0]) for one in fired] == [(0, 5, what)]
    assert ran.trace.errors() == []
    assert exit_codes(ran)[0] == 1
    assert words in ran.logs[0]
    assert (ran.out / "checkpoints" / "step2.pt").exists(), "the first save was let through"
    assert not (ran.out / "checkpoints" / "step4.pt").exists()


def test_a_slow_store_takes_its_time_for_every_byte_that_is_read(runs: ProbeRuns, clean: Ran) -> None:
    size = (clean.out / "checkpoints" / "step4.pt").stat().st_size
    fault = Fault("slow_store", bytes_per_s=size)  # a second to read it once
    ran = runs.start("ddp", "--resume", "--steps", "6", faults=[fault], out=copied(clean, "slow"), watch=str(runs.folder))
    quick = runs.start("ddp", "--resume", "--steps", "6", out=copied(clean, "quick"), watch=str(runs.folder))
    taken_s, usual_s = restart_s(ran.trace), restart_s(quick.trace)

    assert {one["detail"] for one in ran.trace.faults()} == {"latest", "step4.pt"}
    assert taken_s is not None
    assert taken_s > 1.0, "less than the bytes of the checkpoint take"
    assert usual_s is not None
    assert ran.logs == quick.logs, "what is read is the same"
    assert ran.trace.errors() == []


def test_several_batches_are_taken_for_each_that_is_trained_on(runs: ProbeRuns, clean: Ran) -> None:
    """An epoch holds four batches for each rank: of two each the second is trained on, of eight the fourth; behind the last step the rank ends."""
    trained = {key: list(group["sample"]) for key, group in clean.trace.samples.groupby(["rank", "step"])}
    for times, counted, first in ((1, 1, 1), (2, 2, 2), (8, 4, 4)):
        ran = runs.start("ddp", "--steps", "40", "--dropout", "0", faults=[Fault("draw_batches", times=times, last=3)])

        assert exit_codes(ran) == [0, 0]
        assert ran.trace.errors() == []
        assert int(ran.trace.steps["step"].max()) == 3
        assert {one["detail"] for one in ran.trace.faults()} == {str(counted)}
        for rank in (0, 1):
            seen = ran.trace.samples
            assert list(seen[(seen["rank"] == rank) & (seen["step"] == 1)]["sample"]) == trained[rank, first]

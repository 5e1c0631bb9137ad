"""Sampling of GPUs and cores: what a driver tells is kept and summed up, what none tells is "not measured", and no rank is touched."""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures.cores import Counters, cpu_sample, read_counters, read_frequencies_mhz
from fixtures.devices import FILE, NOT_MEASURED, device_table, load_samples, sampled, summarise
from fixtures.nvml import Gpus, close_gpus, load_nvml, open_gpus, read_gpu, topology

GIB = 2**30


class FakeError(Exception):
    """Stands for pynvml.NVMLError."""


class FakeNvml:
    """A driver with two GPUs on one switch. GPU 1 is at its power cap; `refused` are functions that the card does not support."""

    NVMLError = FakeError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_NVLINK_MAX_LINKS = 1, 2, 0, 4

    def __init__(
        self, *, count: int = 2, refused: tuple[str, ...] = (), driver: bool = True, pids: dict[int, list[int]] | None = None
    ) -> None:
        self.count, self.refused, self.driver, self.pids = count, refused, driver, pids or {}
        self.opened = 0
        self.told = threading.Event()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "refused"):
            return self._refuse
        return object.__getattribute__(self, name)

    def _refuse(self, *_: object) -> Any:
        raise FakeError("Not Supported")

    def nvmlInit(self) -> None:
        if not self.driver:
            raise FakeError("NVML Shared Library Not Found")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}{handle}{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"0000:0{handle}:00.0")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 * GIB, used=(10 + handle) * GIB)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self.told.set()
        return SimpleNamespace(gpu=0 if handle else 97, memory=40)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 690_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1755 if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return 0x4 | 0x40 if handle else 0x1

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(handle, [])]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link > 1:
            raise FakeError("Invalid Argument")
        return 1

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return 10


def run_of(nvml: Any, folder: Path, ranks: int = 2, visible: str | None = None) -> dict[str, Any]:
    """Sample a run that ends once the driver has been asked (or at once, without a driver), and sum it up."""
    with sampled(folder, ranks=ranks, visible=visible, interval_s=0.01, nvml=nvml):
        if visible != "" and nvml.driver and "nvmlDeviceGetUtilizationRates" not in nvml.refused:
            assert nvml.told.wait(30), "the sampler never asked the driver"
    return summarise(folder)


def test_every_gpu_of_the_run_is_summed_up(tmp_path: Path) -> None:
    nvml = FakeNvml()
    summary = run_of(nvml, tmp_path)
    assert nvml.opened == 0, "the driver is let go"
    first, second = summary["gpus"]
    assert (first["rank"], first["name"], first["rank_from"], first["nvlinks"]) == (0, "H200", "local rank", 2)
    assert first["utilisation_percent"] == {"median": 97, "least": 97, "most": 97}
    assert second["utilisation_percent"]["median"] == 0, "an idle GPU was measured, and is at 0"
    assert second["power_w"]["most"] == 690.5
    assert (second["memory_used_bytes"]["most"], second["memory_total_bytes"]) == (11 * GIB, 80 * GIB)
    assert second["throttled"] == {"power cap": 1.0, "hardware thermal slowdown": 1.0}
    assert first["throttled"] == {}, "an idle clock is not held back"
    assert summary["gpu_topology"] == [["same", "PIX"], ["PIX", "same"]]
    assert summary["not_measured"] == ""
    rows = device_table(summary)["rows"]
    assert rows[0] == ["GPU 0", 0, 97, 10.0, 690.5, 1755, "nothing"]
    assert rows[1][-1] == "hardware thermal slowdown 100%, power cap 100%"


def test_without_a_driver_every_gpu_is_not_measured_and_nothing_warns(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = run_of(FakeNvml(driver=False), tmp_path)
    assert summary["gpus"] == []
    assert summary["not_measured"] == "no NVIDIA driver: NVML Shared Library Not Found"
    rows = device_table(summary)["rows"]
    assert [row for row in rows if row[0] == "GPU"] == [["GPU", rank, *[NOT_MEASURED] * 5] for rank in (0, 1)]
    assert summary["cores"], "cores are measured all the same"


def test_what_a_card_does_not_tell_is_none_and_never_zero(tmp_path: Path) -> None:
    refused = (
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetClockInfo", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetTemperature", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMaxClockInfo",
    )  # fmt: skip
    summary = run_of(FakeNvml(refused=refused), tmp_path)
    gpu = summary["gpus"][0]
    assert {name: value for name, value in gpu.items() if value is not None} == {
        "index": 0,
        "rank": 0,
        "rank_from": "local rank",
        "uuid": "GPU-000",
    }
    assert summary["gpu_topology"] == [["same", None], [None, "same"]]
    assert device_table(summary)["rows"][0][2:] == [NOT_MEASURED] * 5


def test_a_rank_is_told_from_its_process_where_the_driver_names_it(tmp_path: Path) -> None:
    for rank, pid in ((0, 4000), (1, 4001)):
        (tmp_path / f"rank{rank}.jsonl").write_text(json.dumps({"kind": "meta", "rank": rank, "pid": pid}) + "\n")
    summary = run_of(FakeNvml(pids={0: [4001, 99], 1: [4000]}), tmp_path)
    assert [(gpu["index"], gpu["rank"], gpu["rank_from"]) for gpu in summary["gpus"]] == [(0, 1, "process"), (1, 0, "process")]


@pytest.mark.parametrize(
    ("visible", "indices", "reason"),
    [
        (None, [0, 1], ""),
        ("1,0", [1, 0], ""),
        ("GPU-111", [1], ""),
        ("0,7,1", [0], ""),
        ("", [], "the run was given no GPU"),
        ("7", [], "no GPU is CUDA_VISIBLE_DEVICES=7"),
    ],
)
def test_ranks_take_the_visible_gpus_in_their_order(visible: str | None, indices: list[int], reason: str) -> None:
    nvml = FakeNvml()
    gpus = open_gpus(nvml, 2, visible)
    assert ([gpu.index for gpu in gpus.gpus], gpus.not_measured) == (indices, reason)
    assert [gpu.rank for gpu in gpus.gpus] == list(range(len(indices)))
    close_gpus(gpus)
    assert nvml.opened == 0


def test_reasons_that_there_is_no_gpu() -> None:
    assert open_gpus(None, 1, None).not_measured == "the module pynvml is not installed: install nvidia-ml-py"
    assert open_gpus(FakeNvml(count=0), 1, None).not_measured == "the driver shows no GPU"
    assert topology(Gpus(None, (), "none")) == []


def test_an_older_module_names_the_reasons_otherwise() -> None:
    nvml = FakeNvml()
    old = SimpleNamespace(**{name: getattr(nvml, name) for name in dir(nvml) if name[:4].lower() == "nvml" and "Event" not in name})
    old.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x8
    assert read_gpu(old, open_gpus(old, 1, None).gpus[0])["throttle_reasons"] == ["hardware slowdown"]


def test_the_installed_module_is_asked_without_a_warning(tmp_path: Path) -> None:
    assert load_nvml() is sys.modules["pynvml"]
    with sampled(tmp_path, ranks=1, interval_s=0.01):
        pass
    machine, samples = load_samples(tmp_path)
    assert machine["not_measured"] != "" or machine["gpus"], "either GPUs or why there is none"
    assert len(samples) >= 1, "a run shorter than the interval has a sample too"


# ---- cores

STAT = "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 {busy} 0 0 {idle} 10 0 0 {steal} 5 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 1\nprocs_running 3\n"


def a_machine(
    root: Path, *, busy: int = 100, idle: int = 100, steal: int = 0, waited_us: int = 0, throttled: str = "", heat: int = 0
) -> Path:
    """A /proc and /sys as a kernel shows them."""
    files = {
        "proc/stat": STAT.format(busy=busy, idle=idle, steal=steal),
        "proc/cpuinfo": "processor\t: 0\ncpu MHz\t\t: 2596.144\n\nprocessor\t: 1\ncpu MHz\t\t: 2000.0\n",
        "proc/pressure/cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/a\n0::/box\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "3100000\n",
        "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": f"{heat}\n",
        **({"sys/fs/cgroup/box/cpu.stat": throttled} if throttled else {}),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(root: Path, seconds: float) -> Counters:
    seen = read_counters([0, 1], root)
    return Counters(int(seconds * 1e9), seen.ticks, seen.run_queue, seen.pressure_us, seen.throttled_ms, seen.thermal_throttles)


def test_a_core_is_busy_for_what_is_neither_idle_nor_stolen(tmp_path: Path) -> None:
    before = read(a_machine(tmp_path, throttled="nr_throttled 1\nthrottled_usec 1000\n"), 0.0)
    changed = a_machine(tmp_path, busy=160, idle=120, steal=20, waited_us=500_000, throttled="throttled_usec 5000\n", heat=2)
    sample = cpu_sample(before, read(changed, 1.0), read_frequencies_mhz([0, 1], tmp_path))
    first, second = sample["cores"]
    assert first == {"core": 0, "busy_share": 0.6, "steal_share": 0.2, "frequency_mhz": 2596.144, "thermal_throttles": 2}
    assert second == {"core": 1, "busy_share": None, "steal_share": None, "frequency_mhz": 3100.0, "thermal_throttles": None}
    assert (sample["run_queue"], sample["pressure_share"], sample["throttled_ms"]) == (3, 0.5, 4.0)


def test_the_older_kind_of_cgroup_counts_nanoseconds(tmp_path: Path) -> None:
    account = a_machine(tmp_path) / "sys/fs/cgroup/cpu/docker/a/cpu.stat"
    account.parent.mkdir(parents=True)
    account.write_text("nr_periods 3\nthrottled_time 7000000\n")
    assert read_counters([0], tmp_path).throttled_ms == 7.0


def test_what_the_kernel_does_not_show_is_none(tmp_path: Path) -> None:
    nothing = read_counters([0], tmp_path)
    sample = cpu_sample(nothing, nothing, read_frequencies_mhz([0], tmp_path))
    assert (sample["run_queue"], sample["pressure_share"], sample["throttled_ms"], sample["cores"]) == (None, None, None, [])
    with sampled(tmp_path, ranks=1, visible="", interval_s=0.01, root=tmp_path):
        pass
    summary = summarise(tmp_path)
    assert {row["busy_share"] for row in summary["cores"]} == {None}
    assert device_table(summary)["rows"][1][2] == NOT_MEASURED


def test_the_sampler_sees_this_machine_at_work(tmp_path: Path) -> None:
    """This process spins on its core until enough of the kernel's ticks have passed, so that core cannot have been idle throughout."""
    with sampled(tmp_path, ranks=1, visible="", interval_s=0.01):
        spent = os.times().user + os.times().system
        while os.times().user + os.times().system < spent + 0.2:
            pass
    summary = summarise(tmp_path)
    assert summary["run_queue"]["most"] >= 1
    assert max(row["busy_share"] for row in summary["cores"]) > 0
    assert summary["seconds"] > 0  # CPU time ticks in hundredths of a second, so 0.2 s of it may be less on the clock


# ---- the file


def test_a_torn_last_line_is_left_out_and_a_run_without_samples_says_so(tmp_path: Path) -> None:
    assert summarise(tmp_path)["not_measured"] == f"no {FILE} was written"
    run_of(FakeNvml(), tmp_path)
    whole = load_samples(tmp_path)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"kind": "sample", "t_n')
    assert load_samples(tmp_path) == whole
    assert json.loads(json.dumps(summarise(tmp_path))) == summarise(tmp_path)


def test_an_error_of_the_run_is_not_hidden_and_ends_the_sampler(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(KeyError, match="the run"), sampled(tmp_path, ranks=1, visible=""):
        raise KeyError("the run")
    assert threading.active_count() == before


def test_a_sampler_that_cannot_write_says_so(tmp_path: Path) -> None:
    full = tmp_path / FILE
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"), sampled(tmp_path, ranks=1, visible="", interval_s=0.01):
        pass

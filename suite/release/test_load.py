"""Load the paths that a restart and a training depend on until they give: the checkpoint store, cold, slow, full and gone, and the input path."""

from __future__ import annotations

from functools import partial

from fixtures.audit import Audit
from fixtures.criterion import Twin, criterion
from fixtures.faults import Fault
from fixtures.trace import Trace
from suite.efficiency.scaling import Room
from suite.recovery.cases import unproven_kill
from suite.recovery.kills import cadence, control_run, without_store
from suite.recovery.lost_rank import killed_between_checkpoints
from suite.recovery.store_failure import tells_missing_store
from suite.release.input_load import Rates, carries_enough, saturated, unseen
from suite.release.outages import Outage, survives
from suite.release.paths import LoadedPath, all_hold
from suite.release.restore_load import not_cold, restores_in_time

REPEATS = 4  # their range holds the median in seven cases of eight; what is judged has a wide margin or none
FEW_REPEATS = 2
READ_S = 0.25  # what reading one checkpoint once takes from the slow store: enough to stand out, little enough to wait for
RATES = (1, 8, 64, 512)
LAST_STEP = 5  # a quarter is left out as warm-up, four are needed
DELAY_MS = 120.0
STALL_S = 10.0
JUST_BEGIN = Fault("draw_batches", times=1, last=1)  # a restore is over with the first step; a job without a DataLoader goes on to its end


@criterion(
    "release.load",
    claim="Under load the job stays bounded: restores by all ranks from a cold or slow store, a store that is full or gone, and input at rising rates.",
    twins=(
        Twin(Fault("sleep", ms=DELAY_MS, where="data"), r"the input path: .*less than the training takes", "slow_input"),
        Twin(
            Fault("forget", part="weights"),
            r"restore from a cold cache: it came back in a state that the uninterrupted run never had",
            "weights",
        ),
        Twin(Fault("rotate_first"), r"a full store: .*(came back with step 0|did not come back)", "rotation"),
    ),
    threshold="the bound restore_s outside the range of repeats; no outage passed over in silence, no more than one interval between saves lost; "
    "the input path reaches the bound data_wait_share no sooner than at the training's own rate",
    needs=("checkpoint",),
    timed=True,
    assumptions=(
        "a full store refuses data (ENOSPC), a store that went away refuses names (ENOENT); both on every rank",
        "batches that are taken and not trained on cost the input path what the others cost",
    ),
    limitations=(
        "cold: the checkpoint's files were synced and dropped from the page cache; names, inodes and caches below the kernel (disk, hypervisor, network store) may be warm",
        "an outage and a slow store act on the file operations that Python and torch show, in the ranks themselves",
        "a slow store is one whose bytes take their time on each rank for itself; ranks do not compete for one link",
    ),
    overturned_by="a restore on the real store that takes longer, an outage of it that loses more, or an input store that gives less under the load of other jobs",
)
def test_load(audit: Audit) -> None:
    """What every restart and every step lean on has room left, and where it gives way the job says so."""
    room = Room(
        int(audit.environment.get("gpus" if audit.backend == "nccl" else "cores", 0)), "GPUs" if audit.backend == "nccl" else "cores"
    )
    if reason := room.oversubscribed(audit.world_size):
        audit.inconclusive(reason)
    paths = [*restores(audit), *outages(audit), carries_enough(rates(audit), audit.targets("data_wait_share"))]
    audit.judge(all_hold, paths)


def restores(audit: Audit) -> list[LoadedPath]:
    """All ranks at once, from files that are on the disk only, and from a store that takes its time for every byte."""
    control, killed = killed_between_checkpoints(audit)
    resume = partial(audit.run, world_size=audit.world_size, steps=control.spec["steps"], resume_from=killed, faults=(JUST_BEGIN,))
    done = int(killed.steps["step"].max()) if len(killed.steps) else 0
    least = done - done % cadence(audit) - cadence(audit)
    judged = partial(restores_in_time, control, least_step=max(1, least), bound_s=audit.targets("restore_s"))
    forgets = _planted(audit, "forget")
    cold = [resume(cold=True, repeat=repeat, planted=forgets) for repeat in range(1 if forgets else REPEATS)]
    first = judged(cold, name="restore from a cold cache", note=_read(cold[0]))
    if first.holds and (reason := not_cold(cold)):
        first = LoadedPath(first.name, None, reason)
    size = _bytes_of_a_save(control)
    if not size:
        return [
            first,
            LoadedPath("restore from a slow store", None, "no byte of a save was seen, so the store cannot be slowed down in proportion"),
        ]
    slow = Fault("slow_store", bytes_per_s=round(size / READ_S))
    throttled = [resume(faults=(slow, JUST_BEGIN), repeat=repeat, planted=False) for repeat in range(FEW_REPEATS)]
    second = judged(throttled, name="restore from a slow store", note=f" at {size / READ_S / 1e6:.3g} MB/s a rank")
    if not all(run.fired("slow_store") for run in throttled):
        second = LoadedPath(
            second.name, None, "no read was seen that could be slowed down (mmap, C++ or child processes), so this was not tried"
        )
    return [first, second]


def _read(run: Trace) -> str:
    return f" ({run.spec['dropped']['bytes'] / 1e6:.3g} MB of checkpoints on the disk)" if run.spec.get("dropped") else ""


def _bytes_of_a_save(control: Trace) -> int:
    sizes = control.files.groupby("step")["bytes"].sum()
    return int(sizes.max()) if len(sizes) else 0


def outages(audit: Audit) -> list[LoadedPath]:
    """The store fills up, or goes away, at the second save; or it is not there when the job is started again, as recovery.store_missing judges it.

    This full store takes no byte any more, so a writer in place meets it, too; recovery.disk_full's leaves room that such a writer frees by itself.
    """
    every = cadence(audit)
    run = partial(audit.run, world_size=audit.world_size, steps=2 * every + 2, level="full")
    control, found = run(planted=False), []
    for kind in ("full_store", "missing_store"):
        refused = run(faults=(Fault(kind),), planted=kind == "full_store" and _planted(audit, "rotate_first"))
        found.append(survives(control, Outage(kind, refused, run(resume_from=refused, planted=False, faults=(JUST_BEGIN,))), every=every))
    killed, without = without_store(audit, planted=False)
    gone = tells_missing_store(control_run(audit), without, unproven=unproven_kill(killed))
    return [*found, LoadedPath("no store at the restart", gone.accepted, gone.explanation)]


def _planted(audit: Audit, kind: str) -> bool:
    """Whether this part's planted fault is of that kind: each twin breaks one path, and the runs of the others are shared with the job as it is."""
    return audit.twin is not None and audit.twin.kind == kind


def rates(audit: Audit) -> Rates:
    """Rising rates until the input path is saturated."""
    found: dict[int, list[Trace]] = {}
    planted = _planted(audit, "sleep")
    for times in RATES:
        run = partial(
            audit.run, world_size=audit.world_size, level="timing", steps=LAST_STEP * times, timed=True, planted=planted, stall_s=STALL_S
        )
        draw, found[times] = Fault("draw_batches", times=times, last=LAST_STEP), []
        for repeat in range(FEW_REPEATS if planted else REPEATS):
            found[times].append(run(faults=(draw,), repeat=repeat))
            if unseen(found[times]):  # such as a job that counts its batches and never gets on: once is enough
                break
        if saturated(found[times]):
            break
    return found

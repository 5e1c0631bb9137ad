"""What a training run costs: work, memory, checkpoint cadence, expected completion, deadline risk.

Pure functions of plain numbers. Each returns a `Figure` that carries its value, unit, provenance, the formula in words, its source
and the figures it was calculated from, so that a reader sees which inputs were measured and which were assumed.
A number given bare counts as assumed; pass `measured(...)` for one that was measured.

Sources
  Kaplan 2020     Scaling Laws for Neural Language Models, arXiv:2001.08361 (training work 6ND)
  Chowdhery 2022  PaLM, arXiv:2204.02311, appendix B (model FLOPs utilisation, attention term 12LHQT)
  Rajbhandari 2020 ZeRO, arXiv:1910.02054, section 3 and figure 1 (bytes per parameter of each stage)
  Korthikanti 2022 Reducing Activation Recomputation, arXiv:2205.05198, section 4 (activation bytes of a layer)
  Young 1974      A first order approximation to the optimum checkpoint interval, CACM 17(9)
  Daly 2006       A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3)
  Kokolis 2024    Revisiting Reliability in Large-Scale ML Research Clusters, arXiv:2410.21680 (effective training time ratio)
  Wilson 1927     Probable inference, JASA 22 (interval of a proportion)
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Provenance: TypeAlias = Literal["measured", "calculated", "assumed"]
Strategy: TypeAlias = Literal["ddp", "zero1", "zero2", "zero3", "fsdp"]


class EconomicsError(ValueError):
    """An input that no formula here accepts: names the field, its value and what to give instead."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number as the page shows it; `inputs` are the (name, figure) pairs it was calculated from."""

    value: float
    unit: str
    provenance: Provenance
    formula: str
    source: str = ""
    inputs: tuple[tuple[str, "Figure"], ...] = ()
    standard_error: float | None = None
    interval: tuple[float, float] | None = None
    samples: int | None = None

    @property
    def assumed_inputs(self) -> tuple[str, ...]:
        """Names of the inputs, at any depth, that nobody measured: what this figure stands or falls with."""
        names = [name for name, figure in self.inputs if figure.provenance == "assumed"]
        for _, figure in self.inputs:
            names += figure.assumed_inputs
        return tuple(sorted(set(names)))


Number: TypeAlias = float | int | Figure


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes that each parameter keeps between steps, by what they are for."""

    parameter: float
    gradient: float
    optimizer: float
    words: str


# Adam with 16-bit weights and gradients: float32 master weight, first and second moment (Rajbhandari 2020, section 3.1).
MIXED_PRECISION_ADAM = StateBytes(2, 2, 12, "16-bit weight and gradient, float32 master weight and two Adam moments")
# What DDP or FSDP2 under autocast really keeps: float32 weights and gradients; the 16-bit copies are temporary.
FLOAT32_ADAM = StateBytes(4, 4, 8, "float32 weight, gradient and two Adam moments")


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run under interruptions that arrive at random, on average every `mean_interruption_s` seconds.

    After each `interval_s` of work a save of `save_s` follows; an interruption costs `restart_s` and everything since the last save.
    """

    work_s: Number
    interval_s: Number
    save_s: Number
    restart_s: Number
    mean_interruption_s: Number


@dataclass(frozen=True, slots=True)
class TimeToQuality:
    """Time and cost to the target quality, with and without interruptions."""

    ideal_s: Figure
    expected_s: Figure
    lost_s: Figure
    ideal_cost: Figure
    expected_cost: Figure


def measured(value: float, unit: str, how: str) -> Figure:
    """A number that was measured; `how` says by what."""
    return Figure(float(value), unit, "measured", how)


def assumed(value: float, unit: str, why: str) -> Figure:
    """A planning assumption; `why` says where it comes from."""
    return Figure(float(value), unit, "assumed", why)


# -- work ------------------------------------------------------------------------------------------------------------------------


def training_work(parameters: Number, tokens: Number) -> Figure:
    """Forward and backward work of a dense decoder in FLOP: 6 per parameter and token."""
    n, d = _positive("parameters", parameters, "parameters"), _positive("tokens", tokens, "tokens")
    words = "6 x parameters x tokens (attention scores left out)"
    return _calculated(6 * n.value * d.value, "FLOP", words, "Kaplan 2020", parameters=n, tokens=d)


def ideal_time(work_flop: Number, devices: Number, flop_per_s_per_device: Number) -> Figure:
    """Seconds the work takes at the sustained rate, before any overhead."""
    work = _positive("work_flop", work_flop, "FLOP")
    count, rate = _count("devices", devices), _positive("flop_per_s_per_device", flop_per_s_per_device, "FLOP/s")
    value, words = work.value / (count.value * rate.value), "work / (devices x sustained FLOP/s of a device)"
    return _calculated(value, "s", words, "", work_flop=work, devices=count, flop_per_s_per_device=rate)


def model_flops_utilisation(
    parameters: Number,
    tokens_per_s: Number,
    devices: Number,
    peak_flop_per_s: Number,
    *,
    layers: int = 0,
    width: int = 0,
    sequence: int = 0,
) -> Figure:
    """Share of the devices' peak that the model's own work uses; recomputed activations do not count.

    `layers`, `width` (heads x head size) and `sequence` add the attention scores; without them the figure is a lower bound.
    """
    n, rate = _positive("parameters", parameters, "parameters"), _positive("tokens_per_s", tokens_per_s, "tokens/s")
    count, peak = _count("devices", devices), _positive("peak_flop_per_s", peak_flop_per_s, "FLOP/s")
    per_token = 6 * n.value + 12 * layers * width * sequence
    words = "tokens/s x (6 x parameters + 12 x layers x width x sequence) / (devices x peak FLOP/s)"
    value = rate.value * per_token / (count.value * peak.value)
    if value > 1:
        raise EconomicsError(f"peak_flop_per_s = {peak.value:g} makes a utilisation of {value:.3g}: give the peak per device of this dtype")
    return _calculated(value, "ratio", words, "Chowdhery 2022", parameters=n, tokens_per_s=rate, devices=count, peak_flop_per_s=peak)


# -- memory ----------------------------------------------------------------------------------------------------------------------


def bytes_per_parameter(strategy: Strategy, world_size: Number, states: StateBytes = MIXED_PRECISION_ADAM) -> Figure:
    """Persistent bytes per parameter on one rank: DDP shards nothing, ZeRO-1 the optimizer, 2 also gradients, 3 and FSDP also weights."""
    world = _count("world_size", world_size)
    sharded = {"ddp": "", "zero1": "o", "zero2": "go", "zero3": "pgo", "fsdp": "pgo"}
    if strategy not in sharded:
        raise EconomicsError(f"strategy = {strategy!r} is unknown: give one of {', '.join(sharded)}")
    parts = {"p": states.parameter, "g": states.gradient, "o": states.optimizer}
    value = sum(size / world.value if part in sharded[strategy] else size for part, size in parts.items())
    names = {"": "nothing", "o": "optimizer", "go": "gradient and optimizer", "pgo": "weight, gradient and optimizer"}[sharded[strategy]]
    words = f"{states.words}; {names} divided by the world size"
    return _calculated(value, "B/parameter", words, "Rajbhandari 2020", world_size=world)


def state_memory(
    parameters: Number, strategy: Strategy, world_size: Number, states: StateBytes = MIXED_PRECISION_ADAM, *, gathered_parameters: float = 0
) -> Figure:
    """Bytes of training state on one rank, before activations.

    `gathered_parameters`: how many parameters of a sharded model are whole at once at the peak, in 16 bits
    (FSDP2: those of the block at work and of the one fetched ahead).
    """
    n, each = _positive("parameters", parameters, "parameters"), bytes_per_parameter(strategy, world_size, states)
    if not 0 <= gathered_parameters <= n.value:
        raise EconomicsError(f"gathered_parameters = {gathered_parameters:g}: give at least 0 and at most the model's {n.value:g}")
    gathered = 2 * gathered_parameters if strategy in ("zero3", "fsdp") else 0
    words = "parameters x bytes per parameter + 2 bytes x gathered parameters"
    return _calculated(n.value * each.value + gathered, "B", words, "Rajbhandari 2020", parameters=n, bytes_per_parameter=each)


def activation_memory(layers: int, sequence: int, micro_batch: int, width: int) -> Figure:
    """Bytes of 16-bit activations kept for backward by GPT blocks whose attention keeps no score matrix."""
    for name, value in (("layers", layers), ("sequence", sequence), ("micro_batch", micro_batch), ("width", width)):
        _count(name, value)
    words = "34 bytes x layers x sequence x micro-batch x width (fused attention, nothing recomputed)"
    return Figure(34.0 * layers * sequence * micro_batch * width, "B", "calculated", words, "Korthikanti 2022")


# -- checkpoint cadence ----------------------------------------------------------------------------------------------------------


def young_interval(save_s: Number, mean_interruption_s: Number) -> Figure:
    """First-order best seconds of work between saves; leaves out recovery and changing failure rates."""
    save, mean = _positive("save_s", save_s, "s"), _positive("mean_interruption_s", mean_interruption_s, "s")
    value = math.sqrt(2 * save.value * mean.value)
    return _calculated(value, "s", "sqrt(2 x save x mean interruption interval)", "Young 1974", save_s=save, mean_interruption_s=mean)


def daly_interval(save_s: Number, mean_interruption_s: Number) -> Figure:
    """Higher-order best seconds of work between saves; the mean interruption interval itself once a save costs twice that."""
    save, mean = _positive("save_s", save_s, "s"), _positive("mean_interruption_s", mean_interruption_s, "s")
    ratio = save.value / (2 * mean.value)
    value = mean.value
    if ratio < 1:
        value = math.sqrt(2 * save.value * mean.value) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save.value
    words = "sqrt(2CM) x (1 + sqrt(C/2M)/3 + (C/2M)/9) - C, for save C below 2M, else M"
    return _calculated(value, "s", words, "Daly 2006, high-order estimate", save_s=save, mean_interruption_s=mean)


# -- completion under interruptions ----------------------------------------------------------------------------------------------


def expected_completion(plan: RunPlan) -> Figure:
    """Exact expected seconds until the work is done and saved, for exponential interruptions that may strike saves and restarts too."""
    given = _plan(plan)
    work, interval, save, restart, mean = (given[name].value for name in _PLAN)
    whole, rest = _segments(work, interval)
    segments = whole * math.expm1((interval + save) / mean) + (math.expm1((rest + save) / mean) if rest else 0.0)
    value = mean * math.exp(restart / mean) * segments
    words = "M x exp(restart/M) x sum over segments of (exp((work + save)/M) - 1)"
    return _calculated(value, "s", words, "Daly 2006, complete model", **given)


def expected_goodput(interval_s: Number, save_s: Number, restart_s: Number, mean_interruption_s: Number) -> Figure:
    """Effective training time ratio (ETTR) of a long run: seconds of work that count per second on the clock."""
    given = _plan(RunPlan(interval_s, interval_s, save_s, restart_s, mean_interruption_s))
    value = given["interval_s"].value / expected_completion(RunPlan(**given)).value
    given.pop("work_s")
    words = "interval / (M x exp(restart/M) x (exp((interval + save)/M) - 1))"
    return _calculated(value, "ratio", words, "Kokolis 2024 (definition), Daly 2006, complete model", **given)


def first_order_goodput(interval_s: Number, save_s: Number, restart_s: Number, mean_interruption_s: Number) -> Figure:
    """The same ratio by the rule of thumb: each interruption costs a restart and half an interval. Holds while interruptions are rare."""
    given = _plan(RunPlan(interval_s, interval_s, save_s, restart_s, mean_interruption_s))
    _, interval, save, restart, mean = (given[name].value for name in _PLAN)
    value = max(0.0, 1 - (restart + (interval + save) / 2) / mean) * interval / (interval + save)
    given.pop("work_s")
    words = "(1 - (restart + (interval + save)/2) / M) x interval / (interval + save)"
    return _calculated(value, "ratio", words, "first order, after Kokolis 2024", **given)


def time_to_quality(
    steps: Number,
    step_s: Number,
    *,
    devices: Number,
    price_per_device_hour: Number,
    interval_s: Number,
    save_s: Number,
    restart_s: Number,
    mean_interruption_s: Number,
) -> TimeToQuality:
    """Seconds and money until `steps` optimizer steps (what the target quality takes) are done; the price's currency is the caller's."""
    count, each = _positive("steps", steps, "steps"), _positive("step_s", step_s, "s")
    ideal = _calculated(count.value * each.value, "s", "steps to the target x step time", "", steps=count, step_s=each)
    expected = expected_completion(RunPlan(ideal, interval_s, save_s, restart_s, mean_interruption_s))
    lost = _calculated(expected.value - ideal.value, "s", "expected completion - ideal time", "", expected_s=expected, ideal_s=ideal)
    return TimeToQuality(ideal, expected, lost, cost(ideal, devices, price_per_device_hour), cost(expected, devices, price_per_device_hour))


def cost(duration_s: Number, devices: Number, price_per_device_hour: Number) -> Figure:
    """Money for holding the devices that long, idle or not."""
    duration, count = _positive("duration_s", duration_s, "s"), _count("devices", devices)
    price = _positive("price_per_device_hour", price_per_device_hour, "money/h", zero=True)
    value, words = duration.value / 3600 * count.value * price.value, "hours x devices x price of a device hour"
    return _calculated(value, "money", words, "", duration_s=duration, devices=count, price_per_device_hour=price)


# -- deadline risk ---------------------------------------------------------------------------------------------------------------


def completion_samples(plan: RunPlan, *, trials: int = 100_000, seed: int = 0) -> NDArray[np.float64]:
    """Simulated completion times in seconds, shape (trials,): from interruption to interruption, without the closed form."""
    given = _plan(plan)
    _count("trials", trials)
    work, interval, save, restart, mean = (given[name].value for name in _PLAN)
    whole, rest = _segments(work, interval)
    tail = rest + save if rest else 0.0
    generator = np.random.default_rng(seed)
    clock, pause = np.zeros(trials), np.zeros(trials)
    todo, running = np.full(trials, float(whole)), np.arange(trials)
    while running.size:
        quiet = generator.exponential(mean, running.size)  # time until the next interruption
        need = pause[running] + todo[running] * (interval + save) + tail
        done = quiet >= need
        clock[running] += np.where(done, need, quiet)
        saved = np.floor(np.maximum(quiet - pause[running], 0) / (interval + save))
        todo[running] = np.maximum(todo[running] - saved, 0)
        pause[running] = restart
        running = running[~done]
    return clock


def deadline_risk(plan: RunPlan, deadline_s: Number, *, trials: int = 100_000, seed: int = 0) -> Figure:
    """Probability that the run ends after the deadline, by Monte Carlo, with its standard error and 95 % Wilson interval.

    The interval stays honest when no trial, or every trial, was late; the standard error is then 0.
    """
    limit = _positive("deadline_s", deadline_s, "s")
    times = completion_samples(plan, trials=trials, seed=seed)
    share = float(np.mean(times > limit.value))
    error = math.sqrt(share * (1 - share) / trials)
    words = f"share of {trials} simulated runs (seed {seed}) that end after the deadline"
    given = tuple(_plan(plan).items()) + (("deadline_s", limit),)
    return Figure(share, "probability", "calculated", words, "Monte Carlo; Wilson 1927", given, error, _wilson(share, trials), trials)


# -- at the edge -----------------------------------------------------------------------------------------------------------------

_PLAN = ("work_s", "interval_s", "save_s", "restart_s", "mean_interruption_s")
_LARGEST_EXPONENT = 600.0  # exp of more than this leaves float64: such a run never ends


def _plan(plan: RunPlan) -> dict[str, Figure]:
    given = {name: _positive(name, getattr(plan, name), "s", zero=name in ("save_s", "restart_s")) for name in _PLAN}
    interval, mean = min(given["interval_s"].value, given["work_s"].value), given["mean_interruption_s"].value
    exponent = (interval + given["save_s"].value + given["restart_s"].value) / mean
    if exponent > _LARGEST_EXPONENT:
        raise EconomicsError(
            f"interval_s = {interval:g}, with save and restart, is {exponent:.0f} x mean_interruption_s = {mean:g}: "
            "shorten it, such a run never ends"
        )
    return given


def _segments(work: float, interval: float) -> tuple[int, float]:
    """Whole intervals in the work and what remains; a remainder below rounding error is none."""
    whole = math.floor(work / interval * (1 + 1e-12))
    rest = work - whole * interval
    return whole, rest if rest > 1e-9 * interval else 0.0


def _wilson(share: float, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _positive(name: str, given: Number, unit: str, *, zero: bool = False) -> Figure:
    if isinstance(given, Figure) and given.unit != unit:
        raise EconomicsError(f"{name} is in {given.unit!r}: give it in {unit!r}")
    figure = given if isinstance(given, Figure) else Figure(float(given), unit, "assumed", "given as is")
    if not math.isfinite(figure.value) or figure.value < 0 or (figure.value == 0 and not zero):
        raise EconomicsError(f"{name} = {figure.value:g} {unit}: give a finite number {'of at least' if zero else 'above'} 0")
    return figure


def _count(name: str, given: Number) -> Figure:
    figure = _positive(name, given, "count")
    if figure.value != int(figure.value):
        raise EconomicsError(f"{name} = {figure.value:g}: give a whole number of at least 1")
    return figure


def _calculated(value: float, unit: str, formula: str, source: str, **inputs: Figure) -> Figure:
    return Figure(float(value), unit, "calculated", formula, source, tuple(inputs.items()))

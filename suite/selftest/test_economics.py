"""The economics formulas against hand calculations, published figures, limits and an independent simulation."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.special import lambertw

from reports import economics as eco
from reports.economics import EconomicsError, Figure, RunPlan

HOUR_S = 3600.0


def test_work_of_8b_parameters_and_10b_tokens() -> None:
    """6 x 8e9 x 1e10 by hand is 4.8e20 FLOP."""
    work = eco.training_work(8e9, 1e10)

    assert work.value == pytest.approx(4.8e20, rel=1e-12)
    assert (work.unit, work.provenance) == ("FLOP", "calculated")


def test_ideal_time_on_eight_devices() -> None:
    """4.8e20 FLOP at 8 x 100 TFLOP/s is 600,000 s, 166.7 h."""
    time = eco.ideal_time(eco.training_work(8e9, 1e10), 8, 100e12)

    assert time.value == pytest.approx(600_000, rel=1e-12)
    assert round(time.value / HOUR_S, 1) == 166.7


def test_state_of_8b_parameters_is_128_gb() -> None:
    """16 persistent bytes per parameter make 128 GB for 8e9 parameters before activations."""
    assert eco.bytes_per_parameter("ddp", 8).value == 16
    assert eco.state_memory(8e9, "ddp", 8).value == pytest.approx(128e9)


def test_cadence_of_a_60_s_save_and_6_h_interruptions() -> None:
    """sqrt(2 x 60 x 21600) by hand is 1610 s, about 27 min."""
    interval = eco.young_interval(60, 6 * HOUR_S)

    assert interval.value == pytest.approx(1609.97, abs=0.01)
    assert round(interval.value / 60) == 27


@pytest.mark.parametrize(
    ("strategy", "gigabytes"),
    [("ddp", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9), ("fsdp", 1.9)],
)
def test_zero_stages_as_published(strategy: eco.Strategy, gigabytes: float) -> None:
    """The worked example of the ZeRO paper (figure 1): 7.5e9 parameters on 64 devices."""
    assert eco.state_memory(7.5e9, strategy, 64).value / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_a_gathered_block_counts_only_where_weights_are_sharded() -> None:
    """Two bytes for each parameter that is whole at the peak; DDP has them whole already."""
    plain, peak = (eco.state_memory(1e9, "fsdp", 4, eco.FLOAT32_ADAM, gathered_parameters=n).value for n in (0, 1e8))

    assert peak - plain == pytest.approx(2e8)
    assert eco.state_memory(1e9, "ddp", 4, gathered_parameters=1e8).value == pytest.approx(16e9)


def test_activations_of_one_layer() -> None:
    """34 x sequence x micro-batch x width bytes in each layer."""
    assert eco.activation_memory(2, 1024, 4, 768).value == 34 * 2 * 1024 * 4 * 768


def test_utilisation_counts_attention() -> None:
    """PaLM's formula by hand: (6 x 1e9 + 12 x 10 x 1000 x 2000) x 1e4 tokens/s over 100 TFLOP/s is 0.624."""
    value = eco.model_flops_utilisation(1e9, 1e4, 1, 100e12, layers=10, width=1000, sequence=2000).value

    assert value == pytest.approx(0.624)
    assert eco.model_flops_utilisation(1e9, 1e4, 1, 100e12).value == pytest.approx(0.6)


@pytest.mark.parametrize(("mean_min", "best_min"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_interval_as_published(mean_min: float, best_min: float) -> None:
    """Figures 3 to 5 of Daly 2006: a 5 min save under interruptions every 24 h, 6 h and 15 min."""
    interval = eco.daly_interval(5 * 60, mean_min * 60).value / 60

    assert interval == pytest.approx(best_min, abs=0.5 if best_min > 10 else 0.05)


@pytest.mark.parametrize(("save_s", "mean_s", "error"), [(60, 21_600, 1e-4), (300, 900, 5e-3), (1, 1e6, 1e-6)])
def test_daly_interval_is_near_the_exact_optimum(save_s: float, mean_s: float, error: float) -> None:
    """The best interval of the exact expectation is M (1 + W(-exp(-save/M - 1))); the estimate stays within its series error."""
    exact = mean_s * (1 + float(lambertw(-math.exp(-save_s / mean_s - 1)).real))

    assert eco.daly_interval(save_s, mean_s).value == pytest.approx(exact, rel=error)


def test_daly_interval_beyond_its_series() -> None:
    """A save of twice the mean interruption interval or more: the interval is that mean."""
    assert eco.daly_interval(200, 100).value == 100


def test_no_other_interval_completes_sooner() -> None:
    """The exact expectation has its minimum at the estimated cadence."""
    best = eco.daly_interval(60, 21_600).value
    times = [eco.expected_completion(RunPlan(best * 1000, best * factor, 60, 300, 21_600)).value for factor in (0.5, 0.8, 1.0, 1.25, 2.0)]

    assert min(times) == times[2], times


def test_completion_without_interruptions_is_work_and_saves() -> None:
    """As interruptions become rare the expectation goes to work + saves, the unfinished last interval saved too."""
    plan = RunPlan(work_s=1050, interval_s=100, save_s=5, restart_s=60, mean_interruption_s=1e12)

    assert eco.expected_completion(plan).value == pytest.approx(1050 + 11 * 5, rel=1e-6)


def test_rounding_leaves_no_phantom_interval() -> None:
    """0.3 s of work in intervals of 0.1 s are three saves, though 3 x 0.1 is not 0.3 in floating point."""
    assert eco.expected_completion(RunPlan(0.3, 0.1, 1, 0, 1e12)).value == pytest.approx(3.3, rel=1e-9)


def test_goodput_agrees_with_its_first_order() -> None:
    """With rare interruptions exact and first-order ratio meet; more frequent ones lower it."""
    exact, rule = (f(1600, 60, 120, 1e6).value for f in (eco.expected_goodput, eco.first_order_goodput))

    assert exact == pytest.approx(rule, rel=1e-5)
    assert 0 < eco.expected_goodput(1600, 60, 120, 2000).value < eco.expected_goodput(1600, 60, 120, 20_000).value < 1600 / 1660


def test_goodput_is_the_long_run_ratio() -> None:
    """Work over expected completion of a whole number of intervals is the goodput."""
    completion = eco.expected_completion(RunPlan(160_000, 1600, 60, 120, 5000)).value

    assert eco.expected_goodput(1600, 60, 120, 5000).value == pytest.approx(160_000 / completion, rel=1e-12)


@pytest.mark.parametrize(
    "plan",
    [
        RunPlan(10_000, 1000, 60, 120, 4000),
        RunPlan(10_500, 1000, 60, 900, 1500),  # an unfinished last interval, restarts that are themselves interrupted
        RunPlan(500, 1000, 0, 30, 700),  # shorter than one interval
    ],
)
def test_simulation_agrees_with_the_closed_form(plan: RunPlan) -> None:
    """The simulated mean lies within four standard errors of the exact expectation (chance of a false alarm 6e-5)."""
    times = eco.completion_samples(plan, trials=40_000, seed=1)
    error = times.std(ddof=1) / math.sqrt(times.size)

    assert abs(times.mean() - eco.expected_completion(plan).value) < 4 * error


def test_simulation_repeats_by_seed() -> None:
    """Same seed, same times; another seed, other times."""
    plan = RunPlan(1000, 100, 5, 10, 300)
    first, again, other = (eco.completion_samples(plan, trials=100, seed=seed) for seed in (3, 3, 4))

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_deadline_risk_of_one_interval_without_restart_cost() -> None:
    """Ending exactly on time needs one quiet interval: P(late) = 1 - exp(-(work + save)/M), in closed form."""
    risk = eco.deadline_risk(RunPlan(900, 900, 100, 0, 2000), 1000, trials=40_000, seed=2)
    exact = 1 - math.exp(-1000 / 2000)

    assert risk.standard_error is not None
    assert risk.interval is not None
    assert abs(risk.value - exact) < 4 * risk.standard_error
    assert risk.interval[0] < exact < risk.interval[1]
    assert risk.standard_error == pytest.approx(math.sqrt(risk.value * (1 - risk.value) / 40_000))


def test_no_late_trial_is_no_proof_of_no_risk() -> None:
    """With nothing late among 1000 trials the interval still reaches about 3.84/1000."""
    risk = eco.deadline_risk(RunPlan(900, 900, 100, 0, 1e9), 1e6, trials=1000)

    assert risk.value == 0
    assert risk.interval is not None
    assert risk.interval[1] == pytest.approx(3.84 / 1003.84, rel=1e-3)


def test_time_and_cost_to_quality() -> None:
    """1000 steps of 3.6 s are one hour: 8 devices at 2 an hour cost 16 undisturbed, and more with interruptions."""
    found = eco.time_to_quality(
        1000, 3.6, devices=8, price_per_device_hour=2, interval_s=600, save_s=10, restart_s=60, mean_interruption_s=1800
    )

    assert found.ideal_s.value == pytest.approx(3600)
    assert found.ideal_cost.value == pytest.approx(16)
    by_hand_s = 1800 * math.exp(60 / 1800) * 6 * (math.exp(610 / 1800) - 1)
    assert found.expected_s.value == pytest.approx(by_hand_s)
    assert found.lost_s.value == pytest.approx(by_hand_s - 3600)
    assert found.expected_cost.value == pytest.approx(by_hand_s / 3600 * 16)


def test_a_figure_tells_which_inputs_nobody_measured() -> None:
    """A measured save and an assumed interruption interval: the cadence rests on the assumption alone, at any depth."""
    save = eco.measured(0.2, "s", "median of 12 saves of this audit")
    cadence = eco.young_interval(save, eco.assumed(21_600, "s", "fleet average"))
    goodput = eco.expected_goodput(cadence, save, eco.measured(3, "s", "slowest of 4 restarts"), 21_600)

    assert cadence.assumed_inputs == ("mean_interruption_s",)
    assert goodput.assumed_inputs == ("mean_interruption_s",)
    assert (save.provenance, cadence.provenance) == ("measured", "calculated")
    with pytest.raises(FrozenInstanceError):
        cadence.value = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eco.training_work(-1, 5), r"parameters = -1 .* give a finite number above 0"),
        (lambda: eco.young_interval(60, math.nan), r"mean_interruption_s = nan"),
        (lambda: eco.ideal_time(1e9, 1.5, 1e9), r"devices = 1.5: give a whole number"),
        (
            lambda: eco.bytes_per_parameter("zero4", 2),  # type: ignore[arg-type]
            r"strategy = 'zero4' is unknown: give one of ddp",
        ),
        (lambda: eco.state_memory(10, "fsdp", 2, gathered_parameters=11), r"gathered_parameters = 11: .* at most the model's 10"),
        (lambda: eco.model_flops_utilisation(1e9, 1e6, 1, 1e12), r"peak_flop_per_s = 1e\+12 .* give the peak"),
        (lambda: eco.young_interval(Figure(60, "ms", "assumed", ""), 1), r"save_s is in 'ms': give it in 's'"),
        (lambda: eco.expected_completion(RunPlan(1e9, 1e9, 1, 1, 1)), r"shorten it, such a run never ends"),
        (lambda: eco.completion_samples(RunPlan(1, 1, 1, 1, 1), trials=0), r"trials = 0"),
    ],
)
def test_errors_name_field_value_and_fix(call: object, message: str) -> None:
    """Wrong inputs are refused at the edge in one sentence."""
    assert callable(call)
    with pytest.raises(EconomicsError, match=message):
        call()

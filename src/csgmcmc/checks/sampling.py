"""Whether a run sampled: N, injected noise, and the temperature of its draws."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from csgmcmc.arguments import check_kind
from csgmcmc.checks.likelihood import LikelihoodRatio, likelihood_ratio
from csgmcmc.checks.parameter_temperatures import ParameterReport, parameter_reports
from csgmcmc.checks.verdict import Advice, Numbers, Verdict
from csgmcmc.diagnostics.temperature import Temperature
from csgmcmc.loaders import Loss, check_data
from csgmcmc.loop import Chain, Stepper
from csgmcmc.loop import watch as noise
from csgmcmc.loop.watch import sampling_temperature
from csgmcmc.posterior import Posterior

MIN_COSINE = 0.999  # of gradients, above which the loss is a multiple of the NLL
NUM_DATA_TOLERANCE = 0.1  # relative error of N that is not reported
TEMPERATURE_FACTOR = 2  # between a temperature and its target, beyond which it is off
MAX_SHARE_OFF = 0.5  # share of the weights whose temperature may be off
MAX_NAMES = 4  # of parameters in a verdict


class Run(NamedTuple):
    """The stepper of a run, with its loss and training data where they are known."""

    stepper: Stepper
    loss: Loss | None
    data: Iterable[Any] | None


def as_run(
    posterior: Posterior, run: Chain | Stepper | None, loss: Loss | None, data: Iterable[Any] | None
) -> Run | None:
    """The given run, or else the posterior's own; None if there is neither."""
    run = posterior.run if run is None else run
    if data is not None:
        check_data(data)
    if run is None:
        if loss is not None or data is not None:
            raise ValueError("loss and data belong to a run: give its stepper too, as run=")
        return None
    check_kind("run", run, (Chain, Stepper), "a Chain or a Stepper")
    if isinstance(run, Stepper):
        return Run(run, loss, data)
    return Run(run.stepper, run.loss if loss is None else loss, run.data if data is None else data)


def check_sampling(
    posterior: Posterior, run: Run | None, numbers: Numbers, advice: Advice
) -> tuple[Verdict, dict[str, ParameterReport]]:
    """The verdict, and the noise and temperature of each parameter tensor.

    Adds to `numbers` and `advice`.
    """
    if run is None:
        return Verdict(None, "needs the run that made the draws: run=, a Chain or a Stepper"), {}
    temperature = sampling_temperature(run.stepper)
    if temperature == 0:
        return Verdict(False, "no noise was injected: these are optimised weights"), {}
    if run.loss is None or run.data is None:
        return Verdict(None, "needs the loss and the training data too: loss= and data="), {}
    if isinstance(run.data, Iterator):
        return Verdict(None, "data can be read only once: give a DataLoader as data="), {}
    found = None
    with suppress(ValueError, RuntimeError):  # the likelihood does not fit these batches
        found = likelihood_ratio(posterior, run.loss, run.data, run.stepper.generators)
    faults = _find_wrong_num_data(run.stepper, found, numbers, advice)
    try:
        parameters = parameter_reports(posterior, run.stepper, run.loss, run.data)
    except ValueError as error:
        return Verdict(False if faults else None, "; ".join([*faults, str(error)])), {}
    fine: list[str] = []
    injected = sum(report.size * report.noise.injected for report in parameters.values())
    minibatch = sum(report.size * report.noise.minibatch for report in parameters.values())
    numbers["noise_ratio"] = ratio = noise.noise_ratio(injected, minibatch)
    thermostat = getattr(run.stepper.sampler, "thermostat", False)
    minibatches_dominate = ratio < noise.NEGLIGIBLE and not thermostat
    bound = "a thermostat allows any" if thermostat else f"at least {noise.NEGLIGIBLE}"
    (faults if minibatches_dominate else fine).append(f"{noise.describe_noise(ratio)} ({bound})")
    if minibatches_dominate:
        advice.append(noise.noise_advice(ratio, temperature))
    if len(posterior.draws) > 1:
        off, described = _describe_temperatures(parameters, numbers)
        (faults if off > MAX_SHARE_OFF else fine).append(described)
        if not minibatches_dominate:
            advice += _remedies(numbers)
    elif not faults:
        return Verdict(None, f"{fine[0]}; a temperature needs at least 2 draws"), parameters
    if faults and fine:
        fine[0] = f"fine: {fine[0]}"
    return Verdict(not faults, "; ".join(faults + fine)), parameters


def _describe_temperatures(
    parameters: dict[str, ParameterReport], numbers: Numbers
) -> tuple[float, str]:
    """The share of the weights whose temperature is off, and a description."""
    size = sum(report.size for report in parameters.values())
    off, blamed = 0.0, ""
    for way in ("too cold", "too hot"):
        names = [name for name, one in parameters.items() if way_off(one.temperature) == way]
        share = sum(parameters[name].size for name in names) / size
        numbers[f"share_{way.replace(' ', '_')}"] = share
        off += share
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        blamed += f", {way}: {', '.join(names[:MAX_NAMES])}{more}" if names else ""
    return off, (
        f"temperature right to a factor of {TEMPERATURE_FACTOR} for {1 - off:.0%} of the weights "
        f"(at least {1 - MAX_SHARE_OFF:.0%}){blamed}"
    )


def way_off(found: Temperature | None) -> str | None:
    """How the whole interval is off by more than the factor; None if it is not."""
    if found is None:
        return None
    if found.high < found.target / TEMPERATURE_FACTOR:
        return "too cold"
    return "too hot" if found.low > TEMPERATURE_FACTOR * found.target else None


def _remedies(numbers: Numbers) -> Advice:
    """Advice where most weights are too cold, or too hot."""
    longer = "sample longer (more steps, less exploration)"
    if numbers["share_too_cold"] > MAX_SHARE_OFF:
        return [
            f"the draws have not spread out to the temperature asked for: {longer}, or raise lr"
        ]
    if numbers["share_too_hot"] > MAX_SHARE_OFF:
        return [f"the draws are hotter than asked for: {longer}, lower lr, or raise the batch size"]
    return []


def _find_wrong_num_data(
    stepper: Stepper, found: LikelihoodRatio | None, numbers: Numbers, advice: Advice
) -> list[str]:
    """The fault of N if N * loss is not the NLL of all data."""
    if found is None:
        return []
    numbers["loss_nll_cosine"] = found.cosine
    if found.cosine < MIN_COSINE:  # another loss, such as one with label smoothing
        return []
    ratios = [group["num_data"] / found.num_data for group in stepper.sampler.param_groups]
    ratio = max(ratios, key=lambda each: abs(math.log(each)))  # the worst
    numbers["num_data_expected"] = found.num_data
    numbers["num_data_ratio"] = ratio
    if abs(ratio - 1) <= NUM_DATA_TOLERANCE:
        return []
    heat = f"{max(ratio, 1 / ratio):.3g} times too {'hot' if ratio < 1 else 'cold'}"
    advice.append(
        f"make the sampler with num_data={found.num_data:.0f}, or scale the loss: N x loss must "
        "equal the negative log-likelihood of all data"
    )
    return [
        f"num_data={ratio * found.num_data:g}, but N x loss is the likelihood's NLL of all data "
        f"for N={found.num_data:.0f}, so that the posterior is {heat}"
    ]

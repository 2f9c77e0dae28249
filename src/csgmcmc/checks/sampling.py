"""Whether a run sampled: N, injected noise, and the temperature of its draws."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from torch import nn

from csgmcmc.arguments import check_kind
from csgmcmc.checks.likelihood import LikelihoodRatio, likelihood_ratio
from csgmcmc.checks.parameter_temperatures import (
    MAX_DRAWS,
    ParameterReport,
    parameter_reports,
    sampling_ticks,
)
from csgmcmc.checks.verdict import Advice, Interval, Numbers, Verdict, number
from csgmcmc.diagnostics.temperature import Temperature
from csgmcmc.loaders import Loss, check_data
from csgmcmc.loop import Chain, Stepper
from csgmcmc.posterior import Posterior
from csgmcmc.samplers import Sampler
from csgmcmc.schedules.base import options_at

MIN_COSINE = 0.999  # of gradients, above which the loss is a multiple of the NLL
NUM_DATA_TOLERANCE = 0.1  # relative error of N that is not reported
TEMPERATURE_FACTOR = 2  # between a temperature and its target, beyond which it is off
MAX_SHARE_OFF = 0.5  # share of the weights whose temperature may be off
MAX_SNAPSHOT = 0.01  # temperature above which a run is asked whether it is a sample, for any N
NEGLIGIBLE = 0.1  # ratio of injected to minibatch noise below which the latter dominates
MAX_NAMES = 4  # of parameters in a verdict
RANDOM = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)  # in training mode

WAYS = ("too cold", "too hot")
REMEDIES = {
    "too cold": "the draws have not spread out to the temperature asked for: sample longer (more "
    "steps, less exploration), or raise lr",
    "too hot": "the draws are hotter than asked for: sample longer (more steps, less exploration), "
    "lower lr, or raise the batch size",
}


class Run(NamedTuple):
    """The stepper of a run, with its loss and training data where they are known."""

    stepper: Stepper
    loss: Loss | None
    data: Iterable[Any] | None

    @property
    def not_a_sample(self) -> str:
        """Why the draws are not meant as a sample of the posterior; empty if they are."""
        temperature = sampling_temperature(self.stepper)
        if temperature == 0:
            return "no noise was injected (temperature 0)"
        sizes = [group.get("num_data", 1.0) for group in self.stepper.sampler.param_groups]
        is_cold = temperature <= min(1.01 / max(sizes), MAX_SNAPSHOT)
        return f"temperature {number(temperature)}" if is_cold else ""


def as_run(
    posterior: Posterior,
    run: Chain | Stepper | None,
    loss: Loss | None,
    data: Iterable[Any] | None,
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


def compare_likelihood(posterior: Posterior, run: Run | None) -> LikelihoodRatio | None:
    """The loss of the run compared with the posterior's likelihood, if that can be done."""
    if run is None or run.loss is None or run.data is None or isinstance(run.data, Iterator):
        return None
    if sampling_temperature(run.stepper) == 0:  # N does not matter
        return None
    with suppress(ValueError, RuntimeError):  # the likelihood does not fit these batches
        return likelihood_ratio(posterior, run.loss, run.data, run.stepper.generators)
    return None


def find_wrong_num_data(
    run: Run, found: LikelihoodRatio | None, numbers: Numbers, advice: Advice
) -> Verdict | None:
    """A verdict if N * loss is not the NLL of all data: then nothing else is worth asking."""
    if found is None:
        return None
    numbers["loss_nll_cosine"] = found.cosine
    if found.cosine < MIN_COSINE:  # another loss, such as one with label smoothing
        return None
    ratios = [group["num_data"] / found.num_data for group in run.stepper.sampler.param_groups]
    ratio = max(ratios, key=lambda each: abs(math.log(each)))  # the worst
    numbers["num_data_expected"] = found.num_data
    numbers["num_data_ratio"] = ratio
    if abs(ratio - 1) <= NUM_DATA_TOLERANCE:
        return None
    heat = f"{number(max(ratio, 1 / ratio))} times too {'hot' if ratio < 1 else 'cold'}"
    if found.is_sum:
        advice.append('give a mean: reduction="mean", or divide the loss by the batch size')
        words = "the loss is a sum over the batch, not its mean"
        return Verdict(False, f"{words}, so that the posterior is {heat}")
    advice.append(
        f"make the sampler with num_data={found.num_data:.0f}, or scale the loss: N x loss must "
        "equal the negative log-likelihood of all data"
    )
    return Verdict(
        False,
        f"num_data={ratio * found.num_data:g}, but N x loss is the likelihood's NLL of all data "
        f"for N={found.num_data:.0f}, so that the posterior is {heat}",
    )


def check_sampling(
    posterior: Posterior,
    run: Run | None,
    found: LikelihoodRatio | None,
    numbers: Numbers,
    advice: Advice,
) -> tuple[Verdict, dict[str, ParameterReport]]:
    """The verdict, and the noise and temperature of each parameter tensor."""
    if run is None:
        return Verdict(None, "needs the run that made the draws: run=, a Chain or a Stepper"), {}
    temperature, cold = sampling_temperature(run.stepper), run.not_a_sample
    if temperature == 0:
        return Verdict(None, cold, asked=False), {}
    if run.loss is None or run.data is None or isinstance(run.data, Iterator):
        missing = "needs the loss and the training data too: loss= and data="
        if isinstance(run.data, Iterator):
            missing = "data can be read only once: give a DataLoader as data="
        return Verdict(None, cold or missing, asked=not cold), {}
    try:
        measured = parameter_reports(posterior, run.stepper, run.loss, run.data)
    except ValueError as error:
        return Verdict(None, cold or str(error), asked=not cold), {}
    parameters, found_heat, numbers["share_clipped"] = measured
    injected = sum(report.size * report.noise.injected for report in parameters.values())
    minibatch = sum(report.size * report.noise.minibatch for report in parameters.values())
    numbers["noise_ratio"] = injected / minibatch if minibatch > 0 else math.inf
    if found_heat is not None:
        names = ("value", "low", "high", "target")
        numbers.update({f"temperature_{name}": getattr(found_heat, name) for name in names})
    if cold:
        return Verdict(None, cold, asked=False), parameters
    draws = min(len(posterior.draws), MAX_DRAWS)
    return _judge(run, found, parameters, found_heat, draws, numbers, advice), parameters


def _judge(
    run: Run,
    found: LikelihoodRatio | None,
    parameters: dict[str, ParameterReport],
    heat: Temperature | None,
    draws: int,
    numbers: Numbers,
    advice: Advice,
) -> Verdict:
    """The verdict on a run that is meant to sample: the first cause that is found."""
    ratio, temperature = numbers["noise_ratio"], sampling_temperature(run.stepper)
    if found is not None and found.cosine < MIN_COSINE:
        advice.append(
            "give the plain negative log-likelihood as the loss, and a prior to the sampler: label "
            "smoothing, class weights and penalties change what is sampled; or give the posterior "
            "the likelihood of this loss"
        )
        return Verdict(
            False,
            "the loss is not the posterior's likelihood: the cosine between their gradients is "
            f"{number(found.cosine)} (at least {MIN_COSINE})",
        )
    if numbers["share_clipped"] > MAX_SHARE_OFF:
        advice.append("clipping changes the stationary distribution: lower lr, or raise clip")
        words = f"clip still acts on {numbers['share_clipped']:.0%} of the batches at the draws"
        return Verdict(False, f"{words} (at most {MAX_SHARE_OFF:.0%})")
    if ratio < NEGLIGIBLE and not getattr(run.stepper.sampler, "thermostat", False):
        heated = temperature * (1 + 1 / ratio) if ratio else math.inf
        advice.append(
            f"minibatch noise heats the chain to a temperature of up to {number(heated)}: raise "
            "the batch size, lower lr, or give SGHMC gradient_variance="
        )
        return Verdict(False, f"{describe_noise(ratio)} (at least {NEGLIGIBLE})")
    if heat is None:
        return Verdict(None, "a temperature needs at least 2 draws")
    ways = {name: way_off(one.temperature) for name, one in parameters.items()}
    off = {way: [name for name in ways if ways[name] == way] for way in WAYS}
    size = sum(report.size for report in parameters.values())
    for way, names in off.items():
        share = sum(parameters[name].size for name in names) / size
        numbers[f"share_{way.replace(' ', '_')}"] = share
    share_off = numbers["share_too_cold"] + numbers["share_too_hot"]
    interval = Interval(heat.value / heat.target, heat.low / heat.target, heat.high / heat.target)
    holds = interval.within(1 / TEMPERATURE_FACTOR, TEMPERATURE_FACTOR)
    words = (
        f"temperature {number(heat.low)} to {number(heat.high)}, asked for {number(heat.target)} "
        f"(to a factor of {TEMPERATURE_FACTOR})"
    )
    random = sorted({type(m).__name__ for m in run.stepper.model.modules() if _is_random(m)})
    if random and holds is not False:
        words = f"{', '.join(random)} in training mode makes the loss random; {words}"
        return Verdict(None, words)
    if holds and share_off <= MAX_SHARE_OFF and run.stepper.problems:
        advice += run.stepper.problems
        return Verdict(None, f"{words}, but the run was warned")
    if holds and share_off <= MAX_SHARE_OFF:
        return Verdict(True, f"{words}; {describe_noise(ratio)}")
    if holds is False or share_off > MAX_SHARE_OFF:
        way = "too cold" if numbers["share_too_cold"] > numbers["share_too_hot"] else "too hot"
        if share_off == 0:
            way = "too cold" if interval.value < 1 else "too hot"
        advice.append(REMEDIES[way])
        names = off[way]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        blamed = f": {', '.join(names[:MAX_NAMES])}{more}" if names else ""
        return Verdict(False, f"{words}; too {way.split()[1]}{blamed}")
    needed = interval.needed(draws, "draws", 1 / TEMPERATURE_FACTOR, TEMPERATURE_FACTOR)
    return Verdict(None, f"{words}: {needed}")


def describe_noise(ratio: float) -> str:
    """The ratio of injected to minibatch noise as a clause."""
    if math.isinf(ratio):
        return "the minibatches add no noise"
    return f"injected noise is {number(ratio)} times that of the minibatches"


def sampling_temperature(stepper: Stepper) -> float:
    """The highest temperature of the sampling stages; 0 if no noise is injected there."""
    if not isinstance(stepper.sampler, Sampler):
        return 0.0
    groups, ticks = stepper.sampler.param_groups, sampling_ticks(stepper.schedule)
    return max(options_at(group, tick)["temperature"] for group in groups for tick in ticks)


def way_off(found: Temperature | None) -> str | None:
    """How the whole interval is off by more than the factor; None if it is not."""
    if found is None:
        return None
    if found.high < found.target / TEMPERATURE_FACTOR:
        return "too cold"
    return "too hot" if found.low > TEMPERATURE_FACTOR * found.target else None


def _is_random(module: nn.Module) -> bool:
    """Whether the outputs of a module depend on chance, or on the other examples of a batch."""
    return module.training and isinstance(module, RANDOM) and getattr(module, "p", 1.0) > 0

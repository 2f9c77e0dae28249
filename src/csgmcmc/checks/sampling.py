"""Whether a run sampled: N, injected noise, and the temperature of its draws."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from torch import nn

from csgmcmc.arguments import check_kind
from csgmcmc.checks.likelihood import LikelihoodRatio, likelihood_ratio
from csgmcmc.checks.parameter_temperatures import ParameterReport, parameter_reports, sampling_ticks
from csgmcmc.checks.verdict import Interval, Numbers, Verdict, number
from csgmcmc.diagnostics.temperature import Temperature
from csgmcmc.loaders import Loss
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
    def temperature(self) -> float:
        """The highest of the sampling stages; 0 if no noise is injected there."""
        if not isinstance(self.stepper.sampler, Sampler):
            return 0.0
        groups, ticks = self.stepper.sampler.param_groups, sampling_ticks(self.stepper.schedule)
        return max(options_at(group, tick)["temperature"] for group in groups for tick in ticks)

    @property
    def not_a_sample(self) -> str:
        """Why the draws are not meant as a sample of the posterior; empty if they are."""
        if self.temperature == 0:
            return "no noise was injected (temperature 0)"
        largest = max(group["num_data"] for group in self.stepper.sampler.param_groups)
        is_cold = self.temperature <= min(1.01 / largest, MAX_SNAPSHOT)
        return f"temperature {number(self.temperature)}" if is_cold else ""


def as_run(
    posterior: Posterior, run: Chain | Stepper | None, loss: Loss | None, data: Iterable[Any] | None
) -> Run | None:
    """The given run, or else the posterior's own; None if there is neither."""
    run = posterior.run if run is None else run
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
    if run.temperature == 0:  # N does not matter
        return None
    with suppress(ValueError, RuntimeError):  # the likelihood does not fit these batches
        generators = run.stepper.sources.generators
        return likelihood_ratio(posterior, run.loss, run.data, generators, run.stepper.trained)
    return None


def find_wrong_num_data(run: Run, found: LikelihoodRatio, numbers: Numbers) -> Verdict | None:
    """A verdict if N * loss is not the NLL of all data: then nothing else is worth asking."""
    numbers["loss_nll_cosine"] = found.cosine
    if found.cosine < MIN_COSINE:  # another loss, such as one with label smoothing
        return None
    ratios = [group["num_data"] / found.num_data for group in run.stepper.sampler.param_groups]
    ratio = max(ratios, key=lambda each: abs(math.log(each)))  # the worst
    numbers["num_data_expected"], numbers["num_data_ratio"] = found.num_data, ratio
    if abs(ratio - 1) <= NUM_DATA_TOLERANCE:
        return None
    if found.is_sum:
        words = "the loss is a sum over the batch, not its mean"
        advice = 'give a mean: reduction="mean", or divide the loss by the batch size'
    else:
        words = f"num_data={ratio * found.num_data:g}, but N x loss is the likelihood's NLL of all "
        words += f"data for N={found.num_data:.0f}"
        advice = f"make the sampler with num_data={found.num_data:.0f}, or scale the loss: N x "
        advice += "loss must equal the negative log-likelihood of all data"
    heat = f"{number(max(ratio, 1 / ratio))} times too {'hot' if ratio < 1 else 'cold'}"
    return Verdict(False, f"{words}, so that the posterior is {heat}", (advice,))


def check_sampling(
    posterior: Posterior, run: Run | None, found: LikelihoodRatio | None, numbers: Numbers
) -> tuple[Verdict, dict[str, ParameterReport]]:
    """The verdict, and the noise and temperature of each parameter tensor."""
    if run is None:
        return Verdict(None, "needs the run that made the draws: run=, a Chain or a Stepper"), {}
    cold, missing, measured = run.not_a_sample, "", None
    if run.loss is None or run.data is None:
        missing = "needs the loss and the training data too: loss= and data="
    elif isinstance(run.data, Iterator):
        missing = "data can be read only once: give a DataLoader as data="
    elif run.temperature > 0:
        try:
            measured = parameter_reports(posterior, run.stepper, run.loss, run.data)
        except ValueError as error:
            missing = str(error)
    if measured is None:
        return Verdict(None, cold or missing, asked=not cold), {}
    parameters, heat, numbers["share_clipped"] = measured
    injected = sum(report.size * report.noise.injected for report in parameters.values())
    minibatch = sum(report.size * report.noise.minibatch for report in parameters.values())
    numbers["noise_ratio"] = injected / minibatch if minibatch > 0 else math.inf
    if heat is not None:
        numbers |= {f"temperature_{end}": value for end, value in heat._asdict().items()}
    if cold:
        return Verdict(None, cold, asked=False), parameters
    if (fault := _find_fault(run, found, numbers)) is not None:
        return fault, parameters
    if heat is None:
        return Verdict(None, "a temperature needs at least 2 draws"), parameters
    return _judge_temperature(run, parameters, heat, len(posterior.draws), numbers), parameters


def _find_fault(run: Run, found: LikelihoodRatio | None, numbers: Numbers) -> Verdict | None:
    """A cause for which the draws cannot follow the posterior, whatever their temperature."""
    ratio, clipped = numbers["noise_ratio"], numbers["share_clipped"]
    if found is not None and found.has_penalty:
        words = "the loss uses weights besides the model's outputs, as a penalty does, and this is "
        words += "not part of the posterior's likelihood"
        advice = "give the sampler weight_decay or prior in place of a penalty"
    elif found is not None and found.cosine < MIN_COSINE:
        words = "the loss is not the posterior's likelihood: the cosine between their gradients is "
        words += f"{number(found.cosine)} (at least {MIN_COSINE})"
        advice = (
            "give the plain negative log-likelihood as the loss, and a prior to the sampler: label "
            "smoothing, class weights and penalties change what is sampled; or give the posterior "
            "the likelihood of this loss"
        )
    elif clipped > MAX_SHARE_OFF:
        words = f"clip still acts on {clipped:.0%} of the batches at the draws (at most "
        words += f"{MAX_SHARE_OFF:.0%})"
        advice = "clipping changes the stationary distribution: lower lr, or raise clip"
    elif ratio < NEGLIGIBLE:
        heated = run.temperature * (1 + 1 / ratio) if ratio else math.inf
        words = f"{describe_noise(ratio)} (at least {NEGLIGIBLE})"
        advice = (
            f"minibatch noise heats the chain to a temperature of up to {number(heated)}: raise "
            "the batch size, lower lr, or give SGHMC gradient_variance="
        )
    else:
        return None
    return Verdict(False, words, (advice,))


def _judge_temperature(
    run: Run,
    reports: dict[str, ParameterReport],
    heat: Temperature,
    draws: int,
    numbers: Numbers,
) -> Verdict:
    """The verdict on the temperature of all weights, and on that of most tensors."""
    size = sum(report.size for report in reports.values())
    off = {name: way_off(report.temperature) for name, report in reports.items()}
    for way in REMEDIES:
        share = sum(reports[name].size for name in off if off[name] == way) / size
        numbers[f"share_{way.replace(' ', '_')}"] = share
    interval = Interval(heat.value / heat.target, heat.low / heat.target, heat.high / heat.target)
    bounds = 1 / TEMPERATURE_FACTOR, TEMPERATURE_FACTOR
    holds = interval.within(*bounds)
    words = f"temperature {number(heat.low)} to {number(heat.high)}, asked for "
    words += f"{number(heat.target)} (to a factor of {TEMPERATURE_FACTOR})"
    if heat.low < 0:
        words += " (an estimate from few draws may be below 0)"
    known = "num_data_ratio" in numbers  # N was measured, and is right
    problems = tuple(p for p in run.stepper.problems if not (known and p.startswith("num_data=")))
    random = sorted({type(m).__name__ for m in run.stepper.model.modules() if _is_random(m)})
    if random and holds is not False:
        return Verdict(None, f"{', '.join(random)} in training mode makes the loss random; {words}")
    if holds is False or numbers["share_too_cold"] + numbers["share_too_hot"] > MAX_SHARE_OFF:
        way = "too cold" if interval.value < 1 else "too hot"
        names = [name for name in off if off[name] == way]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        blamed = f": {', '.join(names[:MAX_NAMES])}{more}" if names else ""
        return Verdict(False, f"{words}; {way}{blamed}", (*problems, REMEDIES[way]))
    if holds and problems:
        return Verdict(None, f"{words}, but the run was warned", problems)
    if holds:
        words += f"; {describe_noise(numbers['noise_ratio'])}"
    return interval.judge(words, "", draws, *bounds, "draws")


def describe_noise(ratio: float) -> str:
    """The ratio of injected to minibatch noise as a clause."""
    if math.isinf(ratio):
        return "the minibatches add no noise"
    return f"injected noise is {number(ratio)} times that of the minibatches"


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

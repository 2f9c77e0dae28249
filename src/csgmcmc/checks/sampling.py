"""Whether a run sampled: N, injected noise, and the temperature of its draws."""

from collections.abc import Mapping

from csgmcmc.checks import noise
from csgmcmc.checks.evaluation import TrainingRun
from csgmcmc.checks.likelihood import (
    SAME_DIRECTION,
    TOLERANCE,
    LikelihoodRatio,
    likelihood_ratio,
)
from csgmcmc.checks.parameter_temperatures import ParameterReport, parameter_reports
from csgmcmc.checks.run import sampling_temperature
from csgmcmc.checks.verdict import Advice, Numbers, Verdict, listed, percents, words_of
from csgmcmc.stepper import LoopWords

MOST_OFF = 0.5  # share of the weights whose temperature may be off
FACTOR = 2  # by more than this

Reports = Mapping[str, ParameterReport]


def check_sampling(
    run: TrainingRun | None, numbers: Numbers, advice: Advice
) -> tuple[Verdict, dict[str, ParameterReport]]:
    """The verdict, and what was measured of each parameter; adds to `numbers` and `advice`."""
    if run is None:
        return Verdict(None, "needs the run that made the draws: stepper=, loss= and data="), {}
    temperature = sampling_temperature(run.stepper)
    if temperature == 0:
        return Verdict(False, "no noise was injected: these are optimised weights"), {}
    if run.loss is None or run.data is None:
        return Verdict(None, "needs the loss and the training data too: loss= and data="), {}
    faults = _find_wrong_num_data(run, numbers, advice)
    try:
        parameters = parameter_reports(
            *(run.model, run.draws, run.stepper, run.loss, run.data),
            autocast=run.autocast,
            generators=getattr(run.stepper, "generators", ()),
        )
    except ValueError as error:
        return Verdict(False if faults else None, "; ".join([*faults, str(error)])), {}
    words, fine = words_of(run.stepper), list[str]()
    numbers["noise_ratio"] = ratio = _noise_ratio(parameters)
    thermostat = getattr(run.stepper.sampler, "thermostat", False)
    minibatches_dominate = ratio < noise.NEGLIGIBLE and not thermostat
    bound = "a thermostat allows any" if thermostat else f"at least {noise.NEGLIGIBLE}"
    (faults if minibatches_dominate else fine).append(f"{noise.describe_noise(ratio)} ({bound})")
    if minibatches_dominate:
        advice.append(noise.noise_advice(ratio, temperature, words))
    known = all(report.temperature is not None for report in parameters.values())
    if known:
        off, described = _describe_temperatures(parameters, numbers)
        (faults if off > MOST_OFF else fine).append(described)
        if not minibatches_dominate:
            advice += _remedies(numbers, words)
    elif not faults:
        return Verdict(None, f"{fine[0]}; a temperature needs at least 2 draws"), parameters
    if faults and fine:
        fine[0] = f"fine: {fine[0]}"
    return Verdict(not faults, "; ".join(faults + fine)), parameters


def _noise_ratio(parameters: Reports) -> float:
    """Injected over minibatch variance, of all weights together."""
    reports = parameters.values()
    injected = sum(report.size * report.noise.injected for report in reports)
    return noise.noise_ratio(injected, sum(one.size * one.noise.minibatch for one in reports))


def _describe_temperatures(parameters: Reports, numbers: Numbers) -> tuple[float, str]:
    """Share of the weights whose temperature is off, and which."""
    size = sum(report.size for report in parameters.values())
    off, blamed = 0.0, ""
    for way in ("too cold", "too hot"):
        names = [name for name, report in parameters.items() if _is_off(report, way)]
        share = sum(parameters[name].size for name in names) / size
        numbers[f"share_{way.replace(' ', '_')}"] = share
        off += share
        blamed += f", {way}: {listed(names)}" if names else ""
    right, least = percents(1 - off, 1 - MOST_OFF, digits=0)
    return off, (
        f"temperature right to a factor of {FACTOR} for {right} of the weights (at least {least})"
        f"{blamed}"
    )


def _is_off(report: ParameterReport, way: str) -> bool:
    """Whether even the near end of the interval is off by more than a factor of two."""
    found = report.temperature
    if found is None or found.verdict != way:
        return False
    return found.low > FACTOR * found.target or found.high < found.target / FACTOR


def _remedies(numbers: Numbers, words: LoopWords) -> Advice:
    """What to change where most weights are too cold, or too hot."""
    less = f", less {words.exploration}" if words.exploration else ""
    longer = f"sample longer (more {words.steps}{less})"
    remedies = {
        "share_too_cold": "the draws have not spread out to the temperature asked for: "
        f"{longer}, or raise {words.lr}",
        "share_too_hot": f"the draws are hotter than asked for: {longer}, lower {words.lr}, or "
        f"raise {words.batch_size}",
    }
    return [remedy for name, remedy in remedies.items() if numbers[name] > MOST_OFF]


def _find_wrong_num_data(run: TrainingRun, numbers: Numbers, advice: Advice) -> list[str]:
    """What is wrong with N: another in some groups, or N * loss is not the NLL of all data."""
    groups = run.stepper.sampler.param_groups
    given = sorted({float(group["num_data"]) for group in groups if "num_data" in group})
    faults: list[str] = []
    if len(given) > 1:
        faults.append(
            f"groups of the sampler have different num_data ({', '.join(f'{n:g}' for n in given)}),"
            " and one data set has one N"
        )
        advice.append("make all groups of the sampler with the same num_data")
    found = _ratio_of(run)
    if found is None:
        return faults
    numbers["loss_nll_cosine"] = found.cosine
    if found.cosine < SAME_DIRECTION:  # another loss, such as one with label smoothing
        return faults
    num_data = max(given, key=lambda n: max(n / found.num_data, found.num_data / n))  # the worst
    numbers["num_data_expected"] = found.num_data
    numbers["num_data_ratio"] = ratio = num_data / found.num_data
    if abs(ratio - 1) <= TOLERANCE:
        return faults
    heat = f"{max(ratio, 1 / ratio):.3g} times too {'hot' if ratio < 1 else 'cold'}"
    advice.append(
        f"make the sampler with num_data={found.num_data:.0f}, or scale the loss: N x loss must "
        "equal the negative log-likelihood of all data"
    )
    return [
        *faults,
        f"num_data={num_data:g}, but N x loss is the likelihood's NLL of all data for "
        f"N={found.num_data:.0f}, so that the posterior is {heat}",
    ]


def _ratio_of(run: TrainingRun) -> LikelihoodRatio | None:
    """The loss compared with the likelihood; None where that cannot be done."""
    if run.nll is None or run.loss is None or run.data is None:
        return None
    try:
        return likelihood_ratio(
            *(run.model, run.draws[-1], run.loss, run.nll, run.data),
            generators=getattr(run.stepper, "generators", ()),
        )
    except (ValueError, RuntimeError):  # the likelihood is not of these batches
        return None

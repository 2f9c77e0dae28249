"""Whether to believe a posterior: sampled or not, mixing or not, calibrated or not."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.chain import Chain
from csgmcmc.posterior.likelihoods import Categorical, Gaussian
from csgmcmc.posterior.predictive import ClassPredictive
from csgmcmc.posterior.thermometer import (
    ParameterReport,
    parameter_reports,
    sampling_temperature,
)
from csgmcmc.samplers import Sampler

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

Array = NDArray[np.float64]
Numbers = dict[str, float]
Advice = list[str]

MOST_PROBES = 500  # points on which predictions of draws are compared
R_HAT_BOUND = 1.1  # of function values, as Izmailov et al. 2021; more where that is but chance
NEGLIGIBLE = 0.1  # injected noise over that of the minibatches, below which theirs rules
FEWEST_DRAWS = 6  # of a group: with fewer in each of two, no R-hat is beyond chance
CHANCE = 0.99  # level of what may be chance
REPEATS = 200
ROUNDING = 1e-6  # nats that do not make a difference
CHANCE_PROBES = 15  # points that are enough to know what R-hat is by chance
REMEDIES = {
    "too cold": "the draws have not spread out to the temperature asked for: a longer sampling "
    "stage (less exploration, longer cycles), or a larger lr",
    "too hot": "the draws are hotter than asked for: a longer sampling stage, a smaller lr, or "
    "larger batches",
}


@dataclass(frozen=True)
class Verdict:
    """One answer: yes, no, or None where it cannot be told, and why."""

    holds: bool | None
    words: str

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "unknown"}[self.holds]
        return f"{answer}: {self.words}"


@dataclass(frozen=True, repr=False)
class Check:
    """What `Posterior.check` found.

    Attributes:
        sampling: is the injected noise what moves the draws, and are they as hot as asked for?
        mixing: do chains, or cycles, or halves of one, agree on what they predict?
        calibrated: are the probabilities honest, as far as so many points can tell?
        better: does the average beat the best of its draws?
        advice: what to change.
        numbers: all that was measured, by name. NLLs are for a data point, with all its labels.
        parameters: noise and temperature of each parameter tensor, with `chain=`.
    """

    sampling: Verdict
    mixing: Verdict
    calibrated: Verdict
    better: Verdict
    advice: Advice
    numbers: Numbers
    parameters: dict[str, ParameterReport] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name:<12}{getattr(self, name)}"
            for name in ("sampling", "mixing", "calibrated", "better")
        ]
        return "\n".join(lines + [f"{'change':<12}{advice}" for advice in self.advice])

    def __repr__(self) -> str:
        answers = ("sampling", "mixing", "calibrated", "better")
        listed = ", ".join(f"{name}={getattr(self, name).holds}" for name in answers)
        return f"Check({listed})"


def check(posterior: "Posterior", loader: Iterable[Any], chain: Chain | None) -> Check:
    """See `Posterior.check`."""
    if chain is not None and not isinstance(chain, Chain):
        raise ValueError(f"chain must be a Chain, got {chain!r}")
    numbers: Numbers = {}
    advice: Advice = []
    batches = list(loader)  # which are read more than once
    predictive = posterior.predict_loader(batches, members=True)
    if predictive.targets is None or predictive.members is None:
        raise ValueError("loader must give pairs of inputs and targets")
    scores = posterior.log_scores(batches).cpu().numpy()
    with np.errstate(divide="ignore"):
        mixed = scores + np.log(posterior.weights)[:, None]
    numbers["nll"] = float(-np.logaddexp.reduce(mixed, axis=0).mean())
    if isinstance(predictive, ClassPredictive):
        calibrated, values = _check_classes(posterior, predictive, numbers, advice)
    else:
        members = predictive.members.double().cpu().numpy()
        values = members.reshape(len(members), -1)
        calibrated = _check_regression(posterior, batches, numbers, advice)
    mixing = _check_mixing(posterior, values[:, _spread_out(values.shape[1])], numbers, advice)
    better = _check_average(scores, numbers, advice)
    sampling, parameters = _check_sampling(posterior, chain, numbers, advice)
    found = Check(sampling, mixing, calibrated, better, advice, numbers, parameters)
    Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
    return found


# Sampling


def _check_sampling(
    posterior: "Posterior", chain: Chain | None, numbers: Numbers, advice: Advice
) -> tuple[Verdict, dict[str, ParameterReport]]:
    if chain is None:
        return Verdict(None, "give check the chain that made the draws, as chain="), {}
    if not isinstance(chain.sampler, Sampler) or sampling_temperature(chain) == 0:
        return Verdict(False, "no noise was injected: these are optimised weights"), {}
    try:
        parameters = parameter_reports(posterior.model, posterior.draws, chain)
    except ValueError as error:
        return Verdict(None, str(error)), {}
    reports = list(parameters.values())
    size = sum(report.size for report in reports)
    injected = sum(report.size * report.noise.injected for report in reports) / size
    minibatch = sum(report.size * report.noise.minibatch for report in reports) / size
    ratio = injected / minibatch if minibatch else math.inf
    numbers["noise_ratio"] = ratio
    words = f"injected noise is {ratio:.2g} times that of the minibatches"
    # A thermostat makes up for the minibatches' noise, however large it is.
    ruled_by_minibatches = ratio < NEGLIGIBLE and not chain.sampler.thermostat
    if ruled_by_minibatches:
        advice.append(_advice_on_noise(chain, ratio))
    shares = {way: _judge(parameters, way, size) for way in REMEDIES}
    for way, (share, names) in shares.items():
        numbers[f"share_{way.replace(' ', '_')}"] = share
        words += f"; {way}: {_listed(names)}" if names else ""
        if share > 0.5 and not ruled_by_minibatches:
            advice.append(REMEDIES[way])
    if any(report.temperature is None for report in reports):
        return Verdict(None, f"{words}; a temperature needs at least 2 draws"), parameters
    off = sum(share for share, _ in shares.values())
    return Verdict(not ruled_by_minibatches and off <= 0.5, words), parameters


def _advice_on_noise(chain: Chain, ratio: float) -> str:
    """What to do where the minibatches' noise rules depends on how hot that makes the chain."""
    heated = sampling_temperature(chain) * (1 + 1 / ratio) if ratio else math.inf
    if heated < 0.5:
        return (
            "the temperature is so low that this is close to a snapshot ensemble: raise it, or the "
            "batch size, or lower lr"
        )
    return (
        f"the noise of the minibatches heats the chain to a temperature of up to {heated:.2g}: "
        "larger batches, a smaller lr, or gradient_variance="
    )


def _judge(parameters: dict[str, ParameterReport], way: str, size: int) -> tuple[float, list[str]]:
    """Share of the weights that are off by more than a factor of two, and their names."""
    names = []
    for name, report in parameters.items():
        found = report.temperature
        far = found is not None and (found.low > 2 * found.target or found.high < found.target / 2)
        if far and found is not None and found.verdict == way:
            names.append(name)
    return sum(parameters[name].size for name in names) / size, names


# Mixing


def _check_mixing(
    posterior: "Posterior", probes: Array, numbers: Numbers, advice: Advice
) -> Verdict:
    """R-hat and ESS of predictions: of chains where there are several, of cycles, or of halves."""
    chains = np.array([draw.chain_id for draw in posterior.draws])
    what, groups = "chains", chains
    if len(set(chains)) == 1:
        what, groups = "cycles", posterior.cycles
    if len(set(groups.tolist())) == 1:
        what, groups = "halves", (np.arange(len(probes)) * 2 // len(probes))
    arranged = diagnostics.cycles_as_chains(probes, groups)
    apart = _apart(numbers)
    if arranged.shape[0] < 2 or arranged.shape[1] < FEWEST_DRAWS:
        words = f"needs {FEWEST_DRAWS} draws in each of 2 {what} or more, has "
        return Verdict(None, f"{words}{arranged.shape[1]} in each of {arranged.shape[0]}{apart}")
    numbers["r_hat"] = _median_r_hat(arranged)
    numbers["r_hat_by_chance"] = _r_hat_by_chance(arranged)
    numbers["ess"] = float(np.nanmedian(diagnostics.effective_sample_size(arranged)))
    holds = not numbers["r_hat"] > max(R_HAT_BOUND, numbers["r_hat_by_chance"])
    if not holds:
        advice.append(
            f"the {what} predict differently: more and longer {what} average over more of the "
            "posterior; do not read the draws of one as all of it"
        )
    words = f"R-hat of predictions between {what} {numbers['r_hat']:.2f}, by chance up to "
    words += f"{numbers['r_hat_by_chance']:.2f}"
    if arranged.shape[1] >= 10:  # of fewer it is but noise
        words += f", ESS {numbers['ess']:.0f} of {len(posterior.draws)} draws"
    return Verdict(holds, words + apart)


def _median_r_hat(arranged: Array) -> float:
    """Median over the points; 1 where no draw differs from another."""
    r_hat = diagnostics.r_hat(arranged)
    return float(np.nanmedian(r_hat)) if not np.isnan(r_hat).all() else 1.0


def _r_hat_by_chance(arranged: Array) -> float:
    """What R-hat may be, at a level of 0.99, if it does not matter which group a draw is in."""
    generator = np.random.default_rng(0)
    some = arranged[:, :, :: max(1, arranged.shape[2] // CHANCE_PROBES)]
    pooled = some.reshape(-1, some.shape[2])
    found = [
        _median_r_hat(generator.permutation(pooled).reshape(some.shape)) for _ in range(REPEATS)
    ]
    return float(np.quantile(found, CHANCE))


def _compare_functions(members: Array, cycles: NDArray, numbers: Numbers) -> None:
    probes = members[:, _spread_out(members.shape[1])]
    for name, matrix in (
        ("disagreement", diagnostics.disagreement(probes)),
        ("kl", diagnostics.kl_divergence(probes)),
    ):
        found = diagnostics.within_and_between(matrix, cycles)
        numbers[f"{name}_within_cycles"] = found.within
        numbers[f"{name}_between_cycles"] = found.between


def _apart(numbers: Numbers) -> str:
    """How much draws disagree, as far as it is known."""
    shares = {
        "within cycles": numbers.get("disagreement_within_cycles", math.nan),
        "between them": numbers.get("disagreement_between_cycles", math.nan),
    }
    known = [f"{_percent(s)} {where}" for where, s in shares.items() if not math.isnan(s)]
    return f"; draws disagree on {', '.join(known)}" if known else ""


# Calibration


def _check_classes(
    posterior: "Posterior", predictive: ClassPredictive, numbers: Numbers, advice: Advice
) -> tuple[Verdict, Array]:
    """Calibration of the probabilities; also the members' probabilities of the labels."""
    forecasts, members = predictive.probs_numpy(), predictive.member_probs_numpy()
    labels = predictive.labels()
    if isinstance(posterior.likelihood, Categorical):
        counts = labels != posterior.likelihood.ignore_index
        forecasts, members, labels = forecasts[counts], members[:, counts], labels[counts]
    _compare_functions(members, posterior.cycles, numbers)
    numbers["error"] = 1 - diagnostics.accuracy(forecasts, labels)
    numbers["brier"] = diagnostics.brier_score(forecasts, labels)
    numbers["ece"] = diagnostics.calibration_error(forecasts, labels, binning="mass")
    numbers["ece_by_chance"] = _calibration_error_by_chance(forecasts)
    confidence = float(forecasts.max(axis=1).mean())
    holds = numbers["ece"] <= numbers["ece_by_chance"]
    words = (
        f"calibration error {numbers['ece']:.3f}, by chance up to {numbers['ece_by_chance']:.3f}; "
        f"error {_percent(numbers['error'])}, NLL {numbers['nll']:.3f}"
    )
    if not holds:
        too_sure = confidence > 1 - numbers["error"]
        words += f"; {'over' if too_sure else 'under'}confident"
        advice.append(
            "more draws and cycles, or a higher temperature, make it less sure"
            if too_sure
            else "longer training, or a lower temperature, makes it surer"
        )
    return Verdict(holds, words), members[:, np.arange(len(labels)), labels]


def _calibration_error_by_chance(forecasts: Array) -> float:
    """What the calibration error may be, at a level of 0.99, if the forecasts are honest.

    Labels are drawn from the forecasts themselves (Broecker and Smith 2007).
    """
    generator = np.random.default_rng(0)
    cumulative = forecasts.cumsum(axis=1) / forecasts.sum(axis=1, keepdims=True)
    errors = []
    for _ in range(REPEATS):
        drawn = (generator.random((len(forecasts), 1)) > cumulative).sum(axis=1)
        drawn = np.minimum(drawn, forecasts.shape[1] - 1)
        errors.append(diagnostics.calibration_error(forecasts, drawn, binning="mass"))
    return float(np.quantile(errors, CHANCE))


def _check_regression(
    posterior: "Posterior", batches: list[Any], numbers: Numbers, advice: Advice
) -> Verdict:
    """Whether intervals of 90% of the averaged prediction hold 90% of the targets."""
    likelihood = posterior.likelihood
    assert isinstance(likelihood, Gaussian)  # noqa: S101  (of the likelihoods the one with numbers)
    below = []
    for parts in posterior.with_targets(batches, likelihood.cumulative):
        for part in parts:
            ranks = np.tensordot(posterior.weights, part.cpu().numpy(), axes=1)
            below.append(ranks.reshape(len(ranks), -1))
    ranks = np.concatenate(below)
    numbers["coverage_90"] = float(((ranks >= 0.05) & (ranks <= 0.95)).mean())
    tail = (1 - CHANCE) / 2  # the outputs of one point are not independent: points are counted
    low, high = stats.binom.ppf([tail, 1 - tail], len(ranks), 0.9) / len(ranks)
    holds = bool(low <= numbers["coverage_90"] <= high)
    if not holds:
        width = "narrow" if numbers["coverage_90"] < low else "wide"
        advice.append(
            f"the predictive intervals are too {width}: look at the variance of the noise, then at "
            "the temperature"
        )
    words = f"intervals of 90% hold {_percent(numbers['coverage_90'])} of the targets, by chance "
    words += f"{_percent(low)} to {_percent(high)}; NLL {numbers['nll']:.3f}"
    return Verdict(holds, words)


# The average


def _check_average(scores: Array, numbers: Numbers, advice: Advice) -> Verdict:
    alone = -scores.mean(axis=1)
    numbers["nll_best_draw"] = float(alone.min())
    numbers["nll_mean_of_draws"] = float(alone.mean())
    if len(alone) == 1:
        return Verdict(None, f"NLL {numbers['nll']:.3f}, of the only draw")
    holds = numbers["nll"] < numbers["nll_best_draw"] - ROUNDING
    if not holds:
        advice.append("one draw does as well as all: look at the worst draws, or at more cycles")
    words = f"NLL {numbers['nll']:.3f}, of the best single draw {numbers['nll_best_draw']:.3f}"
    return Verdict(holds, words)


def _spread_out(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, MOST_PROBES).astype(np.int64))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"

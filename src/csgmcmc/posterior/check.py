"""Whether to believe a posterior: sampled or not, mixing or not, calibrated or not."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats
from torch import Tensor

from csgmcmc import diagnostics
from csgmcmc.chain import Chain
from csgmcmc.posterior.predictive import ClassPredictive, GaussianPredictive
from csgmcmc.posterior.thermometer import ParameterReport, parameter_reports
from csgmcmc.samplers import Sampler

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

Array = NDArray[np.float64]

MOST_PROBES = 500  # points on which predictions of draws are compared
R_HAT_BOUND = 1.1  # of function values, as Izmailov et al. 2021
SNAPSHOT_RATIO = 0.1  # injected noise over minibatch noise below which sampling is but a name
CHANCE = 0.99  # level of what a calibrated forecast may show
REPEATS = 200
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
        sampling: is the injected noise what moves the draws?
        mixing: do chains, or cycles, agree on what they predict?
        calibrated: are the probabilities honest?
        better: does the average beat the best of its draws?
        advice: what to change.
        numbers: all that was measured, by name.
        parameters: noise and temperature of each parameter tensor, with `chain=`.
    """

    sampling: Verdict
    mixing: Verdict
    calibrated: Verdict
    better: Verdict
    advice: list[str]
    numbers: dict[str, float]
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
    predictive = posterior.predict_loader(loader, members=True)
    if predictive.targets is None or predictive.members is None:
        raise ValueError("loader must give pairs of inputs and targets")
    numbers: dict[str, float] = {}
    advice: list[str] = []
    if isinstance(predictive, ClassPredictive):
        forecasts, members = predictive.forecasts(), predictive.member_forecasts()
        labels = predictive.labels()
        calibrated = _check_classes(forecasts, labels, numbers, advice)
        alone = [diagnostics.negative_log_likelihood(member, labels) for member in members]
        values = members[:, np.arange(len(labels)), labels]
        _compare_functions(members, posterior.cycles, numbers)
    else:
        assert isinstance(predictive, GaussianPredictive)  # noqa: S101  (there are two kinds)
        scores = posterior.log_scores(loader).cpu().numpy()
        values = _array(predictive.members).reshape(len(posterior.draws), -1)
        calibrated = _check_regression(posterior, predictive, scores, numbers, advice)
        alone = list(-scores.mean(axis=1))
    better = _check_average(alone, numbers, advice)
    probes = values[:, _spread_out(values.shape[1])]
    mixing = _check_mixing(posterior, probes, numbers, advice)
    parameters: dict[str, ParameterReport] = {}
    if chain is None:
        sampling = Verdict(None, "give check the chain that made the draws, as chain=")
    elif not isinstance(chain.sampler, Sampler) or _is_cold(chain):
        sampling = Verdict(False, "no noise was injected: these are optimised weights")
    else:
        parameters = parameter_reports(posterior.model, posterior.draws, chain)
        sampling = _check_sampling(parameters, numbers, advice)
    found = Check(sampling, mixing, calibrated, better, advice, numbers, parameters)
    Console().print(str(found), highlight=False, markup=False, soft_wrap=True)
    return found


def _check_sampling(
    parameters: dict[str, ParameterReport], numbers: dict[str, float], advice: list[str]
) -> Verdict:
    """The noise must be the sampler's own, and most weights must be about as hot as asked for."""
    reports = parameters.values()
    injected = sum(report.size * report.noise.injected for report in reports)
    minibatch = sum(report.size * report.noise.minibatch for report in reports)
    ratio = injected / minibatch if minibatch else math.inf
    numbers["noise_ratio"] = ratio
    words = f"injected noise is {ratio:.2g} times that of the minibatches"
    if ratio < SNAPSHOT_RATIO:
        advice.append(
            "raise the temperature or the batch size, or lower lr, so that the injected noise "
            "counts: as it is, this is close to a snapshot ensemble"
        )
    size = sum(report.size for report in reports)
    far = {}
    for way, remedy in REMEDIES.items():
        names = [name for name, report in parameters.items() if _is_off(report, way)]
        far[way] = sum(parameters[name].size for name in names) / size
        numbers[f"share_{way.replace(' ', '_')}"] = far[way]
        if names:
            words += f"; {way}: {_listed(names)}"
        if far[way] > 0.5:
            advice.append(remedy)
    return Verdict(ratio >= SNAPSHOT_RATIO and sum(far.values()) <= 0.5, words)


def _is_off(report: ParameterReport, way: str) -> bool:
    """Whether a parameter is too hot, or too cold, by more than a factor of two."""
    found = report.temperature
    if found is None or found.verdict != way:
        return False
    return found.low > 2 * found.target or found.high < found.target / 2


def _check_mixing(
    posterior: "Posterior", probes: Array, numbers: dict[str, float], advice: list[str]
) -> Verdict:
    """R-hat and ESS of predictions: of chains where there are several, else of cycles."""
    chains = np.array([draw.chain for draw in posterior.draws])
    what, groups = ("chains", chains) if len(set(chains)) > 1 else ("cycles", posterior.cycles)
    apart = ""
    if "disagreement_between_cycles" in numbers:
        within, between = (numbers[f"disagreement_{w}_cycles"] for w in ("within", "between"))
        apart = f"; draws disagree on {_percent(within)} of points within cycles"
        apart += f", on {_percent(between)} between them"
    arranged = diagnostics.cycles_as_chains(probes, groups)
    if arranged.shape[0] < 2 or arranged.shape[1] < 4:
        words = f"needs 4 draws in each of at least 2 {what}, has {arranged.shape[1]} in each of "
        return Verdict(None, f"{words}{arranged.shape[0]}{apart}")
    r_hat = diagnostics.r_hat(arranged)
    numbers["r_hat_median"] = float(np.nanmedian(r_hat))
    numbers["r_hat_share_below_bound"] = float(np.mean(r_hat[~np.isnan(r_hat)] < R_HAT_BOUND))
    numbers["ess_median"] = float(np.nanmedian(diagnostics.effective_sample_size(arranged)))
    holds = numbers["r_hat_share_below_bound"] >= 0.9
    if not holds:
        advice.append(
            f"the {what} predict differently: more and longer {what} average over more of the "
            "posterior; do not read the draws of one as all of it"
        )
    words = f"R-hat of predictions between {what} {numbers['r_hat_median']:.2f} (median)"
    if arranged.shape[1] >= 10:  # of fewer it is but noise
        words += f", ESS {numbers['ess_median']:.0f} of {len(posterior.draws)} draws"
    return Verdict(holds, words + apart)


def _check_classes(
    forecasts: Array, labels: NDArray, numbers: dict[str, float], advice: list[str]
) -> Verdict:
    numbers["nll"] = diagnostics.negative_log_likelihood(forecasts, labels)
    numbers["error"] = 1 - diagnostics.accuracy(forecasts, labels)
    numbers["brier"] = diagnostics.brier_score(forecasts, labels)
    numbers["ece"] = diagnostics.calibration_error(forecasts, labels, binning="mass")
    numbers["ece_by_chance"] = _error_by_chance(forecasts)
    confidence = float(forecasts.max(axis=1).mean())
    holds = numbers["ece"] <= numbers["ece_by_chance"]
    words = (
        f"calibration error {numbers['ece']:.3f}, up to {numbers['ece_by_chance']:.3f} by chance; "
        f"error {_percent(numbers['error'])}, NLL {numbers['nll']:.3f}"
    )
    if not holds:
        too_sure = confidence > 1 - numbers["error"]
        words += f"; {'over' if too_sure else 'under'}confident"
        advice.append(
            "more draws and cycles, or a higher temperature, make it less sure"
            if too_sure
            else "a lower temperature makes it surer"
        )
    return Verdict(holds, words)


def _error_by_chance(forecasts: Array) -> float:
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
    posterior: "Posterior",
    predictive: GaussianPredictive,
    scores: Array,
    numbers: dict[str, float],
    advice: list[str],
) -> Verdict:
    """Whether intervals of 90% hold 90% of the targets."""
    targets = _array(predictive.targets)
    offsets = (targets - _array(predictive.mean)).ravel()
    scaled = np.abs(offsets) / np.sqrt(_array(predictive.variance)).ravel()
    log_weights = np.log(np.maximum(posterior.weights, 1e-300))[:, None]
    numbers["nll"] = float(-np.logaddexp.reduce(scores + log_weights, axis=0).mean())
    numbers["rmse"] = float(np.sqrt((offsets**2).mean()))
    numbers["coverage_90"] = float((scaled <= stats.norm.ppf(0.95)).mean())
    tail = (1 - CHANCE) / 2
    low, high = stats.binom.ppf([tail, 1 - tail], scaled.size, 0.9) / scaled.size
    holds = bool(low <= numbers["coverage_90"] <= high)
    if not holds:
        narrow = numbers["coverage_90"] < low
        advice.append(
            "the predictive intervals are too " + ("narrow" if narrow else "wide") + ": look at "
            "the variance of the noise, then at the temperature"
        )
    words = f"intervals of 90% hold {_percent(numbers['coverage_90'])} of the targets, by chance "
    words += f"{_percent(low)} to {_percent(high)}; NLL {numbers['nll']:.3f}"
    return Verdict(holds, words)


def _check_average(alone: list[float], numbers: dict[str, float], advice: list[str]) -> Verdict:
    numbers["nll_best_draw"] = float(np.min(alone))
    numbers["nll_mean_of_draws"] = float(np.mean(alone))
    holds = len(alone) > 1 and numbers["nll"] < numbers["nll_best_draw"]
    if not holds:
        advice.append("one draw does as well as all: look at the worst draws, or at more cycles")
    words = f"NLL {numbers['nll']:.3f}, of the best single draw {numbers['nll_best_draw']:.3f}"
    return Verdict(holds, words)


def _compare_functions(members: Array, cycles: NDArray, numbers: dict[str, float]) -> None:
    probes = members[:, _spread_out(members.shape[1])]
    for name, matrix in (
        ("disagreement", diagnostics.disagreement(probes)),
        ("kl", diagnostics.kl_divergence(probes)),
    ):
        found = diagnostics.within_and_between(matrix, cycles)
        numbers[f"{name}_within_cycles"] = found.within
        numbers[f"{name}_between_cycles"] = found.between


def _is_cold(chain: Chain) -> bool:
    return not any(group["initial_temperature"] > 0 for group in chain.sampler.param_groups)


def _spread_out(count: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, count - 1, MOST_PROBES).astype(np.int64))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _array(tensor: Tensor | None) -> Array:
    assert tensor is not None  # noqa: S101  (asked for, or checked before)
    return tensor.detach().cpu().double().numpy()

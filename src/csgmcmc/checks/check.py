"""Whether to believe a posterior: sampling, mixing, calibration, and the gain over one draw.

Judges an `Evaluation`: plain arrays of what every draw predicts on held-out data.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.checks import noise
from csgmcmc.checks.evaluation import Array, Evaluation, TrainingRun
from csgmcmc.checks.likelihood import SAME_DIRECTION, TOLERANCE, likelihood_ratio
from csgmcmc.checks.parameter_temperatures import ParameterReport, parameter_reports
from csgmcmc.checks.run import evenly_spaced, sampling_temperature

Numbers = dict[str, float]
Advice = list[str]

MOST_PROBES = 500  # points on which predictions of draws are compared
R_HAT_BOUND = 1.1  # of function values, as Izmailov et al. 2021, or what chance allows if more
FEWEST_DRAWS = 6  # of a group: with fewer in each of two, no R-hat is significant
CHANCE = 0.99  # level of the simulated null distributions
REPEATS = 200  # simulations of each
ROUNDING = 1e-6  # nats that do not make a difference
CHANCE_PROBES = 15  # points that suffice to simulate R-hat
VERDICTS = ("sampling", "mixing", "calibrated", "better")
REMEDIES = {
    "too cold": "the draws have not spread out to the temperature asked for: sample longer (less "
    "exploration, longer cycles), or raise lr",
    "too hot": "the draws are hotter than asked for: sample longer, lower lr, or raise the batch "
    "size",
}


@dataclass(frozen=True)
class Verdict:
    """One answer: yes, no, or None if it is unknown; and why."""

    holds: bool | None
    words: str

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "unknown"}[self.holds]
        return f"{answer}: {self.words}"


@dataclass(frozen=True, repr=False)
class Check:
    """What `Posterior.check` found.

    Attributes:
        sampling: is N right, does injected noise dominate, and do the draws have the temperature
            asked for?
        mixing: do the predictions of chains, or cycles, or the halves of one, agree?
        calibrated: are the probabilities calibrated, as far as the number of points can show?
        better: does the average beat the best of its draws?
        advice: what to change.
        numbers: all that was measured, by name. The NLL of a data point is over all its targets
            together (labels, pixels, tokens, outputs); NLLs are reported per target, the unit of
            the error: the sum over the data, divided by the number of all targets.
        parameters: noise and temperature of each parameter tensor, with `stepper=`.
    """

    sampling: Verdict
    mixing: Verdict
    calibrated: Verdict
    better: Verdict
    advice: Advice
    numbers: Numbers
    parameters: dict[str, ParameterReport] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name:<12}{getattr(self, name)}" for name in VERDICTS]
        return "\n".join(lines + [f"{'change':<12}{advice}" for advice in self.advice])

    def __repr__(self) -> str:
        answers = [f"{name}={getattr(self, name).holds}" for name in VERDICTS]
        return f"Check({', '.join(answers)})"


def check_draws(evaluation: Evaluation, run: TrainingRun | None = None) -> Check:
    """Judge draws by their predictions and, with `run`, by how they were sampled."""
    numbers: Numbers = {}
    advice: Advice = []
    with np.errstate(divide="ignore"):
        weighted = evaluation.log_scores + np.log(evaluation.weights)[:, None]
    numbers["targets_per_point"] = evaluation.targets_per_point
    per_target = 1 / evaluation.targets_per_point
    numbers["nll"] = float(-np.logaddexp.reduce(weighted, axis=0).mean() * per_target)
    check_predictions = _check_classes if evaluation.means is None else _check_regression
    calibrated, values = check_predictions(evaluation, numbers, advice)
    mixing = _check_mixing(evaluation, _probes(values), numbers, advice)
    better = _check_average(per_target * evaluation.log_scores, numbers, advice)
    sampling, parameters = _check_sampling(run, numbers, advice)
    return Check(sampling, mixing, calibrated, better, advice, numbers, parameters)


def _check_sampling(
    run: TrainingRun | None, numbers: Numbers, advice: Advice
) -> tuple[Verdict, dict[str, ParameterReport]]:
    if run is None:
        return Verdict(None, "needs the run that made the draws: stepper=, loss= and data="), {}
    temperature = sampling_temperature(run.stepper)
    if temperature == 0:
        return Verdict(False, "no noise was injected: these are optimised weights"), {}
    if run.loss is None or run.data is None:
        return Verdict(None, "needs the loss and the training data too: loss= and data="), {}
    wrong = _check_num_data(run, numbers, advice)
    try:
        parameters = parameter_reports(
            *(run.model, run.draws, run.stepper, run.loss, run.data),
            autocast=run.autocast,
            generators=getattr(run.stepper, "generators", ()),
        )
    except ValueError as error:
        return Verdict(False if wrong else None, f"{wrong}{error}"), {}
    reports = list(parameters.values())
    size = sum(report.size for report in reports)
    injected = sum(report.size * report.noise.injected for report in reports)
    minibatch = sum(report.size * report.noise.minibatch for report in reports)
    numbers["noise_ratio"] = ratio = noise.noise_ratio(injected, minibatch)
    words = wrong + noise.describe_noise(ratio)
    thermostat = getattr(run.stepper.sampler, "thermostat", False)
    minibatches_dominate = ratio < noise.NEGLIGIBLE and not thermostat
    if minibatches_dominate:
        advice.append(noise.noise_advice(ratio, temperature))
    shares = {way: _judge(parameters, way, size) for way in REMEDIES}
    for way, (share, names) in shares.items():
        numbers[f"share_{way.replace(' ', '_')}"] = share
        words += f"; {way}: {_listed(names)}" if names else ""
        if share > 0.5 and not minibatches_dominate:
            advice.append(REMEDIES[way])
    if any(report.temperature is None for report in reports) and not wrong:
        return Verdict(None, f"{words}; a temperature needs at least 2 draws"), parameters
    off = sum(share for share, _ in shares.values())
    holds = not wrong and not minibatches_dominate and off <= 0.5
    return Verdict(holds, words), parameters


def _check_num_data(run: TrainingRun, numbers: Numbers, advice: Advice) -> str:
    """What is wrong with N, if anything: whether N * loss is the likelihood's NLL of all data."""
    if run.nll is None or run.loss is None or run.data is None:
        return ""
    try:
        found = likelihood_ratio(
            *(run.model, run.draws[-1], run.loss, run.nll, run.data),
            generators=getattr(run.stepper, "generators", ()),
        )
    except (ValueError, RuntimeError):  # the likelihood is not of these batches
        return ""
    if found is None:
        return ""
    numbers["loss_nll_cosine"] = found.cosine
    if found.cosine < SAME_DIRECTION:  # another loss, such as one with label smoothing
        return ""
    num_data = float(run.stepper.sampler.param_groups[0]["num_data"])
    numbers["num_data_expected"] = found.num_data
    numbers["num_data_ratio"] = ratio = num_data / found.num_data
    if abs(ratio - 1) <= TOLERANCE:
        return ""
    heat = f"{max(ratio, 1 / ratio):.3g} times too {'hot' if ratio < 1 else 'cold'}"
    advice.append(
        f"make the sampler with num_data={found.num_data:.0f}, or scale the loss: N x loss must "
        "equal the negative log-likelihood of all data"
    )
    return (
        f"num_data={num_data:g}, but N x loss is the likelihood's NLL of all data for "
        f"N={found.num_data:.0f}, so that the posterior is {heat}; "
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


def _check_mixing(
    evaluation: Evaluation, probes: Array, numbers: Numbers, advice: Advice
) -> Verdict:
    """R-hat and ESS of predictions: between chains, else between cycles, else between halves."""
    what, groups = "chains", evaluation.chain_ids
    if len(set(groups.tolist())) == 1:
        what, groups = "cycles", evaluation.cycles
    if len(set(groups.tolist())) == 1:
        what, groups = "halves", (np.arange(len(probes)) * 2 // len(probes))
    arranged = diagnostics.cycles_as_chains(probes, groups)
    disagreement = _describe_disagreement(numbers)
    if arranged.shape[0] < 2 or arranged.shape[1] < FEWEST_DRAWS:
        words = f"needs {FEWEST_DRAWS} draws in each of 2 {what} or more, has "
        words += f"{arranged.shape[1]} in each of {arranged.shape[0]}"
        return Verdict(None, words + disagreement)
    numbers["r_hat"] = _median_r_hat(arranged)
    numbers["r_hat_by_chance"] = _r_hat_by_chance(arranged)
    numbers["ess"] = float(np.nanmedian(diagnostics.effective_sample_size(arranged)))
    holds = not numbers["r_hat"] > max(R_HAT_BOUND, numbers["r_hat_by_chance"])
    if not holds:
        advice.append(
            f"the {what} predict differently: more and longer {what} average over more of the "
            "posterior; the draws of one do not represent all of it"
        )
    words = f"R-hat of predictions between {what} {numbers['r_hat']:.2f}, by chance up to "
    words += f"{numbers['r_hat_by_chance']:.2f}"
    if arranged.shape[1] >= 10:  # of fewer draws the estimate is only noise
        words += f", ESS {numbers['ess']:.0f} of {len(probes)} draws"
    return Verdict(holds, words + disagreement)


def _median_r_hat(arranged: Array) -> float:
    """Median over the points; 1 where no draw differs from another."""
    r_hat = diagnostics.r_hat(arranged)
    return float(np.nanmedian(r_hat)) if not np.isnan(r_hat).all() else 1.0


def _r_hat_by_chance(arranged: Array) -> float:
    """The 0.99 quantile of R-hat if draws are assigned to the groups at random."""
    generator = np.random.default_rng(0)
    some = arranged[:, :, :: max(1, arranged.shape[2] // CHANCE_PROBES)]
    pooled = some.reshape(-1, some.shape[2])
    shuffled = (generator.permutation(pooled).reshape(some.shape) for _ in range(REPEATS))
    return float(np.quantile([_median_r_hat(each) for each in shuffled], CHANCE))


def _compare_functions(members: Array, cycles: NDArray, numbers: Numbers) -> None:
    probes = _probes(members)
    measures = {"disagreement": diagnostics.disagreement, "kl": diagnostics.kl_divergence}
    for name, measure in measures.items():
        found = diagnostics.within_and_between(measure(probes), cycles)
        numbers[f"{name}_within_cycles"] = found.within
        numbers[f"{name}_between_cycles"] = found.between


def _describe_disagreement(numbers: Numbers) -> str:
    """How often draws disagree, as far as it is known."""
    shares = {
        "within cycles": numbers.get("disagreement_within_cycles", math.nan),
        "between them": numbers.get("disagreement_between_cycles", math.nan),
    }
    known = [f"{_percent(s)} {where}" for where, s in shares.items() if not math.isnan(s)]
    return f"; draws disagree on {', '.join(known)}" if known else ""


def _check_classes(
    evaluation: Evaluation, numbers: Numbers, advice: Advice
) -> tuple[Verdict, Array]:
    """Calibration of the probabilities; also the probabilities of the labels under each draw."""
    forecasts, members, labels = evaluation.probs, evaluation.member_probs, evaluation.labels
    if forecasts is None or members is None or labels is None:
        raise ValueError("an evaluation needs probs, member_probs and labels, or means and ranks")
    _compare_functions(members, evaluation.cycles, numbers)
    numbers["error"] = 1 - diagnostics.accuracy(forecasts, labels)
    numbers["brier"] = diagnostics.brier_score(forecasts, labels)
    numbers["ece"] = diagnostics.calibration_error(forecasts, labels, binning="mass")
    numbers["ece_by_chance"] = _calibration_error_by_chance(forecasts)
    confidence = float(forecasts.max(axis=1).mean())
    holds = numbers["ece"] <= numbers["ece_by_chance"]
    words = (
        f"calibration error {numbers['ece']:.3f}, by chance up to {numbers['ece_by_chance']:.3f}; "
        f"error {_percent(numbers['error'])}, {_describe_nll(numbers)}"
    )
    if not holds:
        overconfident = confidence > 1 - numbers["error"]
        words += f"; {'over' if overconfident else 'under'}confident"
        advice.append(
            "more draws and cycles, or a higher temperature, make it less confident"
            if overconfident
            else "longer training, or a lower temperature, makes it more confident"
        )
    return Verdict(holds, words), members[:, np.arange(len(labels)), labels]


def _calibration_error_by_chance(forecasts: Array) -> float:
    """The 0.99 quantile of the calibration error of calibrated forecasts.

    Labels are simulated from the forecasts themselves (Broecker and Smith 2007).
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
    evaluation: Evaluation, numbers: Numbers, advice: Advice
) -> tuple[Verdict, Array]:
    """Whether 90% intervals of the averaged prediction contain 90% of the targets; the means."""
    means, ranks = evaluation.means, evaluation.ranks
    if means is None or ranks is None:
        raise ValueError("an evaluation needs probs, member_probs and labels, or means and ranks")
    numbers["coverage_90"] = float(((ranks >= 0.05) & (ranks <= 0.95)).mean())
    tail = (1 - CHANCE) / 2  # outputs of one point are dependent: points count
    low, high = stats.binom.ppf([tail, 1 - tail], len(ranks), 0.9) / len(ranks)
    holds = bool(low <= numbers["coverage_90"] <= high)
    if not holds:
        width = "narrow" if numbers["coverage_90"] < low else "wide"
        advice.append(
            f"the predictive intervals are too {width}: check the variance of the noise, then the "
            "temperature"
        )
    words = f"90% intervals contain {_percent(numbers['coverage_90'])} of the targets, by chance "
    words += f"{_percent(low)} to {_percent(high)}; {_describe_nll(numbers)}"
    return Verdict(holds, words), means


def _check_average(scores: Array, numbers: Numbers, advice: Advice) -> Verdict:
    alone = -scores.mean(axis=1)
    numbers["nll_best_draw"] = float(alone.min())
    numbers["nll_mean_of_draws"] = float(alone.mean())
    if len(alone) == 1:
        return Verdict(None, f"{_describe_nll(numbers)}, of the only draw")
    holds = numbers["nll"] < numbers["nll_best_draw"] - ROUNDING
    if not holds:
        advice.append("one draw is as good as all: check the worst draws, or run more cycles")
    words = f"{_describe_nll(numbers)}, of the best single draw {numbers['nll_best_draw']:.3f}"
    return Verdict(holds, words)


def _describe_nll(numbers: Numbers) -> str:
    unit = " per target" if numbers["targets_per_point"] != 1 else ""
    return f"NLL {numbers['nll']:.3f}{unit}"


def _probes(values: Array) -> Array:
    return values[:, evenly_spaced(values.shape[1], MOST_PROBES)]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"

"""Whether to believe a posterior: sampling, mixing, calibration, and the gain over one draw.

Judges an `Evaluation`: plain arrays of what every draw predicts on held-out data.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.checks.evaluation import Array, Evaluation, TrainingRun
from csgmcmc.checks.parameter_temperatures import ParameterReport
from csgmcmc.checks.run import evenly_spaced
from csgmcmc.checks.sampling import check_sampling
from csgmcmc.checks.verdict import (
    ROUNDING,
    Advice,
    Numbers,
    Verdict,
    percents,
    told_apart,
    words_of,
)
from csgmcmc.stepper import LoopWords

MOST_PROBES = 500  # points on which predictions of draws are compared
R_HAT_BOUND = 1.1  # of function values, as Izmailov et al. 2021, or what chance allows if more
FEWEST_DRAWS = 6  # of a group: with fewer in each of two, no R-hat is significant
CHANCE = 0.99  # level of the simulated null distributions
REPEATS = 200  # simulations of each
CHANCE_PROBES = 15  # points that suffice to simulate R-hat
VERDICTS = ("sampling", "mixing", "calibrated", "better")


@dataclass(frozen=True, repr=False)
class Check:
    """What `Posterior.check` found.

    Attributes:
        sampling: is N right, does injected noise dominate, and do the draws have the temperature
            asked for?
        mixing: do the predictions of chains, or cycles, or the halves of one, agree?
        calibrated: are the probabilities calibrated, as far as the number of points can show?
        better: does the average beat the best of its draws, if that is picked on other data?
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
    words = words_of(None if run is None else run.stepper)
    numbers["targets_per_point"] = evaluation.targets_per_point
    numbers["nll"] = _nll(evaluation, evaluation.weights)
    check_predictions = _check_classes if evaluation.means is None else _check_regression
    calibrated, values = check_predictions(evaluation, numbers, advice, words)
    mixing = _check_mixing(evaluation, _probes(values), numbers, advice, words)
    better = _check_average(evaluation, numbers, advice, words)
    sampling, parameters = check_sampling(run, numbers, advice)
    return Check(sampling, mixing, calibrated, better, advice, numbers, parameters)


def _check_mixing(
    evaluation: Evaluation, probes: Array, numbers: Numbers, advice: Advice, names: LoopWords
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
    by_chance = numbers["r_hat_by_chance"] > R_HAT_BOUND
    bound = numbers["r_hat_by_chance"] if by_chance else R_HAT_BOUND
    holds = not numbers["r_hat"] > bound + ROUNDING
    if not holds:
        advice.append(
            f"the {what} predict differently, and the draws of one do not represent all of the "
            f"posterior: keep them all, and give more {names.steps}"
        )
    found, most = told_apart(numbers["r_hat"], bound, digits=2)
    words = f"R-hat of predictions between {what} {found} (at most {most}"
    words += " by chance)" if by_chance else ")"
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
    known = [f"{percents(s)[0]} {where}" for where, s in shares.items() if not math.isnan(s)]
    return f"; draws disagree on {', '.join(known)}" if known else ""


def _check_classes(
    evaluation: Evaluation, numbers: Numbers, advice: Advice, names: LoopWords
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
    holds = numbers["ece"] <= numbers["ece_by_chance"] + ROUNDING
    found, most = told_apart(numbers["ece"], numbers["ece_by_chance"])
    words = f"calibration error {found} (at most {most} by chance)"
    if not holds:
        overconfident = confidence > 1 - numbers["error"]
        words += f", {'over' if overconfident else 'under'}confident"
        advice.append(
            f"more {names.cycles}, or a higher {names.temperature}, make it less confident"
            if overconfident
            else f"more {names.steps}, or a lower {names.temperature}, make it more confident"
        )
    words += f"; error {percents(numbers['error'])[0]}, NLL {_with_unit(numbers)}"
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
    evaluation: Evaluation, numbers: Numbers, advice: Advice, names: LoopWords
) -> tuple[Verdict, Array]:
    """Whether 90% intervals of the averaged prediction contain 90% of the targets; the means."""
    means, ranks = evaluation.means, evaluation.ranks
    if means is None or ranks is None:
        raise ValueError("an evaluation needs probs, member_probs and labels, or means and ranks")
    numbers["coverage_90"] = float(((ranks >= 0.05) & (ranks <= 0.95)).mean())
    tail = (1 - CHANCE) / 2  # outputs of one point are dependent: points count
    low, high = stats.binom.ppf([tail, 1 - tail], len(ranks), 0.9) / len(ranks)
    covered = numbers["coverage_90"]
    holds = bool(low - ROUNDING <= covered <= high + ROUNDING)
    if not holds:
        advice.append(
            f"the predictive intervals are too {'narrow' if covered < low else 'wide'}: check the "
            f"variance of the noise, then {names.temperature}"
        )
    found, least, most = percents(covered, low, high)
    words = f"90% intervals contain {found} of the targets ({least} to {most} by chance); "
    words += f"NLL {_with_unit(numbers)}"
    return Verdict(holds, words), means


def _check_average(
    evaluation: Evaluation, numbers: Numbers, advice: Advice, names: LoopWords
) -> Verdict:
    """The average against single draws; the best is picked on one half for the other half."""
    scores = evaluation.log_scores / evaluation.targets_per_point
    alone = -scores.mean(axis=1)
    numbers["nll_best_draw"] = float(alone.min())
    numbers["nll_mean_of_draws"] = float(alone.mean())
    numbers["nll_picked_draw"] = _nll_of_picked_draw(scores)
    if len(alone) == 1:
        return Verdict(None, f"NLL {_with_unit(numbers)}, of the only draw")
    holds = numbers["nll"] < numbers["nll_picked_draw"] - ROUNDING
    if not holds:
        advice.append(_advice_on_average(evaluation, numbers, names))
    kinds = ("nll", "nll_mean_of_draws", "nll_best_draw", "nll_picked_draw")
    average, mean, best, picked = told_apart(*(numbers[kind] for kind in kinds))
    unit = " per target" if numbers["targets_per_point"] != 1 else ""
    return Verdict(
        holds,
        f"NLL{unit} of the average {average}, of the mean draw {mean}, of the best draw {best} "
        f"({picked} if it is picked on other data)",
    )


def _nll(evaluation: Evaluation, weights: Array) -> float:
    """NLL per target of the average with these weights."""
    with np.errstate(divide="ignore"):
        weighted = evaluation.log_scores + np.log(weights / weights.sum())[:, None]
    return float(-np.logaddexp.reduce(weighted, axis=0).mean() / evaluation.targets_per_point)


def _nll_of_picked_draw(scores: Array) -> float:
    """NLL of the best draw of one half of the points on the other half, and vice versa."""
    if scores.shape[1] < 2:
        return float(-scores.mean(axis=1).max())
    first, second = scores[:, 0::2], scores[:, 1::2]
    halves = ((first, second), (second, first))
    totals = [tried[known.mean(axis=1).argmax()].sum() for known, tried in halves]
    return float(-sum(totals) / scores.shape[1])


def _advice_on_average(evaluation: Evaluation, numbers: Numbers, names: LoopWords) -> str:
    """What helps an average that is no better than one draw: without a bad cycle, or more."""
    weights, cycles = evaluation.weights, evaluation.cycles
    left = {cycle: weights * (cycles != cycle) for cycle in np.unique(cycles).tolist()}
    without = {cycle: _nll(evaluation, kept) for cycle, kept in left.items() if kept.any()}
    worst = min(without, key=without.__getitem__, default=-1)
    if not without or without[worst] > numbers["nll"] - ROUNDING:
        less = f", less {names.exploration}" if names.exploration else ""
        return (
            f"one draw is as good as all: more {names.cycles}{less} or a higher "
            f"{names.temperature} make the draws differ more"
        )
    chains = evaluation.chain_ids
    chain_id = chains[cycles == worst][0]
    position = int((np.unique(cycles[chains == chain_id]) < worst).sum())
    which = f"cycle {position + 1}" + (f" of chain {chain_id}" if np.ptp(chains) else "")
    remedies = [f"more {names.steps} make cycles longer"]
    if position == 0 and names.burn_in is not None:
        remedies.insert(0, f"{names.burn_in} keeps no draws of the first")
    if np.ptp(weights) < ROUNDING and names.stacking is not None:
        remedies.insert(0, f"{names.stacking} gives bad cycles less weight")
    found, now = told_apart(without[worst], numbers["nll"])
    return f"{which} is bad, without it the NLL is {found} and not {now}: {', '.join(remedies)}"


def _with_unit(numbers: Numbers) -> str:
    """The NLL of the average."""
    unit = " per target" if numbers["targets_per_point"] != 1 else ""
    return f"{numbers['nll']:.3f}{unit}"


def _probes(values: Array) -> Array:
    return values[:, evenly_spaced(values.shape[1], MOST_PROBES)]

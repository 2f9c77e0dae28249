"""Verdicts on the draws of a posterior: mixing, diversity, and the gain over one draw."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.checks.calibration import fit_temperature, scaled_scores
from csgmcmc.checks.evaluation import Array, Evaluation, evenly_spaced
from csgmcmc.checks.verdict import LEVEL, Interval, Numbers, Verdict, mean_interval, number

MAX_PROBES = 500  # targets on which the predictions of draws are compared
MAX_R_HAT = 1.1  # of function values, as Izmailov et al. 2021
MIN_DRAWS_FOR_ESS = 10  # of a group: with fewer, the estimate is only noise
MIN_DIVERSITY = 0.01  # gain of averaging, in nats: per target, and relative to the NLL
ROUNDING = 1e-6  # smaller differences are ignored


def describe_draws(evaluation: Evaluation, numbers: Numbers) -> None:
    """Add the scores of the average, and how much draws differ, to `numbers`."""
    alone = evaluation.nll_of_draws
    numbers["targets_per_point"] = evaluation.targets_per_point
    numbers["nll"] = evaluation.nll(evaluation.weights)
    numbers["nll_mean_of_draws"], numbers["nll_best_draw"] = float(alone.mean()), float(alone.min())
    error = evaluation.error(evaluation.averaged)
    if evaluation.probs is None:
        numbers["rmse"] = error
        return
    numbers["error"] = error
    numbers["brier"] = diagnostics.brier_score(evaluation.probs, evaluation.targets)
    differ = diagnostics.disagreement(_probes(evaluation.members))
    for where, share in diagnostics.within_and_between(differ, evaluation.cycles)._asdict().items():
        numbers[f"disagreement_{where}_cycles"] = share


def check_mixing(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """R-hat of predictions: between chains, else between cycles, else between halves."""
    values = evaluation.members
    if evaluation.probs is not None:
        values = values[:, np.arange(values.shape[1]), evaluation.targets]
    probes, what, groups = _probes(values), "chains", evaluation.chain_ids
    if len(set(groups.tolist())) == 1:
        what, groups = "cycles", evaluation.cycles
    if len(set(groups.tolist())) == 1:
        what, groups = "halves", (np.arange(len(probes)) * 2 // len(probes))
    arranged = diagnostics.cycles_as_chains(probes, groups)
    draws, each = arranged.shape[1], f"draws in each of the {what}"
    if len(arranged) < 2 or draws < 2:
        return Verdict(None, f"needs several {each}")
    found = r_hat_interval(arranged)
    numbers["r_hat"], numbers["r_hat_low"], numbers["r_hat_high"] = found
    words = f"R-hat of predictions between {what} {found} (at most {MAX_R_HAT})"
    if draws >= MIN_DRAWS_FOR_ESS:
        numbers["ess"] = float(np.nanmedian(diagnostics.effective_sample_size(arranged)))
        words += f"; ESS {numbers['ess']:.0f} of {len(probes)} draws"
    advice = f"the {what} predict differently, so that one does not represent the posterior: keep "
    # The standard deviation between the groups over that within: its error falls as the root of n.
    *spread, most = (math.sqrt(max(x**2 - 1, 0)) for x in (*found, MAX_R_HAT))
    advice += "them all, and take more steps"
    return Interval(*spread).judge(words, advice, draws, -math.inf, most, each)


def r_hat_interval(arranged: Array) -> Interval:
    """R-hat of predictions of shape (groups, draws, probes).

    A one-way analysis of variance with random effects: B / W, summed over the probes, follows
    (1 + n rho) F, with rho the variance between the groups over that within, and R-hat^2 = 1 + rho.
    Probes are correlated: their effective number is tr(S)^2 / tr(S^2), S their covariance within
    groups.
    """
    groups, draws, _ = arranged.shape
    means = arranged.mean(1, keepdims=True)
    residuals = (arranged - means).reshape(groups * draws, -1)
    gram = residuals @ residuals.T
    degrees, trace = groups * (draws - 1), float(np.trace(gram))
    within = trace / degrees
    between = draws * float(means.var(0, ddof=1).sum())
    if within <= ROUNDING * between:  # the draws of each group are equal
        return Interval(*[math.inf if between > ROUNDING**2 else 1.0] * 3)
    count = max(1.0, trace**2 / float(np.square(gram).sum()))  # effective probes
    low, high = stats.f.interval(LEVEL, (groups - 1) * count, degrees * count)
    rho = (max(0.0, (between / within / each - 1) / draws) for each in (1.0, high, low))
    return Interval(*(math.sqrt(1 + each) for each in rho))


def check_diversity(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """What averaging gains over the mean draw: nothing if all draws predict the same."""
    if np.count_nonzero(evaluation.weights) == 1:
        return Verdict(None, "needs at least 2 draws of a weight above 0")
    mean = (evaluation.weights[:, None] * evaluation.log_scores).sum(0)
    gains = (evaluation.average_scores() - mean) / evaluation.targets_per_point
    found = mean_interval(gains)
    numbers["gain_of_averaging"] = found.value
    least = MIN_DIVERSITY * (1.0 if evaluation.probs is None else numbers["nll"])
    words = f"averaging lowers the NLL by {found} (at least {number(least)})"
    advice = "the draws are nearly the same network: more cycles, less exploration or a higher "
    return found.judge(words, f"{advice}temperature make them differ", len(gains), least)


def check_average(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """The average against the best draw, and against the network that the run started from.

    The best draw is picked, and of classes scaled by a temperature, on one half of the points for
    the other half. What else the average should beat is one more entry of `rivals`, as a starting
    network that is scaled in the same way, by `scaled_by_halves`.
    """
    ours = evaluation.average_scores() / evaluation.targets_per_point
    unit = " per target" if evaluation.targets_per_point != 1 else ""
    words = f"NLL{unit} of the average {number(numbers['nll'])}"
    best = None
    if len(evaluation.weights) > 1:
        words += f", of the mean draw {number(numbers['nll_mean_of_draws'])}"
        best = evaluation
    rivals: dict[str, Array] = {}
    for name, key, rival, scaling in (
        ("the best draw", "picked_draw", best, "scaled by a temperature"),
        ("the starting network", "start", evaluation.start, "scaled"),
    ):
        if rival is not None:
            picked, scaled = _picked_draw(rival)
            numbers[f"nll_{key}"], numbers[f"nll_{key}_scaled"] = -picked.mean(), -scaled.mean()
            words += f", of {name} {number(numbers[f'nll_{key}'])}"
            if evaluation.probs is not None:
                words += f" ({number(numbers[f'nll_{key}_scaled'])} {scaling})"
            rivals[name] = max(picked, scaled, key=np.mean)
    if not rivals:
        return Verdict(None, f"{words}, the only draw")
    name = max(rivals, key=lambda each: float(rivals[each].mean()))
    gain = mean_interval(ours - rivals[name], least=ROUNDING)
    words += f": lower by {gain} than {name}"
    advice = (
        "sampling made the network worse: a lower temperature, a smaller lr, or more weight decay; "
        "the starting network with temperature scaling may do"
    )
    if gain.within(0) is False and name == "the best draw":
        advice = _advice_on_average(evaluation)
    return gain.judge(words, advice, len(ours), 0)


def _picked_draw(evaluation: Evaluation) -> tuple[Array, Array]:
    """Scores of the best draw of one half of the points on the other half, raw and scaled."""
    scores = evaluation.log_scores / evaluation.targets_per_point
    first = np.arange(scores.shape[1]) % 2 == 0

    def best(known: NDArray[np.bool_]) -> int:
        return int((scores[:, known] if known.any() else scores).mean(1).argmax())

    picked = np.where(first, scores[best(~first)], scores[best(first)])
    if evaluation.probs is None:
        return picked, picked
    return picked, scaled_by_halves(evaluation, lambda known: evaluation.members[best(known)])


def scaled_by_halves(
    evaluation: Evaluation, probs_of: Callable[[NDArray[np.bool_]], Array]
) -> Array:
    """Log-likelihood per target of each data point, scaled by a temperature of the other half.

    `probs_of(known)` are the probabilities, which may be chosen by the points that are known.
    """
    points, numbers = evaluation.log_scores.shape[1], evaluation.point_of_target
    first, labels, scaled = np.arange(points) % 2 == 0, evaluation.targets, np.empty(points)
    for known in (first, ~first):
        logs, some = np.log(np.maximum(probs_of(known), 1e-300)), known[numbers]
        heat = fit_temperature(logs[some], labels[some], numbers[some]).value if some.any() else 1
        scaled[~known] = evaluation.per_point(scaled_scores(logs, labels, heat))[~known]
    return scaled


def _advice_on_average(evaluation: Evaluation) -> str:
    """Advice where the average is worse than one draw: drop a bad cycle, or diversify."""
    cycles = sorted(set(evaluation.cycles.tolist()))
    for cycle in cycles if len(cycles) > 1 else ():
        weights = evaluation.weights * (evaluation.cycles != cycle)
        gain = evaluation.average_scores(weights) - evaluation.average_scores()
        gain /= evaluation.targets_per_point
        if gain.mean() > 2 * stats.sem(gain) > 0:
            return (
                f"cycle {cycle + 1} of {len(cycles)} is bad, without it the NLL is lower by "
                f"{number(gain.mean())} (standard error {number(stats.sem(gain))}): "
                'weigh("stacking", held_out) gives it less weight, burn_in keeps no draws of the '
                "first, more steps make cycles longer"
            )
    return (
        "one draw is as good as all: more cycles, less exploration or a higher temperature make "
        "the draws differ more"
    )


def _probes(values: Array) -> Array:
    return values[:, evenly_spaced(values.shape[1], MAX_PROBES)]

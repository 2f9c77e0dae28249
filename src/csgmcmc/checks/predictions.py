"""Verdicts on the predictions of the draws: mixing, calibration, and the gain over one draw."""

import math

import numpy as np
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.verdict import Advice, Numbers, Verdict
from csgmcmc.loop.watch import evenly_spaced

MAX_PROBES = 500  # points on which the predictions of draws are compared
MAX_R_HAT = 1.1  # of function values, as Izmailov et al. 2021; more if chance allows more
MIN_DRAWS = 6  # of a group: with fewer in each of two, no R-hat is significant
MIN_DRAWS_FOR_ESS = 10  # of a group: with fewer, the estimate is only noise
CHANCE = 0.99  # level of the simulated null distributions
REPEATS = 200  # simulations of each
CHANCE_PROBES = 15  # points that suffice to simulate R-hat
ROUNDING = 1e-6  # smaller differences are ignored


def check_predictions(
    evaluation: Evaluation, numbers: Numbers, advice: Advice
) -> tuple[Verdict, Verdict, Verdict]:
    """The verdicts mixing, calibrated and better; adds to `numbers` and `advice`."""
    numbers["targets_per_point"] = evaluation.targets_per_point
    numbers["nll"] = evaluation.nll(evaluation.weights)
    values = evaluation.members
    if evaluation.probs is None:
        calibrated = _check_regression(evaluation, numbers, advice)
    else:
        calibrated = _check_classes(evaluation, evaluation.probs, numbers, advice)
        values = values[:, np.arange(values.shape[1]), evaluation.targets]
    mixing = _check_mixing(evaluation, _probes(values), numbers, advice)
    return mixing, calibrated, _check_average(evaluation, numbers, advice)


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
    if arranged.shape[0] < 2 or arranged.shape[1] < MIN_DRAWS:
        words = f"needs {MIN_DRAWS} draws in each of 2 {what} or more, has "
        words += f"{arranged.shape[1]} in each of {arranged.shape[0]}"
        return Verdict(None, words + disagreement)
    numbers["r_hat"] = _median_r_hat(arranged)
    numbers["r_hat_by_chance"] = _r_hat_by_chance(arranged)
    numbers["ess"] = float(np.nanmedian(diagnostics.effective_sample_size(arranged)))
    by_chance = numbers["r_hat_by_chance"] > MAX_R_HAT
    bound = numbers["r_hat_by_chance"] if by_chance else MAX_R_HAT
    holds = not numbers["r_hat"] > bound + ROUNDING
    if not holds:
        advice.append(
            f"the {what} predict differently, and the draws of one do not represent all of the "
            f"posterior: keep them all, and give more steps"
        )
    words = f"R-hat of predictions between {what} {numbers['r_hat']:.3f} (at most {bound:.3f}"
    words += " by chance)" if by_chance else ")"
    if arranged.shape[1] >= MIN_DRAWS_FOR_ESS:
        words += f", ESS {numbers['ess']:.0f} of {len(probes)} draws"
    return Verdict(holds, words + disagreement)


def _median_r_hat(arranged: Array) -> float:
    """Median over the points; 1 if all draws are equal."""
    r_hat = diagnostics.r_hat(arranged)
    return float(np.nanmedian(r_hat)) if not np.isnan(r_hat).all() else 1.0


def _r_hat_by_chance(arranged: Array) -> float:
    """The 0.99 quantile of R-hat if draws are assigned to the groups at random."""
    generator = np.random.default_rng(0)
    some = arranged[:, :, :: max(1, arranged.shape[2] // CHANCE_PROBES)]
    pooled = some.reshape(-1, some.shape[2])
    shuffled = (generator.permutation(pooled).reshape(some.shape) for _ in range(REPEATS))
    return float(np.quantile([_median_r_hat(each) for each in shuffled], CHANCE))


def _describe_disagreement(numbers: Numbers) -> str:
    """How often draws disagree, as far as it was measured."""
    names = {"within cycles": "within", "between them": "between"}
    shares = {
        words: numbers.get(f"disagreement_{names[words]}_cycles", math.nan) for words in names
    }
    known = [f"{share:.1%} {words}" for words, share in shares.items() if not math.isnan(share)]
    return f"; draws disagree on {', '.join(known)}" if known else ""


def _check_classes(
    evaluation: Evaluation, forecasts: Array, numbers: Numbers, advice: Advice
) -> Verdict:
    """Calibration of the probabilities; also how much the draws differ."""
    probes, labels = _probes(evaluation.members), evaluation.targets
    measures = {"disagreement": diagnostics.disagreement, "kl": diagnostics.kl_divergence}
    for name, measure in measures.items():
        differ = diagnostics.within_and_between(measure(probes), evaluation.cycles)
        numbers[f"{name}_within_cycles"] = differ.within
        numbers[f"{name}_between_cycles"] = differ.between
    numbers["error"] = 1 - diagnostics.accuracy(forecasts, labels)
    numbers["brier"] = diagnostics.brier_score(forecasts, labels)
    numbers["ece"] = diagnostics.calibration_error(forecasts, labels, binning="mass")
    numbers["ece_by_chance"] = _calibration_error_by_chance(forecasts)
    holds = numbers["ece"] <= numbers["ece_by_chance"] + ROUNDING
    words = (
        f"calibration error {numbers['ece']:.3f} (at most {numbers['ece_by_chance']:.3f} by chance)"
    )
    if not holds:
        overconfident = forecasts.max(axis=1).mean() > 1 - numbers["error"]
        words += f", {'over' if overconfident else 'under'}confident"
        advice.append(
            "more cycles, or a higher temperature, make it less confident"
            if overconfident
            else "more steps, or a lower temperature, make it more confident"
        )
    words += f"; error {numbers['error']:.1%}, NLL {numbers['nll']:.3f}{_unit(numbers)}"
    return Verdict(holds, words)


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


def _check_regression(evaluation: Evaluation, numbers: Numbers, advice: Advice) -> Verdict:
    """Whether 90% intervals contain 90% of the targets."""
    ranks = evaluation.ranks
    assert ranks is not None  # noqa: S101  (classes or numbers)
    numbers["coverage_90"] = float(((ranks >= 0.05) & (ranks <= 0.95)).mean())
    tail = (1 - CHANCE) / 2  # by points: the outputs of one are dependent
    low, high = stats.binom.ppf([tail, 1 - tail], len(ranks), 0.9) / len(ranks)
    covered = numbers["coverage_90"]
    holds = bool(low - ROUNDING <= covered <= high + ROUNDING)
    if not holds:
        advice.append(
            f"the predictive intervals are too {'narrow' if covered < low else 'wide'}: check the "
            "variance of the noise, then temperature"
        )
    words = (
        f"90% intervals contain {covered:.1%} of the targets ({low:.1%} to {high:.1%} by chance)"
    )
    return Verdict(holds, f"{words}; NLL {numbers['nll']:.3f}{_unit(numbers)}")


def _check_average(evaluation: Evaluation, numbers: Numbers, advice: Advice) -> Verdict:
    """The average against the best draw, picked on one half of the points for the other half."""
    alone = evaluation.nll_of_draws
    numbers["nll_best_draw"] = float(alone.min())
    numbers["nll_mean_of_draws"] = float(alone.mean())
    numbers["nll_picked_draw"] = _nll_of_picked_draw(evaluation)
    if len(alone) == 1:
        return Verdict(None, f"NLL {numbers['nll']:.3f}{_unit(numbers)}, of the only draw")
    holds = numbers["nll"] < numbers["nll_picked_draw"] - ROUNDING
    if not holds:
        advice.append(_advice_on_average(evaluation, numbers))
    return Verdict(
        holds,
        f"NLL{_unit(numbers)} of the average {numbers['nll']:.3f}, of the mean draw "
        f"{alone.mean():.3f}, of the best draw {alone.min():.3f} "
        f"({numbers['nll_picked_draw']:.3f} if it is picked on other data)",
    )


def _nll_of_picked_draw(evaluation: Evaluation) -> float:
    """NLL of the best draw of one half of the points on the other half, and vice versa."""
    scores = evaluation.log_scores / evaluation.targets_per_point
    if scores.shape[1] < 2:
        return float(evaluation.nll_of_draws.min())
    first, second = scores[:, 0::2], scores[:, 1::2]
    halves = ((first, second), (second, first))
    totals = [tried[known.mean(axis=1).argmax()].sum() for known, tried in halves]
    return float(-sum(totals) / scores.shape[1])


def _advice_on_average(evaluation: Evaluation, numbers: Numbers) -> str:
    """Advice where the average is no better than one draw: drop a bad cycle, or diversify."""
    kept = [evaluation.weights * (evaluation.cycles != one) for one in set(evaluation.cycles)]
    without = [evaluation.nll(weights) if weights.any() else math.inf for weights in kept]
    if min(without) > numbers["nll"] - ROUNDING:
        return (
            "one draw is as good as all: more cycles, less exploration or a higher temperature "
            "make the draws differ more"
        )
    return (
        f"a cycle is bad, without it the NLL is {min(without):.3f} and not {numbers['nll']:.3f}: "
        'weigh("stacking", held_out) gives bad cycles less weight, burn_in keeps no draws of the '
        "first, more steps make cycles longer"
    )


def _unit(numbers: Numbers) -> str:
    return " per target" if numbers["targets_per_point"] != 1 else ""


def _probes(values: Array) -> Array:
    return values[:, evenly_spaced(values.shape[1], MAX_PROBES)]

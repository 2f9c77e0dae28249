"""The verdicts of `Posterior.check` on posteriors whose faults are known."""

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, Chain, Constant, Cyclical, MemoryDraws, Posterior, Stepper
from csgmcmc.checks import check
from csgmcmc.checks.calibration import check_calibration, ece_and_chance, fit_temperature
from csgmcmc.checks.evaluation import Evaluation, evaluate
from csgmcmc.checks.posterior_check import judge
from csgmcmc.checks.predictions import check_average, check_mixing, r_hat_interval
from csgmcmc.checks.sampling import (
    as_run,
    check_sampling,
    compare_likelihood,
    describe_noise,
)
from csgmcmc.checks.verdict import Interval, Verdict, mean_interval, number
from csgmcmc.posterior import Categorical, Gaussian
from tests.posterior.support import Scale, Table

POINTS, CLASSES = 2000, 4


def posterior_of(tables, cycles, chains=None, **options):
    draws = MemoryDraws()
    for step, (table, cycle) in enumerate(zip(tables, cycles, strict=True)):
        draws.append(Table(table), step=step, cycle=cycle, chain_id=chains[step] if chains else 0)
    return Posterior(Table(tables[0]), draws, **options)


def truth(seed=0):
    """True log-probabilities of the classes of each point, and labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(POINTS, CLASSES, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def loader_of(labels):
    return DataLoader(TensorDataset(torch.arange(len(labels)), labels), batch_size=300)


def noisy(logits, draws, scale, seed=1):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(draws, *logits.shape, generator=generator)
    return [logits + scale * one for one in noise]


def test_calibrated_forecasts_pass_and_sharpened_or_flattened_ones_fail():
    logits, labels = truth()
    honest = posterior_of(noisy(logits, 6, 0.01), [0] * 3 + [1] * 3).check(loader_of(labels))
    assert honest.calibrated.holds
    assert honest.numbers["ece"] < honest.numbers["ece_by_chance"] < 0.05
    assert honest.numbers["temperature_scaling"] == pytest.approx(1, abs=0.1)
    sure = posterior_of(noisy(2 * logits, 6, 0.01), [0] * 6).check(loader_of(labels))
    assert sure.calibrated.holds is False
    assert sure.numbers["temperature_scaling"] == pytest.approx(2, rel=0.1)
    assert sure.numbers["nll_scaled"] == pytest.approx(honest.numbers["nll"], rel=0.02)
    assert any("less confident" in advice for advice in sure.advice)
    modest = posterior_of(noisy(0.4 * logits, 6, 0.01), [0] * 6).check(loader_of(labels))
    assert modest.calibrated.holds is False
    assert any("more confident" in advice for advice in modest.advice)
    assert "calibrated  no: calibration error" in str(modest)


def test_calibrated_forecasts_never_fail_and_overconfident_ones_never_pass():
    """At a level of 0.99, of 40 one or more fails with probability 0.2, two or more with 0.02."""
    wrong = 0
    for seed in range(40):
        logits, labels = truth(seed)
        for heat in (1.0, 1.7):
            posterior = posterior_of([heat * logits[:300]] * 2, [0, 1])
            holds = posterior.check(loader_of(labels[:300])).calibrated.holds
            wrong += holds is (heat > 1)
    assert wrong < 2


def test_intervals_of_the_temperature_cover_it():
    """Of 100 intervals of 99%, four or more miss with probability 0.02."""
    missed = 0
    for seed in range(100):
        logits, labels = truth(seed)
        logs = (1.3 * logits[:300]).log_softmax(1).double().numpy()
        found = fit_temperature(logs, labels[:300].numpy(), np.arange(300))
        missed += not found.low <= 1.3 <= found.high
    assert missed < 4


def equal_mass_error(probs, labels, bins=15):
    """The calibration error with bins of equal numbers of points (Nixon et al. 2019)."""
    order = np.argsort(probs.max(1))
    excess = (probs.max(1) - (probs.argmax(1) == labels))[order]
    first = -(-np.arange(bins) * len(order) // bins)  # rounded up
    return np.abs(np.add.reduceat(excess, first)).sum() / len(order)


def test_calibration_error_by_chance_equals_simulations():
    """Its 0.99 quantile, from as many simulated labels as it takes for 3% (seed fixed)."""
    logits, _ = truth()
    probs = logits.softmax(1).double().numpy()[:500]
    generator = np.random.default_rng(0)
    cumulative = probs.cumsum(1)
    found = []
    for _ in range(2000):
        labels = (generator.random((500, 1)) > cumulative).sum(1).clip(max=CLASSES - 1)
        found.append(equal_mass_error(probs, labels))
    labels = truth()[1][:500].numpy()
    ece, by_chance = ece_and_chance(probs, labels, np.arange(500))
    assert ece == pytest.approx(equal_mass_error(probs, labels))
    assert by_chance == pytest.approx(np.quantile(found, 0.99), rel=0.08)  # at least, by design


def images(count, pixels, seed):
    """Probabilities and labels of images whose pixels are equal: as good as one pixel each."""
    logits, labels = truth(seed)
    repeat = np.repeat(np.arange(count), pixels)
    return logits.softmax(1).double().numpy()[repeat], labels.numpy()[repeat], repeat


def test_pixels_of_one_image_are_not_independent():
    """At a level of 0.99, of 40 data sets 4 or more are above by chance with probability 0.001."""
    above = 0
    for seed in range(40):
        ece, by_chance = ece_and_chance(*images(60, 50, seed))
        above += ece > by_chance
        apart = fit_temperature(np.log(images(60, 50, seed)[0]), *images(60, 50, seed)[1:])
        assert apart.low < 1 < apart.high
    assert above < 4
    probs, labels, repeat = images(60, 50, 0)
    _, by_chance = ece_and_chance(probs, labels, repeat)
    _, as_independent = ece_and_chance(probs, labels, np.arange(len(labels)))
    assert as_independent < 0.4 * by_chance


def test_draws_of_one_distribution_mix_and_cycles_that_differ_do_not():
    logits, labels = truth()
    cycles = [0] * 20 + [1] * 20
    mixed = posterior_of(noisy(logits, 40, 0.3), cycles).check(loader_of(labels))
    assert mixed.mixing.holds
    assert mixed.numbers["ess"] > 20
    assert f"ESS {mixed.numbers['ess']:.0f} of 40 draws" in mixed.mixing.words
    within, between = (
        mixed.numbers[f"disagreement_{where}_cycles"] for where in ("within", "between")
    )
    assert within == pytest.approx(between, rel=0.1)
    apart = noisy(logits, 20, 0.3) + noisy(logits + noisy(logits, 1, 1.0)[0], 20, 0.3, seed=2)
    stuck = posterior_of(apart, cycles).check(loader_of(labels))
    assert stuck.mixing.holds is False
    assert stuck.numbers["r_hat_low"] > 1.2
    assert (
        stuck.numbers["disagreement_between_cycles"]
        > 1.5 * stuck.numbers["disagreement_within_cycles"]
    )


def test_an_average_is_compared_with_its_best_draw():
    logits, labels = truth()
    diverse = posterior_of(noisy(logits, 6, 1.0), [0] * 6).check(loader_of(labels))
    assert diverse.better.holds
    assert diverse.numbers["nll"] < diverse.numbers["nll_best_draw"]
    spoiled = [*noisy(logits, 3, 0.01), *noisy(torch.zeros_like(logits), 3, 3.0)]
    worse = posterior_of(spoiled, [0] * 6).check(loader_of(labels))
    assert worse.better.holds is False
    alone = posterior_of([logits], [0]).check(loader_of(labels))
    assert alone.better.holds is None


def test_best_draw_is_picked_and_compared_on_different_points():
    """Of 60 draws that differ by chance alone, the best of all points has been lucky there."""
    logits, labels = truth()
    found = posterior_of(noisy(logits[:40], 60, 0.3), [0] * 60).check(loader_of(labels[:40]))
    numbers = found.numbers
    assert numbers["nll_best_draw"] < numbers["nll"] < numbers["nll_mean_of_draws"]
    assert numbers["nll_picked_draw"] > numbers["nll"]
    assert found.better.holds is not False
    kinds = ("nll", "nll_mean_of_draws", "nll_picked_draw", "nll_picked_draw_scaled")
    average, mean, picked, scaled = (number(numbers[kind]) for kind in kinds)
    assert found.better.words.startswith(
        f"NLL of the average {average}, of the mean draw {mean}, of the best draw {picked} "
        f"({scaled} scaled by a temperature): lower by"
    )


def test_a_cycle_is_bad_only_beyond_twice_the_standard_error():
    logits, labels = truth()
    tables = [*noisy(torch.zeros_like(logits), 3, 3.0), *noisy(logits, 6, 0.01)]
    posterior = posterior_of(tables, [0] * 3 + [1] * 3 + [2] * 3)
    found = posterior.check(loader_of(labels))
    assert found.better.holds is False
    (advice,) = [one for one in found.advice if "is bad" in one]
    assert advice.startswith("cycle 1 of 3 is bad")
    assert "stacking" in advice
    for seed in range(5):  # cycles that differ by chance: their advice is another
        same = posterior_of(noisy(logits, 9, 0.01, seed), [0] * 3 + [1] * 3 + [2] * 3)
        same = same.check(loader_of(labels))
        assert not any("is bad" in advice for advice in same.advice)


def test_an_average_is_compared_with_the_starting_network():
    logits, labels = truth()
    posterior = posterior_of(noisy(logits, 6, 1.0), [0] * 6)
    evaluation = evaluate(posterior, loader_of(labels))
    for scale, better in ((0.0, False), (2.0, True)):
        start = evaluate(posterior_of([noisy(logits, 1, scale)[0]], [0]), loader_of(labels))
        numbers: dict[str, float] = dict.fromkeys(("nll", "nll_mean_of_draws"), 1.0)
        verdict = check_average(replace(evaluation, start=start), numbers)
        assert verdict.holds is better
        assert "of the starting network" in verdict.words
        assert (
            any("sampling made the network worse" in each for each in verdict.advice) is not better
        )


def test_numbers_are_written_as_a_person_writes_them():
    assert describe_noise(0.0999).startswith("injected noise is 0.0999 times")
    assert describe_noise(2412.0).startswith("injected noise is 2,410 times")
    assert describe_noise(math.inf) == "the minibatches add no noise"
    written = {1023.4: "1,020", 0.02: "0.02", 2e-5: "2e-05", -4_186_491.0: "-4.19e+06"}
    assert {value: number(value) for value in written} == written


def test_an_interval_is_yes_inside_no_outside_and_else_unknown():
    assert Interval(1, 0.9, 1.1).within(0.5, 2) is True
    assert Interval(3, 2.1, 4).within(0.5, 2) is False
    assert Interval(1, 0.4, 1.1).within(0.5, 2) is None
    assert Interval(1, -math.inf, math.inf).within(0.5, 2) is None
    # Four times as many values halve the width.
    found = Interval(1.5, 0.5, 2.5).judge("found", "advice", 10, 0.6, 2, "points")
    assert found == Verdict(None, "found: needs about 40 points, has 10")
    assert "too close" in Interval(2, 1, 3).judge("", "", 10, 0.5, 2).words
    assert Interval(3, 2.1, 4).judge("", "advice", 10, 0.5, 2).advice == ("advice",)
    assert mean_interval(np.array([1.0])).within(0) is None


def test_advice_on_cold_draws_names_the_arguments():
    found, _ = judged(heats=(0.2, 0.2))
    (advice,) = [one for one in found.advice if "spread out" in one]
    assert advice.endswith("sample longer (more steps, less exploration), or raise lr")


def test_binary_labels():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(POINTS, 3, generator=generator)
    labels = torch.bernoulli(logits.sigmoid(), generator=generator)
    tables = noisy(logits, 6, 0.01)
    found = posterior_of(tables, [0] * 6, likelihood="bernoulli")
    checked = found.check(loader_of(labels))
    assert checked.calibrated.holds
    wrong = ((logits > 0).float() != labels).float().mean().item()
    assert checked.numbers["error"] == pytest.approx(wrong, abs=0.01)
    # The NLL is in the unit of the error: per label, and not per row of three.
    exact = nn.functional.binary_cross_entropy_with_logits(logits, labels).item()
    assert checked.numbers["nll"] == pytest.approx(exact, abs=1e-3)
    assert checked.numbers["nll_best_draw"] == pytest.approx(exact, abs=1e-2)
    assert "per target" in checked.better.words


def test_coverage_of_regression_intervals():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(POINTS, 1, generator=generator)
    targets = means + 0.5 * torch.randn(POINTS, 1, generator=generator)
    tables = noisy(means, 6, 0.05)
    for variance, holds, words in ((0.25, True, ""), (0.1, False, "narrow"), (0.5, False, "wide")):
        posterior = posterior_of(tables, [0] * 6, likelihood=Gaussian(variance))
        found = posterior.check(loader_of(targets))
        assert found.calibrated.holds is holds
        assert any(words in advice for advice in found.advice) or holds
        exact = -torch.distributions.Normal(means, variance**0.5).log_prob(targets).mean().item()
        assert found.numbers["nll"] == pytest.approx(exact, abs=0.02)


@pytest.fixture(scope="module")
def tiny():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 5, generator=generator)
    labels = (inputs @ torch.randn(5, 3, generator=generator)).argmax(1)
    data = TensorDataset(inputs, labels)
    order = torch.Generator().manual_seed(0)
    return DataLoader(data, batch_size=10, shuffle=True, generator=order), data


def checked(tiny, sampler_type, schedule, **options):
    loader, data = tiny
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    sampler = sampler_type(model.parameters(), num_data=300, seed=0, **options)
    chain = Chain(model, cross_entropy, loader, sampler, schedule, progress=False)
    posterior = Posterior(model, chain.run())
    return posterior.check(DataLoader(data, batch_size=100), run=chain)


def test_a_sampler_passes_and_a_snapshot_ensemble_is_asked_what_it_claims(tiny):
    long = Cyclical(1200, cycles=2, exploration=0.2, draws_per_cycle=10)
    sampled = checked(tiny, SGLD, long, lr=0.3, weight_decay=0.01)
    assert sampled.sampling.holds, sampled.sampling.words
    assert sampled.numbers["noise_ratio"] > 0.1
    assert sampled.parameters["weight"].temperature is not None

    snapshots = checked(tiny, SGHMC, long, lr=0.05, momentum=0.9, temperature=1e-5)
    assert snapshots.sampling.answer == snapshots.mixing.answer == "not asked for"
    assert snapshots.diverse.holds is not None

    optimised = checked(tiny, SGLD, long, lr=0.05, temperature=0.0)
    assert optimised.sampling.answer == "not asked for"
    assert "no noise was injected" in optimised.sampling.words


def test_sampling_is_unknown_without_a_run():
    logits, labels = truth()
    found = posterior_of([logits, logits], [0, 1]).check(loader_of(labels))
    assert found.sampling.holds is None
    assert "run=" in found.sampling.words
    assert repr(found) == (
        "Check(learned=yes, sampling=unknown, mixing=unknown, diverse=no, calibrated=yes, "
        "better=unknown)"
    )
    assert str(found).splitlines()[1].startswith("sampling    unknown: needs the run that made")
    assert max(map(len, str(found).splitlines())) <= 100
    assert "<td" in found._repr_html_()
    assert np.isfinite([found.numbers["nll"], found.numbers["brier"]]).all()


def test_a_loader_without_targets_is_rejected():
    logits, _ = truth()
    with pytest.raises(ValueError, match="loader"):
        posterior_of([logits], [0]).check(DataLoader(TensorDataset(torch.arange(9))))


# Mixing


def groups_of_draws(shift, groups, draws, seed, points=3):
    """Predictions of groups of draws whose means are about `shift` standard deviations apart."""
    generator = np.random.default_rng(seed)
    means = shift * generator.standard_normal((groups, 1, points))
    return means + generator.standard_normal((groups, draws, points))


@pytest.mark.parametrize(("groups", "draws"), [(2, 6), (4, 6), (4, 40)])
@pytest.mark.parametrize("points", [1, 30])
def test_intervals_of_r_hat_cover_it(groups, draws, points):
    """Of 60 intervals of 99%, five or more miss with probability 0.0003 (six sets)."""
    for shift in (0.0, 1.0):
        missed = 0
        for seed in range(60):
            found = r_hat_interval(groups_of_draws(shift, groups, draws, seed, points))
            missed += not found.low <= (1 + shift**2) ** 0.5 <= found.high + 1e-9
        assert missed < 5


def judged_mixing(values, **groups):
    """The verdict on draws of one number at each point."""
    names = {"chain_ids": np.zeros(len(values), int), "cycles": np.zeros(len(values), int)}
    evaluation = Evaluation(
        weights=np.full(len(values), 1 / len(values)),
        log_scores=np.zeros((len(values), values.shape[1])),
        members=values,
        targets=np.zeros(values.shape[1]),
        **{**names, **groups},
    )
    found = check_mixing(evaluation, {})
    return found, found.advice


def test_needed_draws_are_enough():
    """With as many draws as it says, most runs that mix are known to."""
    values = np.random.default_rng(0).normal(size=(12, 20))
    verdict, _ = judged_mixing(values, cycles=np.repeat(np.arange(4), 3))
    (needed,) = map(int, re.findall(r"needs about (\d+) draws", verdict.words))
    yes = 0
    for seed in range(20):
        found = r_hat_interval(groups_of_draws(0.0, 4, needed, seed, 20))
        yes += found.within(0, 1.1) is True
    assert yes >= 8


def test_mixing_compares_chains_or_halves_of_one_cycle():
    values = groups_of_draws(6.0, 2, 10, 0, 20).reshape(20, 20)
    groups = np.repeat([0, 1], 10)
    found, advice = judged_mixing(values, chain_ids=groups, cycles=np.arange(20) % 2)
    assert found.holds is False
    assert "R-hat of predictions between chains" in found.words
    assert "the chains predict differently" in "".join(advice)
    found, _ = judged_mixing(values)
    assert found.holds is False
    assert "R-hat of predictions between halves" in found.words
    found, _ = judged_mixing(values[:6], cycles=groups[7:13])
    assert found.holds is not True
    found, _ = judged_mixing(groups_of_draws(0.0, 1, 6, 0)[0], cycles=np.arange(6) // 3)
    assert found.holds is None
    assert "draws in each of the cycles, has 3" in found.words


def test_identical_draws_mix_and_are_not_diverse():
    logits, labels = truth()
    same = posterior_of([logits] * 12, [0] * 6 + [1] * 6).check(loader_of(labels))
    assert same.mixing.holds
    assert same.numbers["r_hat"] == 1.0
    assert same.diverse.holds is False


# Scores and calibration


def test_scores_use_the_weights():
    tables = [torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([[math.log(4.0), 0.0]])]
    labels = torch.tensor([0])  # of probability 1/4 and 4/5
    for weights, mixed in (("uniform", 0.525), ([3.0, 1.0], 0.3875), ([0.0, 2.0], 0.8)):
        found = posterior_of(tables, [0, 1], weights=weights).check(loader_of(labels))
        assert found.numbers["nll"] == pytest.approx(-math.log(mixed), rel=1e-6)
        assert found.numbers["brier"] == pytest.approx(2 * (1 - mixed) ** 2, rel=1e-5)
        assert found.numbers["nll_best_draw"] == pytest.approx(-math.log(0.8), rel=1e-6)
        each = -(math.log(0.25) + math.log(0.8)) / 2
        assert found.numbers["nll_mean_of_draws"] == pytest.approx(each, rel=1e-6)
        assert found.better.holds is not True


def test_a_nearly_impossible_class_has_a_finite_score():
    tables = [torch.tensor([[0.0, 120.0]]), torch.tensor([[0.0, 121.0]])]
    found = posterior_of(tables, [0, 1]).check(loader_of(torch.tensor([0])))
    exact = -(math.log(0.5) + np.logaddexp(-120.0, -121.0))
    assert found.numbers["nll"] == pytest.approx(exact, rel=1e-6)
    assert found.numbers["nll_best_draw"] == pytest.approx(120.0)


def test_underconfident_and_overconfident_constant_forecasts():
    sure = torch.log(torch.tensor([[0.9, 0.1]])).expand(400, 2)
    posterior = posterior_of([sure, sure], [0, 1])
    for wrong, words in ((0, "more confident"), (80, "less confident")):
        labels = torch.zeros(400, dtype=torch.long)
        labels[:wrong] = 1  # 10% would be right
        numbers: dict[str, float] = {}
        found = check_calibration(evaluate(posterior, loader_of(labels)), numbers)
        assert found.holds is False
        assert words in found.advice[0]
        assert numbers["ece"] == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("ignored", [-100, 3])
def test_ignored_labels_are_left_out(ignored):
    logits, labels = truth()
    some = labels.clone()
    some[1::2] = ignored
    kept = some != ignored
    likelihood = Categorical(ignore_index=ignored)
    posterior = posterior_of([logits, 0.9 * logits], [0, 1], likelihood=likelihood)
    found = posterior.check(loader_of(some))
    among = posterior_of([logits[kept], (0.9 * logits)[kept]], [0, 1])
    alone = among.check(loader_of(some[kept]))
    for name in ("error", "brier", "ece", "ece_by_chance", "disagreement_between_cycles", "nll"):
        assert found.numbers[name] == pytest.approx(alone.numbers[name], rel=1e-6), name
    assert alone.numbers["error"] > 0.1
    assert found.calibrated.holds is alone.calibrated.holds


def test_bimodal_mixture_is_calibrated():
    """Its intervals are those of the mixture, not of a Gaussian as wide as both together."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([-5.0, 5.0])
    chosen = torch.randint(2, (POINTS,), generator=generator)
    targets = (centres[chosen] + 0.1 * torch.randn(POINTS, generator=generator))[:, None]
    tables = [centre.expand(POINTS, 1) for centre in centres]
    found = posterior_of(tables, [0, 1], likelihood=Gaussian(0.01)).check(loader_of(targets))
    assert found.calibrated.holds
    inside = (targets[:, 0] - centres[chosen]).double() / 0.1
    ranks = chosen / 2 + torch.special.ndtr(inside) / 2
    exact = ((ranks >= 0.05) & (ranks <= 0.95)).double().mean().item()
    assert found.numbers["coverage_90"] == pytest.approx(exact)
    lopsided = posterior_of(tables, [0, 1], weights=[9, 1], likelihood=Gaussian(0.01))
    ranks = 0.9 * torch.where(chosen == 1, 1.0, torch.special.ndtr(inside))
    ranks += 0.1 * torch.where(chosen == 1, torch.special.ndtr(inside), 0.0)
    exact = ((ranks >= 0.05) & (ranks <= 0.95)).double().mean().item()
    found = lopsided.check(loader_of(targets))
    assert found.numbers["coverage_90"] == pytest.approx(exact)
    assert found.calibrated.holds is False


def test_coverage_counts_points_not_outputs():
    """200 points of 50 outputs that are off together: as uncertain as 200 numbers."""
    targets = torch.linspace(0.02, 0.98, 200).logit().mul(0.4)[:, None]
    targets[:25] = 9.0  # one in eight is outside
    table = torch.zeros(200, 50)
    posterior = posterior_of([table, table], [0, 1], likelihood=Gaussian(1.0))
    numbers: dict[str, float] = {}
    whole = evaluate(posterior, loader_of(targets.expand(200, 50)))
    found = check_calibration(whole, numbers)
    assert numbers["coverage_90"] == pytest.approx(175 / 200)
    assert found.holds is None
    single = posterior_of([table[:, :1]] * 2, [0, 1], likelihood=Gaussian(1.0))
    assert check_calibration(evaluate(single, loader_of(targets)), {}).words == found.words


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_loader_that_is_an_iterator(kind):
    logits, labels = truth()
    options = {}
    if kind == "regression":
        labels, options = logits + 0.1, {"likelihood": Gaussian(1.0)}
    posterior = posterior_of(noisy(logits, 3, 0.1), [0, 0, 1], **options)
    once = posterior.check(iter(loader_of(labels)))
    again = posterior.check(loader_of(labels))
    assert once.numbers == again.numbers


def test_copies_of_one_draw_are_not_better():
    logits, labels = truth()
    found = [
        posterior_of([logits[:20]] * copies, [0] * copies).check(loader_of(labels[:20]))
        for copies in (8, 9, 10, 11)
    ]
    assert not any(one.better.holds for one in found)


# Sampling


class Layers(nn.Module):
    """Unknown means of data with noise of variance 1, in layers."""

    def __init__(self, sizes) -> None:
        super().__init__()
        self.layers = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat(list(self.layers)).expand(len(inputs), -1)


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (targets - outputs).square().sum(1).mean() / 2


def judged(
    heats=(1.0, 1.0),
    sizes=(300, 100),
    *,
    batch_size=25,
    sampler_type: type = SGLD,
    schedule=None,
    count=7,
    lrs=None,
    data=None,
    **options,
):
    """A check of exact draws of a posterior at temperatures of its layers."""
    generator = torch.Generator().manual_seed(0)
    targets = 3 + torch.randn(50, sum(sizes), generator=generator)
    model, draws = Layers(sizes), MemoryDraws()
    for step in range(count):
        for layer, mean, heat in zip(
            model.layers, targets.mean(0).split(sizes), heats, strict=True
        ):
            noise = torch.randn(len(mean), generator=generator)
            layer.data = mean + (heat / 50) ** 0.5 * noise
        draws.append(model, step=step, cycle=step // 3)
    pairs = TensorDataset(torch.zeros(50, 1), targets)
    data = DataLoader(pairs, batch_size) if data is None else data
    options = {"lr": 0.01, "num_data": 50, "seed": 0, **options}
    groups = [{"params": [layer]} for layer in model.layers]
    for group, lr in zip(groups, lrs or [], strict=False):
        group["lr"] = lr
    sampler = sampler_type(groups, **options)
    schedule = Constant(20) if schedule is None else schedule
    stepper = Stepper(model, sampler, schedule)
    posterior = Posterior(model, draws, likelihood=Gaussian(1.0))
    # The sampling alone: a model without inputs is no better than the mean of the targets.
    numbers: dict[str, float] = {}
    run = as_run(posterior, stepper, half_square, data)
    ratio = compare_likelihood(posterior, run)
    found, parameters = check_sampling(posterior, run, ratio, numbers)
    return Sampled(found, found.advice, numbers, parameters), targets


class Sampled(NamedTuple):
    """What was found of the sampling."""

    sampling: Verdict
    advice: tuple[str, ...]
    numbers: dict[str, float]
    parameters: dict[str, Any]


def test_wrong_temperature_with_right_noise():
    right, _ = judged()
    assert right.sampling.holds
    assert right.numbers["share_too_hot"] == right.numbers["share_too_cold"] == 0
    assert right.advice == ()
    for heat, way, remedy in ((4.0, "hot", "are hotter than"), (0.2, "cold", "not spread out")):
        found, _ = judged(heats=(heat, heat))
        assert found.sampling.holds is False
        assert found.numbers["noise_ratio"] > 1
        assert found.numbers[f"share_too_{way}"] == 1
        low, high = (number(found.numbers[f"temperature_{end}"]) for end in ("low", "high"))
        assert found.sampling.words == (
            f"temperature {low} to {high}, asked for {number(found.numbers['temperature_target'])} "
            f"(to a factor of 2); too {way}: layers.0, layers.1"
        )
        (advice,) = found.advice
        assert remedy in advice
    # A little off, less than a factor of two, is found but not blamed.
    for heat in (1.5, 0.7):
        found, _ = judged(heats=(heat, heat))
        first = found.parameters["layers.0"].temperature
        assert not first.low <= first.target <= first.high
        assert found.sampling.holds


def test_temperature_of_all_weights_is_the_mean_of_the_layers():
    found, _ = judged(heats=(1.5, 0.7), sizes=(300, 100))
    layers = [found.parameters[f"layers.{index}"].temperature for index in range(2)]
    exact = (300 * layers[0].value + 100 * layers[1].value) / 400
    assert found.numbers["temperature_value"] == pytest.approx(exact)


def test_too_few_draws_are_unknown():
    """Three draws of few weights have a wide interval: no yes, however it lies."""
    found, _ = judged(sizes=(3, 1), count=3)
    assert found.sampling.holds is not True
    assert "draws" in found.sampling.words


def test_layers_count_by_size():
    most, _ = judged(heats=(4.0, 1.0))
    assert most.numbers["share_too_hot"] == 0.75
    assert most.sampling.holds is False
    least, _ = judged(heats=(1.0, 4.0))
    assert least.numbers["share_too_hot"] == 0.25
    assert least.sampling.holds is not False
    both, _ = judged(heats=(4.0, 0.2), sizes=(200, 200))
    assert both.sampling.holds is False
    many, _ = judged(heats=[4.0] * 6, sizes=[100] * 6)
    assert many.sampling.words.endswith("layers.0, layers.1, layers.2, layers.3 and 2 more")


def test_noise_ratio_over_all_weights():
    found, targets = judged(lrs=[0.01, 0.05], temperature=1.0)
    means = torch.stack([batch.mean(0) for batch in targets.double().split(25)])
    variances = [part.mean().item() for part in means.var(0).split((300, 100))]
    injected = 300 * 2 * 0.01 / 50 + 100 * 2 * 0.05 / 50
    minibatch = 300 * 0.01**2 * variances[0] + 100 * 0.05**2 * variances[1]
    assert found.numbers["noise_ratio"] == pytest.approx(injected / minibatch, rel=1e-4)
    words = f"injected noise is {number(injected / minibatch)} times that of the minibatches"
    assert found.sampling.words.endswith(words)


def test_advice_on_minibatch_noise_depends_on_temperature():
    # Batches of one: their gradient's variance is 1 and the chain's heat T + lr * N / 2.
    hot, _ = judged(batch_size=1, lr=1.0)
    assert hot.sampling.holds is False
    assert hot.numbers["noise_ratio"] == pytest.approx(0.04, rel=0.1)
    assert any("heats the chain to a temperature of up to 2" in one for one in hot.advice)
    assert not any("snapshot" in one for one in hot.advice)
    cold, _ = judged(batch_size=1, lr=0.01, temperature=1e-3, heats=(1e-3, 1e-3))
    assert cold.sampling.answer == "not asked for"
    assert cold.sampling.words == "temperature 0.001"
    assert cold.numbers["noise_ratio"] == pytest.approx(0.004, rel=0.1)
    assert cold.advice == ()


def test_temperature_lowered_by_the_schedule():
    schedule = Constant(20, temperature_scale=1e-3)
    cold, _ = judged(batch_size=1, lr=0.01, schedule=schedule, heats=(1e-3, 1e-3))
    assert cold.numbers["noise_ratio"] == pytest.approx(0.004, rel=0.1)
    assert cold.sampling.answer == "not asked for"


def test_one_full_batch_or_one_draw():
    full, _ = judged(batch_size=50)
    assert full.numbers["noise_ratio"] == math.inf
    assert full.sampling.holds
    alone, _ = judged(count=1)
    assert alone.sampling.holds is None
    assert alone.sampling.words.endswith("a temperature needs at least 2 draws")
    assert alone.numbers["noise_ratio"] > 1


def test_optimised_weights_are_not_asked_and_iterators_are_unknown():
    cases: list[dict[str, Any]] = [
        {"sampler_type": lambda groups, lr, **_: torch.optim.SGD(groups, lr)},
        {"schedule": Constant(20, temperature_scale=0.0)},
        {"temperature": 0.0},
    ]
    for options in cases:
        found, _ = judged(**options)
        assert found.sampling.answer == "not asked for"
        assert "no noise was injected" in found.sampling.words
        assert found.parameters == {}
    spent, _ = judged(data=iter(()))
    assert spent.sampling.holds is None
    assert "read only once" in spent.sampling.words
    assert "noise_ratio" not in spent.numbers


def test_run_without_data():
    logits, labels = truth()
    posterior = posterior_of([logits], [0])
    for temperature, holds, words in ((1.0, None, "loss= and data="), (0.0, None, "no noise")):
        model = Table(logits)
        sampler = SGLD(model.parameters(), 0.1, num_data=10, temperature=temperature)
        stepper = Stepper(model, sampler, Constant(9))
        for loss in (None, cross_entropy):
            found = posterior.check(loader_of(labels), run=stepper, loss=loss)
            assert found.sampling.holds is holds
            assert words in found.sampling.words


def test_invalid_runs_are_rejected():
    logits, labels = truth()
    posterior = posterior_of([logits], [0])
    with pytest.raises(ValueError, match="run must be a Chain or a Stepper, got 'cifar'"):
        posterior.check(loader_of(labels), run="cifar")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="run="):
        posterior.check(loader_of(labels), loss=cross_entropy, data=loader_of(labels))


def test_run_of_the_posterior_is_the_default(tiny):
    loader, data = tiny
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    sampler = SGLD(model.parameters(), lr=0.05, num_data=300, seed=0)
    schedule = Cyclical(400, cycles=2, exploration=0.2, draws_per_cycle=3)
    chain = Chain(model, cross_entropy, loader, sampler, schedule, progress=False)
    held_out = DataLoader(data, batch_size=100)
    posterior = Posterior(model, chain.run(), run=chain)
    found = check(posterior, held_out)
    assert "noise_ratio" in found.numbers
    assert check(Posterior(model, chain.draws), held_out, run=chain).numbers == found.numbers
    parts: Any = {"run": chain.stepper, "loss": cross_entropy, "data": loader}
    assert posterior.check(held_out, **parts).numbers == found.numbers
    assert posterior.with_draws(posterior.draws[:3]).run is chain
    assert posterior.weigh("stacking", held_out).run is chain


# One pass


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_every_draw_is_evaluated_once_per_batch(kind, vectorize):
    seen = []
    draws = MemoryDraws()
    for step in range(3):
        draws.append(Scale(), step=step)
    targets = torch.arange(7) % 3
    likelihood: Any = "categorical"
    if kind == "regression":
        targets, likelihood = torch.randn(7, 3), Gaussian(1.0)
    batches = list(zip(torch.randn(7, 3).split(3), targets.split(3), strict=True))
    posterior = Posterior(
        Scale(lambda outputs: seen.append(len(outputs))),
        draws,
        likelihood=likelihood,
        vectorize=vectorize,
    )
    posterior.check(batches)
    assert sorted(seen) == sorted([3, 3, 1] * (1 if vectorize else 3))


def test_evaluation_equals_predictions_and_scores():
    logits, labels = truth()
    posterior = posterior_of(noisy(logits, 6, 0.3), [0] * 3 + [1] * 3, weights=[1, 2, 0, 1, 1, 1])
    found = evaluate(posterior, loader_of(labels))
    predictive: Any = posterior.predict_loader(loader_of(labels), members=True)
    np.testing.assert_array_equal(found.probs, predictive.probs_numpy())
    np.testing.assert_array_equal(found.members, predictive.member_probs_numpy())
    np.testing.assert_array_equal(found.targets, labels)
    np.testing.assert_array_equal(found.log_scores, posterior.log_scores(loader_of(labels)))
    np.testing.assert_array_equal(found.weights, posterior.weights)
    assert found.cycles.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.chain_ids.tolist() == [0] * 6
    assert found.ranks is None


def test_network_at_chance_makes_all_else_unknown():
    labels = np.arange(200) % 2
    probs = np.full((200, 2), 0.5)
    evaluation = Evaluation(
        weights=np.full(3, 1 / 3),
        chain_ids=np.zeros(3, dtype=np.int64),
        cycles=np.arange(3),
        log_scores=np.full((3, 200), math.log(0.5)),
        members=np.stack([probs] * 3),
        targets=labels,
        probs=probs,
        point_of_target=np.arange(200),
        input_scale=1000.0,
    )
    logits, _ = truth()
    found = judge(posterior_of([logits], [0]), evaluation, None)
    assert found.numbers["nll"] == pytest.approx(math.log(2))
    assert found.learned.holds is False
    for name in ("sampling", "mixing", "diverse", "calibrated", "better"):
        assert getattr(found, name).answer == "unknown"
    assert "scale them" in found.advice[0]
    assert len(str(found).splitlines()) < 8


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_network_worse_than_a_linear_model_has_not_learned(kind):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 5, generator=generator)
    outputs = 3 * inputs @ torch.randn(5, 3, generator=generator)
    model = nn.Linear(5, 3)
    options: Any = {}
    targets = torch.multinomial(outputs.softmax(1), 1, generator=generator)[:, 0]
    if kind == "numbers":
        targets, options = outputs + torch.randn(400, 3), {"likelihood": Gaussian(10.0)}
    solution = torch.linalg.lstsq(inputs, outputs).solution.T
    for share, learned in ((1.0, True), (0.02, False)):
        draws = MemoryDraws()
        with torch.no_grad():
            model.weight.copy_(share * solution)
            model.bias.zero_()
        draws.append(model, step=0)
        found = Posterior(model, draws, **options).check([(inputs, targets)])
        assert found.learned.holds is learned
        assert "nll_linear" in found.numbers or not learned


def test_metrics_of_ones_own_are_in_the_numbers():
    logits, labels = truth()
    posterior = posterior_of([logits, logits], [0, 1])
    own = {"second": lambda probs, y: (probs.argsort(1)[:, -2] == y).mean()}
    numbers = check(posterior, loader_of(labels), metrics=own).numbers
    assert numbers["second"] == pytest.approx((logits.argsort(1)[:, -2] == labels).float().mean())


def test_outputs_that_are_probabilities_are_the_one_cause():
    logits, labels = truth()
    found = posterior_of([logits.softmax(1)] * 2, [0, 1]).check(loader_of(labels))
    assert found.sampling.holds is False
    assert len(str(found).splitlines()) <= 3
    assert "softmax" in found.advice[0]


def test_predictions_that_are_not_finite_are_named():
    logits, labels = truth()
    broken = logits.clone()
    broken[3] = math.nan
    with pytest.raises(ValueError, match="loader"):
        posterior_of([broken], [0]).check(loader_of(labels))


@pytest.mark.parametrize("show", [True, False])
def test_show_prints_the_verdicts(show, capsys):
    logits, labels = truth()
    found = posterior_of([logits], [0]).check(loader_of(labels), show=show)
    assert capsys.readouterr().out == (f"{found}\n" if show else "")


def test_the_starting_network_is_scaled_too():
    """An average of overconfident draws is no better than an overconfident start that is scaled."""
    logits, labels = truth()
    posterior = posterior_of(noisy(2 * logits, 6, 1.0), [0] * 6)
    evaluation = evaluate(posterior, loader_of(labels))
    start = evaluate(posterior_of([5 * logits], [0]), loader_of(labels))
    numbers: dict[str, float] = dict.fromkeys(("nll", "nll_mean_of_draws"), 1.0)
    verdict = check_average(replace(evaluation, start=start), numbers)
    assert numbers["nll_start_scaled"] < -evaluation.average_scores().mean() < numbers["nll_start"]
    assert verdict.holds is False
    assert "than the starting network" in verdict.words


def test_the_starting_network_is_not_a_draw_of_the_run():
    """It does not count in the mixing of the draws, and its cycle is its own."""
    logits, labels = truth()
    plain = posterior_of(noisy(logits, 8, 0.3), [0] * 4 + [1] * 4)
    draws = list(posterior_of([9 * logits], [0]).draws)
    started = plain.with_draws([replace(draws[0], stage="burn-in"), *plain.draws])
    assert started.cycles.tolist() == [0, *[1] * 4, *[2] * 4]
    wanted, found = plain.check(loader_of(labels)), started.check(loader_of(labels))
    assert found.mixing == wanted.mixing
    assert found.numbers["nll"] != wanted.numbers["nll"]

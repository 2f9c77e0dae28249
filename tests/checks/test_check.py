"""The verdicts of `Posterior.check` on posteriors whose faults are known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, SGNHT, Chain, Constant, Cyclical, MemoryDraws, Posterior, Stepper
from csgmcmc.checks import check
from csgmcmc.checks.evaluation import Evaluation, evaluate
from csgmcmc.checks.predictions import check_predictions
from csgmcmc.errors import SamplingWarning
from csgmcmc.loop.watch import describe_noise
from csgmcmc.posterior import Categorical, Gaussian
from tests.posterior.support import Scale, Table

POINTS, CLASSES = 2000, 4


@pytest.fixture
def quick(monkeypatch):
    """Fewer simulations, for tests whose answer is clear."""
    monkeypatch.setattr("csgmcmc.checks.predictions.REPEATS", 20)


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
    sure = posterior_of(noisy(2 * logits, 6, 0.01), [0] * 6).check(loader_of(labels))
    assert sure.calibrated.holds is False
    assert "overconfident" in sure.calibrated.words
    assert any("less confident" in advice for advice in sure.advice)
    modest = posterior_of(noisy(0.4 * logits, 6, 0.01), [0] * 6).check(loader_of(labels))
    assert "underconfident" in modest.calibrated.words
    assert "calibrated  no: calibration error" in str(modest)


def test_calibrated_forecasts_rarely_fail():
    """At a level of 0.99, of 40 honest posteriors 5 or more fail with probability 0.0001."""
    failed = 0
    for seed in range(40):
        logits, labels = truth(seed)
        found = posterior_of([logits[:300], logits[:300]], [0, 1]).check(loader_of(labels[:300]))
        failed += not found.calibrated.holds
    assert failed < 5


def test_draws_of_one_distribution_mix_and_cycles_that_differ_do_not(quick):
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
    assert stuck.numbers["r_hat"] > 1.2
    assert (
        stuck.numbers["disagreement_between_cycles"]
        > 1.5 * stuck.numbers["disagreement_within_cycles"]
    )
    few = posterior_of(noisy(logits, 6, 0.3), [0, 0, 0, 1, 1, 1]).check(loader_of(labels))
    assert few.mixing.holds is None
    assert "has 3 in each of 2" in few.mixing.words


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


def test_best_draw_is_picked_and_compared_on_different_points(quick):
    """Of 60 draws that differ by chance alone, the best of all points has been lucky there."""
    logits, labels = truth()
    found = posterior_of(noisy(logits[:40], 60, 0.3), [0] * 60).check(loader_of(labels[:40]))
    numbers = found.numbers
    assert numbers["nll_best_draw"] < numbers["nll"] < numbers["nll_mean_of_draws"]
    assert numbers["nll_picked_draw"] > numbers["nll"]
    assert found.better.holds
    kinds = ("nll", "nll_mean_of_draws", "nll_best_draw", "nll_picked_draw")
    average, mean, best, picked = (f"{numbers[kind]:.3f}" for kind in kinds)
    assert found.better.words == (
        f"NLL of the average {average}, of the mean draw {mean}, of the best draw {best} "
        f"({picked} if it is picked on other data)"
    )


def test_advice_on_a_bad_cycle(quick):
    logits, labels = truth()
    tables = [*noisy(torch.zeros_like(logits), 3, 3.0), *noisy(logits, 6, 0.01)]
    posterior = posterior_of(tables, [0] * 3 + [1] * 3 + [2] * 3)
    found = posterior.check(loader_of(labels))
    assert found.better.holds is False
    (advice,) = [one for one in found.advice if "is bad" in one]
    assert advice.startswith("a cycle is bad, without it the NLL is ")
    assert advice.endswith(
        'weigh("stacking", held_out) gives bad cycles less weight, burn_in keeps no draws of the '
        "first, more steps make cycles longer"
    )


def test_formatted_noise_ratios():
    assert describe_noise(0.0999).startswith("injected noise is 0.0999 times")
    assert describe_noise(2412.0).startswith("injected noise is 2,400 times")
    assert describe_noise(math.inf) == "the minibatches add no noise"


def test_advice_on_cold_draws_names_the_arguments(quick):
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
    assert "per target" in checked.calibrated.words
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


def test_a_sampler_passes_and_a_snapshot_ensemble_fails(tiny, quick):
    long = Cyclical(4000, cycles=2, exploration=0.2, draws_per_cycle=10)
    sampled = checked(tiny, SGLD, long, lr=0.05, weight_decay=0.01)
    assert sampled.sampling.holds, sampled.sampling.words
    assert sampled.numbers["noise_ratio"] > 0.1
    assert sampled.parameters["weight"].temperature is not None

    with pytest.warns(SamplingWarning, match="close to a snapshot ensemble"):  # the chain says so
        snapshots = checked(tiny, SGHMC, long, lr=0.05, momentum=0.9, temperature=1e-5)
    assert snapshots.sampling.holds is False
    assert snapshots.numbers["noise_ratio"] < 0.1
    assert any("snapshot ensemble" in advice for advice in snapshots.advice)

    optimised = checked(tiny, SGLD, long, lr=0.05, temperature=0.0)
    assert optimised.sampling.holds is False
    assert "no noise was injected" in optimised.sampling.words


def test_sampling_is_unknown_without_a_run():
    logits, labels = truth()
    found = posterior_of([logits, logits], [0, 1]).check(loader_of(labels))
    assert found.sampling.holds is None
    assert "run=" in found.sampling.words
    assert repr(found) == "Check(sampling=None, mixing=None, calibrated=True, better=False)"
    assert str(found).splitlines()[0].startswith("sampling    unknown: needs the run that made")
    assert np.isfinite([found.numbers["nll"], found.numbers["brier"]]).all()


def test_a_loader_without_targets_is_rejected():
    logits, _ = truth()
    with pytest.raises(ValueError, match="loader"):
        posterior_of([logits], [0]).check(DataLoader(TensorDataset(torch.arange(9))))


# Mixing


def few_points(shift, groups, draws, seed):
    """Draws around three points whose groups are `shift` of their standard deviations apart."""
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randn(groups * draws, 3, 2, generator=generator)
    numbers = [group for group in range(groups) for _ in range(draws)]
    tables[:, :, 0] += shift * torch.tensor(numbers)[:, None]
    return list(0.3 * tables), numbers


SHAPES = [(2, 6), (4, 6), (4, 10)]


def test_independent_draws_rarely_fail_mixing():
    """At a level of 0.99, of 24 posteriors 4 or more fail with probability 0.0001."""
    labels, failed = torch.zeros(3, dtype=torch.long), []
    for groups, draws in SHAPES:
        for seed in range(8):
            found = posterior_of(*few_points(0.0, groups, draws, seed)).check(loader_of(labels))
            failed.append(not found.mixing.holds)
            assert found.numbers["r_hat_by_chance"] > 1.0
    assert len(failed) == 24
    assert sum(failed) < 4


@pytest.mark.parametrize(("groups", "draws"), [(2, 6), (4, 6), (4, 10)])
def test_separated_cycles_do_not_mix(groups, draws):
    labels = torch.zeros(3, dtype=torch.long)
    found = posterior_of(*few_points(6.0, groups, draws, seed=0)).check(loader_of(labels))
    assert found.mixing.holds is False
    assert "the cycles predict differently" in "".join(found.advice)


def test_mixing_compares_chains_or_halves_of_one_cycle(quick):
    labels = torch.zeros(3, dtype=torch.long)
    tables, groups = few_points(6.0, 2, 10, seed=0)
    cycles = [0] * 5 + [1] * 5
    chains = posterior_of(tables, 2 * cycles, chains=groups).check(loader_of(labels))
    assert chains.mixing.holds is False
    assert "R-hat of predictions between chains" in chains.mixing.words
    assert "the chains predict differently" in "".join(chains.advice)
    halves = posterior_of(tables, [3] * 20).check(loader_of(labels))
    assert halves.mixing.holds is False
    assert "R-hat of predictions between halves" in halves.mixing.words
    # The same draws with those of both kinds in each chain, whose cycles are apart.
    swapped = [one for pair in zip(tables[:10], tables[10:], strict=True) for one in pair]
    cycles = [number % 2 for number in range(20)]
    mixed = posterior_of(swapped, cycles, chains=groups).check(loader_of(labels))
    assert mixed.mixing.holds
    assert mixed.numbers["r_hat"] < mixed.numbers["r_hat_by_chance"]


def test_identical_draws_mix(quick):
    logits, labels = truth()
    same = posterior_of([logits[:20]] * 12, [0] * 6 + [1] * 6).check(loader_of(labels[:20]))
    assert same.mixing.holds
    assert same.numbers["r_hat"] == 1.0


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
        assert found.better.holds is False


def test_a_nearly_impossible_class_has_a_finite_score():
    tables = [torch.tensor([[0.0, 120.0]]), torch.tensor([[0.0, 121.0]])]
    found = posterior_of(tables, [0, 1]).check(loader_of(torch.tensor([0])))
    exact = -(math.log(0.5) + np.logaddexp(-120.0, -121.0))
    assert found.numbers["nll"] == pytest.approx(exact, rel=1e-6)
    assert found.numbers["nll_best_draw"] == pytest.approx(120.0)


def test_underconfident_and_overconfident_constant_forecasts():
    sure = torch.log(torch.tensor([[0.9, 0.1]])).expand(400, 2)
    right = posterior_of([sure, sure], [0, 1])
    found = right.check(loader_of(torch.zeros(400, dtype=torch.long)))
    assert found.calibrated.holds is False
    assert ", underconfident;" in found.calibrated.words
    assert any("make it more confident" in advice for advice in found.advice)
    assert found.numbers["ece"] == pytest.approx(0.1, abs=1e-6)
    wrong = torch.zeros(400, dtype=torch.long)
    wrong[:80] = 1  # of 20%, where 10% would be honest
    found = right.check(loader_of(wrong))
    assert ", overconfident;" in found.calibrated.words
    assert found.numbers["error"] == pytest.approx(0.2)


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
    """40 points of 50 outputs that are off together: as likely by chance as 40 numbers are."""
    targets = torch.linspace(0.02, 0.98, 40).logit().mul(0.4)[:, None]
    targets[:5] = 9.0  # one in eight is outside: too many of 2000, but not of 40
    table = torch.zeros(40, 50)
    found = posterior_of([table, table], [0, 1], likelihood=Gaussian(1.0))
    checked = found.check(loader_of(targets.expand(40, 50)))
    assert checked.numbers["coverage_90"] == pytest.approx(35 / 40)
    assert checked.calibrated.holds


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


def test_copies_of_one_draw_are_not_better(quick):
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
    return posterior.check(DataLoader(pairs, 50), run=stepper, loss=half_square, data=data), targets


def test_wrong_temperature_with_right_noise():
    right, _ = judged()
    assert right.sampling.holds
    assert right.numbers["share_too_hot"] == right.numbers["share_too_cold"] == 0
    assert not any("draws have not" in advice or "hotter" in advice for advice in right.advice)
    for heat, way, remedy in ((4.0, "hot", "are hotter than"), (0.2, "cold", "not spread out")):
        found, _ = judged(heats=(heat, heat))
        assert found.sampling.holds is False
        assert found.numbers["noise_ratio"] > 1
        assert found.numbers[f"share_too_{way}"] == 1
        assert found.sampling.words.startswith(
            "temperature right to a factor of 2 for 0% of the weights (at least 50%), "
            f"too {way}: layers.0, layers.1; fine: injected noise is"
        )
        assert any(remedy in advice for advice in found.advice)
    # A little off, less than a factor of two, is found but not blamed.
    for heat in (1.5, 0.7):
        found, _ = judged(heats=(heat, heat))
        first = found.parameters["layers.0"].temperature
        assert first is not None
        assert first.verdict != "as it should be"
        assert found.sampling.holds


def test_layers_count_by_size():
    most, _ = judged(heats=(4.0, 1.0))
    assert most.numbers["share_too_hot"] == 0.75
    assert most.sampling.holds is False
    least, _ = judged(heats=(1.0, 4.0))
    assert least.numbers["share_too_hot"] == 0.25
    assert least.sampling.holds
    assert least.sampling.words.endswith("for 75% of the weights (at least 50%), too hot: layers.1")
    assert not any("hotter" in advice for advice in least.advice)
    half, _ = judged(heats=(4.0, 1.0), sizes=(200, 200))
    assert half.sampling.holds
    both, _ = judged(heats=(4.0, 0.2), sizes=(200, 200))
    assert both.sampling.holds is False
    many, _ = judged(heats=[4.0] * 6, sizes=[100] * 6)
    assert "layers.0, layers.1, layers.2, layers.3 and 2 more; fine:" in many.sampling.words


def test_noise_ratio_over_all_weights():
    found, targets = judged(lrs=[0.01, 0.05], temperature=1.0)
    means = torch.stack([batch.mean(0) for batch in targets.double().split(25)])
    variances = [part.mean().item() for part in means.var(0).split((300, 100))]
    injected = 300 * 2 * 0.01 / 50 + 100 * 2 * 0.05 / 50
    minibatch = 300 * 0.01**2 * variances[0] + 100 * 0.05**2 * variances[1]
    assert found.numbers["noise_ratio"] == pytest.approx(injected / minibatch, rel=1e-4)
    words = f"injected noise is {injected / minibatch:.2g} times that of the minibatches"
    assert found.sampling.words.startswith(f"{words} (at least 0.1); temperature right")


def test_advice_on_minibatch_noise_depends_on_temperature():
    # Batches of one: their gradient's variance is 1 and the chain's heat T + lr * N / 2.
    hot, _ = judged(batch_size=1, lr=1.0)
    assert hot.sampling.holds is False
    assert hot.numbers["noise_ratio"] == pytest.approx(0.04, rel=0.1)
    assert any("heats the chain to a temperature of up to 2" in one for one in hot.advice)
    assert not any("snapshot" in one for one in hot.advice)
    cold, _ = judged(batch_size=1, lr=0.01, temperature=1e-3, heats=(1e-3, 1e-3))
    assert cold.sampling.holds is False
    assert cold.numbers["noise_ratio"] == pytest.approx(0.004, rel=0.1)
    assert any("snapshot ensemble" in one for one in cold.advice)
    assert not any("heats the chain" in one for one in cold.advice)
    # Nor is a remedy given for a temperature that the minibatches made.
    heated, _ = judged(batch_size=1, lr=0.01, temperature=1e-3, heats=(0.25, 0.25))
    assert not any("the draws are hotter" in one for one in heated.advice)


def test_temperature_lowered_by_the_schedule():
    schedule = Constant(20, temperature_scale=1e-3)
    cold, _ = judged(batch_size=1, lr=0.01, schedule=schedule, heats=(1e-3, 1e-3))
    assert cold.numbers["noise_ratio"] == pytest.approx(0.004, rel=0.1)
    assert any("snapshot ensemble" in one for one in cold.advice)


def test_a_thermostat_compensates_for_minibatch_noise():
    found, _ = judged(batch_size=1, lr=1.0, sampler_type=SGNHT)
    assert found.numbers["noise_ratio"] < 0.1
    assert found.sampling.holds
    assert not any("minibatches" in advice for advice in found.advice)
    hot, _ = judged(heats=(9.0, 9.0), batch_size=1, lr=1.0, sampler_type=SGNHT)
    assert hot.sampling.holds is False


def test_one_full_batch_or_one_draw():
    full, _ = judged(batch_size=50)
    assert full.numbers["noise_ratio"] == math.inf
    assert full.sampling.holds
    alone, _ = judged(count=1)
    assert alone.sampling.holds is None
    assert alone.sampling.words.endswith("a temperature needs at least 2 draws")
    assert alone.numbers["noise_ratio"] > 1


def test_optimised_weights_fail_and_iterators_are_unknown():
    cases: list[dict[str, Any]] = [
        {"sampler_type": lambda groups, lr, **_: torch.optim.SGD(groups, lr)},
        {"schedule": Constant(20, temperature_scale=0.0)},
        {"temperature": 0.0},
    ]
    for options in cases:
        found, _ = judged(**options)
        assert found.sampling.holds is False
        assert "optimised weights" in found.sampling.words
        assert found.parameters == {}
    spent, _ = judged(data=iter(()))
    assert spent.sampling.holds is None
    assert "read only once" in spent.sampling.words
    assert "noise_ratio" not in spent.numbers


def test_run_without_data():
    logits, labels = truth()
    posterior = posterior_of([logits], [0])
    for temperature, holds, words in ((1.0, None, "loss= and data="), (0.0, False, "no noise")):
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


def test_run_of_the_posterior_is_the_default(tiny, quick):
    loader, data = tiny
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    sampler = SGLD(model.parameters(), lr=0.05, num_data=300, seed=0)
    schedule = Cyclical(60, cycles=2, exploration=0.2, draws_per_cycle=3)
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


def test_draws_that_are_right_about_half_of_the_points(quick):
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
    )
    numbers: dict[str, float] = {}
    mixing, calibrated, better = check_predictions(evaluation, numbers, [])
    assert numbers["nll"] == pytest.approx(math.log(2))
    assert mixing.holds is None
    assert calibrated.holds
    assert better.holds is False


@pytest.mark.parametrize("show", [True, False])
def test_show_prints_the_verdicts(show, capsys):
    logits, labels = truth()
    found = posterior_of([logits], [0]).check(loader_of(labels), show=show)
    assert capsys.readouterr().out == (f"{found}\n" if show else "")

"""The verdicts of `Posterior.check` on posteriors whose faults are known."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, Chain, Cyclical, MemoryDraws, Posterior, Tick
from csgmcmc.posterior import Gaussian

POINTS, CLASSES = 2000, 4


class Table(nn.Module):
    """Logits by the number of the point: any prediction can be made."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.logits[numbers]


def posterior_of(tables, cycles, **options):
    draws = MemoryDraws()
    for step, (table, cycle) in enumerate(zip(tables, cycles, strict=True)):
        draws.append(Table(table), Tick(step, cycle, "sample", 1.0, 1.0, collect=True))
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


def test_honest_forecasts_are_calibrated_and_sharpened_or_blunted_ones_are_not(capsys):
    logits, labels = truth()
    honest = posterior_of(noisy(logits, 8, 0.01), [0] * 4 + [1] * 4).check(loader_of(labels))
    assert honest.calibrated.holds
    assert honest.numbers["ece"] < honest.numbers["ece_by_chance"] < 0.05
    sure = posterior_of(noisy(2 * logits, 8, 0.01), [0] * 8).check(loader_of(labels))
    assert sure.calibrated.holds is False
    assert "overconfident" in sure.calibrated.words
    assert any("less sure" in advice for advice in sure.advice)
    modest = posterior_of(noisy(0.4 * logits, 8, 0.01), [0] * 8).check(loader_of(labels))
    assert "underconfident" in modest.calibrated.words
    assert "calibrated  no: calibration error" in capsys.readouterr().out


def test_honest_forecasts_are_seldom_called_dishonest():
    """At a level of 0.99, of 40 honest posteriors 5 or more fail with probability 0.0001."""
    failed = 0
    for seed in range(40):
        logits, labels = truth(seed)
        found = posterior_of([logits[:300], logits[:300]], [0, 1]).check(loader_of(labels[:300]))
        failed += not found.calibrated.holds
    assert failed < 5


def test_draws_of_one_law_mix_and_cycles_of_their_own_do_not():
    logits, labels = truth()
    cycles = [0] * 20 + [1] * 20
    mixed = posterior_of(noisy(logits, 40, 0.3), cycles).check(loader_of(labels))
    assert mixed.mixing.holds
    assert mixed.numbers["ess"] > 20
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
    diverse = posterior_of(noisy(logits, 8, 1.0), [0] * 8).check(loader_of(labels))
    assert diverse.better.holds
    assert diverse.numbers["nll"] < diverse.numbers["nll_best_draw"]
    spoiled = [*noisy(logits, 4, 0.01), *noisy(torch.zeros_like(logits), 4, 3.0)]
    worse = posterior_of(spoiled, [0] * 8).check(loader_of(labels))
    assert worse.better.holds is False
    alone = posterior_of([logits], [0]).check(loader_of(labels))
    assert alone.better.holds is None


def test_labels_of_yes_and_no():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(POINTS, 3, generator=generator)
    labels = torch.bernoulli(logits.sigmoid(), generator=generator)
    tables = noisy(logits, 8, 0.01)
    found = posterior_of(tables, [0] * 4 + [1] * 4, likelihood="bernoulli")
    checked = found.check(loader_of(labels))
    assert checked.calibrated.holds
    wrong = ((logits > 0).float() != labels).float().mean().item()
    assert checked.numbers["error"] == pytest.approx(wrong, abs=0.01)


def test_regression_by_the_coverage_of_its_intervals():
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(POINTS, 1, generator=generator)
    targets = means + 0.5 * torch.randn(POINTS, 1, generator=generator)
    tables = noisy(means, 8, 0.05)
    for variance, holds, words in ((0.25, True, ""), (0.1, False, "narrow"), (0.5, False, "wide")):
        posterior = posterior_of(tables, [0] * 4 + [1] * 4, likelihood=Gaussian(variance))
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
    return posterior.check(DataLoader(data, batch_size=100), chain=chain)


def test_a_sampler_samples_and_a_snapshot_ensemble_is_told_from_it(tiny):
    long = Cyclical(4000, cycles=2, exploration=0.2, samples_per_cycle=10)
    sampled = checked(tiny, SGLD, long, lr=0.05, weight_decay=0.01)
    assert sampled.sampling.holds, sampled.sampling.words
    assert sampled.numbers["noise_ratio"] > 0.1
    assert sampled.parameters["weight"].temperature is not None

    snapshots = checked(tiny, SGHMC, long, lr=0.05, momentum=0.9, temperature=1e-5)
    assert snapshots.sampling.holds is False
    assert snapshots.numbers["noise_ratio"] < 0.1
    assert any("snapshot ensemble" in advice for advice in snapshots.advice)

    optimised = checked(tiny, SGLD, long, lr=0.05, temperature=0.0)
    assert optimised.sampling.holds is False
    assert "no noise was injected" in optimised.sampling.words


def test_without_the_chain_it_is_not_known_whether_it_sampled(tiny):
    logits, labels = truth()
    found = posterior_of([logits, logits], [0, 1]).check(loader_of(labels))
    assert found.sampling.holds is None
    assert "chain=" in found.sampling.words
    assert repr(found) == "Check(sampling=None, mixing=None, calibrated=True, better=False)"
    assert str(found).splitlines()[0].startswith("sampling    unknown: give check the chain")
    assert np.isfinite([found.numbers["nll"], found.numbers["brier"]]).all()


def test_a_loader_without_targets_is_refused():
    logits, _ = truth()
    with pytest.raises(ValueError, match="pairs of inputs and targets"):
        posterior_of([logits], [0]).check(DataLoader(TensorDataset(torch.arange(9))))

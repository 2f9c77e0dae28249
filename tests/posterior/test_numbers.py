"""Likelihoods of numbers and grades against scipy, and the mixture that draws make of them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor, nn

from csgmcmc import MemoryDraws, Posterior
from csgmcmc.posterior import (
    Gaussian,
    GaussianPredictive,
    Likelihood,
    NegativeBinomial,
    NumberLikelihood,
    NumberPredictive,
    Ordinal,
    Poisson,
    StudentT,
)
from csgmcmc.posterior.names import NAMED, as_likelihood

POINTS = 400


class Outputs(nn.Module):
    """Its weights are the outputs: one tensor, or two for a tuple."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(tensor) for tensor in tensors])

    def forward(self, rows: Tensor) -> Any:
        found = [tensor[rows] for tensor in self.tensors]
        return found[0] if len(found) == 1 else tuple(found)


def posterior_of(likelihood: Any, *members: tuple[Tensor, ...], **options: Any) -> Posterior:
    draws = MemoryDraws()
    for step, tensors in enumerate(members):
        draws.append(Outputs(*tensors), step=step)
    return Posterior(Outputs(*members[0]), draws, likelihood=likelihood, **options)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ONE, TWO = drawn(POINTS, 2), 0.3 * drawn(POINTS, 2, seed=1)

# Each likelihood with outputs of a model, and the same distribution of scipy.
CASES: list[tuple[NumberLikelihood, tuple[Tensor, ...], Any]] = [
    (Gaussian(0.25), (ONE,), stats.norm(ONE, 0.5)),
    (Gaussian(), (ONE, TWO.exp()), stats.norm(ONE, (TWO / 2).exp())),
    (StudentT(5, scale=0.5), (ONE,), stats.t(5, ONE, 0.5)),
    (StudentT(3), (ONE, TWO.exp()), stats.t(3, ONE, TWO.exp())),
    (Poisson(), (ONE,), stats.poisson(ONE.exp())),
    (NegativeBinomial(0.5), (ONE,), stats.nbinom(2, 1 / (1 + 0.5 * ONE.exp()))),
    (NegativeBinomial(), (ONE, TWO), stats.nbinom((-TWO).exp(), 1 / (1 + (ONE + TWO).exp()))),
]
NAMES = [f"{case[0]}-{len(case[1])}" for case in CASES]


def targets_of(known: Any, seed: int = 2) -> Tensor:
    return torch.from_numpy(np.asarray(known.rvs(random_state=seed), dtype=float))


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_scores_moments_and_ranks_are_those_of_scipy(likelihood, outputs, known):
    targets = targets_of(known)
    stacked: Any = tuple(output[None] for output in outputs)
    stacked = stacked[0] if len(stacked) == 1 else stacked
    log = getattr(known, "logpdf" if hasattr(known.dist, "pdf") else "logpmf")(targets.numpy())
    found = likelihood.log_prob(stacked, targets)
    assert_allclose(found[0], log.sum(axis=1), rtol=1e-9)  # over both outputs of a point
    mean, variance = likelihood.mean_and_variance(stacked)
    assert_allclose(mean[0], known.mean(), rtol=1e-9)
    assert_allclose(variance[0], known.var(), rtol=1e-9)
    ranks = likelihood.cumulative(stacked, targets)[0].numpy()
    # Of the right distribution they are uniform: a p-value below this comes once in 150,000 times.
    assert stats.kstest(ranks.ravel(), "uniform").pvalue > 1 / 150_000
    upper = known.cdf(targets.numpy())
    assert (ranks <= upper + 1e-12).all()
    assert (ranks >= known.cdf(targets.numpy() - 1) - 1e-12).all()


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_the_log_score_is_proper(likelihood, outputs, known):
    """The true outputs score better than others on targets that they made."""
    targets = targets_of(known)
    others = (outputs[0] + 0.7, *outputs[1:])
    posterior = posterior_of(likelihood, outputs, others)
    right, wrong = posterior.log_scores([(torch.arange(POINTS), targets)]).mean(1).tolist()
    assert right > wrong + 0.05


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_quantiles_of_a_mixture_have_its_cumulative_probabilities(likelihood, outputs, known):
    others = (outputs[0] + 1.0, *outputs[1:])
    rows, weights = torch.arange(50), [3, 1, 0]
    posterior = posterior_of(likelihood, outputs, others, others, weights=weights)
    predicted: Any = posterior.predict(rows, members=True)
    assert isinstance(predicted, NumberPredictive)
    assert isinstance(predicted, GaussianPredictive) == isinstance(likelihood, Gaussian)

    def cumulative(values: Tensor) -> Any:
        assert predicted.mixture is not None
        parameters = predicted.mixture.parameters.items()
        members = known.dist(**{name: value.numpy()[:2] for name, value in parameters})
        return 0.75 * members.cdf(values)[0] + 0.25 * members.cdf(values)[1]

    for q in (0.05, 0.5, 0.99):
        at = predicted.quantile(q)
        assert at.shape == predicted.mean.shape == (50, 2)
        if hasattr(known.dist, "pdf"):
            assert_allclose(cumulative(at), q, atol=1e-9)
        else:  # the first whole number that reaches it
            assert (cumulative(at) >= q - 1e-12).all()
            assert (cumulative(at - 1) < q).all()
    low, high = predicted.interval(0.9)
    torch.testing.assert_close(torch.stack([low, high]), predicted.quantile([0.05, 0.95]))
    samples = predicted.sample(2000, seed=0)
    assert samples.shape == (2000, 50, 2)
    inside = ((samples >= low) & (samples <= high)).double().mean().item()
    assert 0.88 < inside < 1.0
    assert torch.equal(samples, predicted.sample(2000, seed=0))
    spread = (samples.mean(0) - predicted.mean) / (predicted.variance / 2000).sqrt()
    assert spread.abs().max() < 6


def test_predictions_of_a_loader_have_the_same_quantiles_as_one_batch():
    posterior = posterior_of("gaussian", (ONE, TWO.exp()), (ONE + 1, TWO.exp()))
    rows = torch.arange(30)
    whole: Any = posterior.predict(rows, members=True)
    parts: Any = posterior.predict_loader([rows[:20], rows[20:]], members=True)
    torch.testing.assert_close(parts.quantile([0.1, 0.9]), whole.quantile([0.1, 0.9]))


def test_quantiles_need_the_members_and_levels_between_0_and_1():
    posterior = posterior_of("poisson", (ONE,))
    without: Any = posterior.predict(torch.arange(3))
    for call in (lambda: without.interval(0.9), lambda: without.sample(3)):
        with pytest.raises(ValueError, match="predict with members=True"):
            call()
    predicted: Any = posterior.predict(torch.arange(3), members=True)
    for wrong in (0, 1, -0.5, [0.5, 2], "half"):
        with pytest.raises(ValueError, match="q must be"):
            predicted.quantile(wrong)
    with pytest.raises(ValueError, match="level must be"):
        predicted.interval(90)


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_right_intervals_are_called_calibrated_and_shifted_ones_are_not(likelihood, outputs, known):
    data = [(torch.arange(POINTS), targets_of(known))]
    right = posterior_of(likelihood, outputs, outputs).check(data)
    assert right.calibrated.holds, right.calibrated.words
    wrong = (outputs[0] + 1.5, *outputs[1:])
    assert posterior_of(likelihood, wrong, wrong).check(data).calibrated.holds is False


def test_targets_that_are_no_counts_are_refused():
    for likelihood in (Poisson(), NegativeBinomial(1.0)):
        for wrong in (-1.0, 0.5):
            with pytest.raises(ValueError, match=f"targets must be counts, got {wrong:g}"):
                likelihood.log_prob(torch.zeros(1, 3), torch.tensor([0.0, 2.0, wrong]))


def test_a_second_parameter_is_an_output_or_an_argument():
    unknown: list[tuple[Any, str]] = [(StudentT(), "scale"), (NegativeBinomial(), "dispersion")]
    for likelihood, name in [*unknown, (Gaussian(), "variance")]:
        with pytest.raises(ValueError, match=rf"the {name} of the noise is unknown: .* a tuple"):
            likelihood.log_prob(torch.zeros(1, 3, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"got 2 outputs and scale=1.0"):
        StudentT(scale=1).log_prob((torch.zeros(1, 3), torch.ones(1, 3)), torch.zeros(3))
    with pytest.raises(ValueError, match="df must be above 2"):
        StudentT(df=2)


# Grades


def test_probabilities_of_grades_are_differences_of_sigmoids():
    scores, cuts = drawn(1, 50), [-1.0, 0.5, 2.0]
    edges = torch.tensor([-math.inf, *cuts, math.inf], dtype=torch.float64)
    below = torch.sigmoid(edges[:, None] - scores[0])
    likelihood = Ordinal(cuts)
    for grade in range(4):
        targets = torch.full((50,), grade)
        exact = (below[grade + 1] - below[grade]).log()
        assert_allclose(likelihood.log_prob(scores, targets)[0], exact, rtol=1e-9)
        column = likelihood.log_prob(scores[..., None], targets)  # as a linear layer returns them
        assert_allclose(column[0], exact, rtol=1e-9)
        learned = Ordinal().log_prob((scores, edges[None, 1:-1]), targets)
        assert_allclose(learned[0], exact, rtol=1e-9)
    far = likelihood.log_prob(torch.full((1, 1), 200.0), torch.tensor([1]))
    assert far.item() == pytest.approx(-199.5 + math.log(1 - math.exp(-1.5)), rel=1e-6)


def test_grades_are_averaged_and_checked_as_classes(monkeypatch):
    monkeypatch.setattr("csgmcmc.checks.check.REPEATS", 20)
    scores = drawn(POINTS)
    posterior = posterior_of(Ordinal([-1, 1]), (scores,), (scores + 0.1,))
    predicted: Any = posterior.predict(torch.arange(POINTS))
    assert predicted.probs.shape == (POINTS, 3)
    assert_allclose(predicted.probs.sum(1), 1, rtol=1e-6)
    grades = torch.multinomial(predicted.probs, 1, generator=torch.Generator().manual_seed(0))
    assert posterior.check([(torch.arange(POINTS), grades[:, 0])]).calibrated.holds


def test_cuts_that_do_not_ascend_are_refused():
    cases: list[Any] = [[], [1, 1], [2, 1], "ab", [0, math.nan]]
    for wrong in cases:
        with pytest.raises(ValueError, match="cuts must be"):
            Ordinal(wrong)
    with pytest.raises(ValueError, match="scores with cuts= given"):
        Ordinal().log_prob(torch.zeros(1, 3), torch.zeros(3).long())
    with pytest.raises(ValueError, match=r"targets of shape \(2,\) do not fit scores"):
        Ordinal([0]).log_prob(torch.zeros(1, 3), torch.zeros(2).long())


def test_every_likelihood_has_a_name():
    for name, kind in NAMED.items():
        assert type(as_likelihood(name)) is kind
        assert issubclass(kind, Likelihood)

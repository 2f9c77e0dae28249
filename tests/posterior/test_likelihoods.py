"""Every likelihood: its scores against scipy and torch, its average over draws by brute force."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from torch import Tensor, nn

from csgmcmc import MemoryDraws, Posterior
from csgmcmc.checks.calibration import check_calibration
from csgmcmc.checks.evaluation import evaluate
from csgmcmc.posterior import (
    Bernoulli,
    Categorical,
    Gaussian,
    NegativeBinomial,
    NumberPredictive,
    Poisson,
    StudentT,
    likelihoods,
)
from csgmcmc.posterior.likelihoods import as_likelihood
from csgmcmc.posterior.likelihoods.base import NumberLikelihood

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
def test_scores_moments_and_ranks_match_scipy(likelihood, outputs, known):
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
    # Uniform under the right distribution: a p-value below this occurs once in 150,000 times.
    assert stats.kstest(ranks.ravel(), "uniform").pvalue > 1 / 150_000
    upper = known.cdf(targets.numpy())
    assert (ranks <= upper + 1e-12).all()
    assert (ranks >= known.cdf(targets.numpy() - 1) - 1e-12).all()


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_true_outputs_have_the_better_log_score(likelihood, outputs, known):
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
        with pytest.raises(ValueError, match="members=True"):
            call()
    predicted: Any = posterior.predict(torch.arange(3), members=True)
    for wrong in (0, 1, -0.5, [0.5, 2], "half"):
        with pytest.raises(ValueError, match="q must be"):
            predicted.quantile(wrong)
    with pytest.raises(ValueError, match="level must be"):
        predicted.interval(90)


@pytest.mark.parametrize(("likelihood", "outputs", "known"), CASES, ids=NAMES)
def test_check_finds_shifted_intervals_miscalibrated(likelihood, outputs, known):
    data = [(torch.arange(POINTS), targets_of(known))]
    right = posterior_of(likelihood, outputs, outputs).check(data)
    assert right.calibrated.holds, right.calibrated.words
    wrong = (outputs[0] + 1.5, *outputs[1:])
    found = check_calibration(evaluate(posterior_of(likelihood, wrong, wrong), data), {})
    assert found.holds is not True


def test_targets_that_are_not_counts_are_rejected():
    for likelihood in (Poisson(), NegativeBinomial(1.0)):
        for wrong in (-1.0, 0.5):
            with pytest.raises(ValueError, match="targets must be counts"):
                likelihood.log_prob(torch.zeros(1, 3), torch.tensor([0.0, 2.0, wrong]))


def test_a_second_parameter_is_an_output_or_an_argument():
    unknown: list[tuple[Any, str]] = [(StudentT(), "scale"), (NegativeBinomial(), "dispersion")]
    for likelihood, name in [*unknown, (Gaussian(), "variance")]:
        with pytest.raises(ValueError, match=f"{name}="):
            likelihood.log_prob(torch.zeros(1, 3, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="scale="):
        StudentT(scale=1).log_prob((torch.zeros(1, 3), torch.ones(1, 3)), torch.zeros(3))
    with pytest.raises(ValueError, match="df must be above 2"):
        StudentT(df=2)


# Conformance: every file in posterior/likelihoods. One needs an entry here if its outputs
# are neither logits of classes nor pairs of a location and a positive number.

MEMBERS, ROWS = 3, 40
WEIGHTS = np.array([0.5, 0.2, 0.3])
LOGITS = drawn(MEMBERS, ROWS, 3)
OTHER_OUTPUTS: dict[str, tuple[Tensor, ...]] = {
    "bernoulli": (LOGITS[..., :1],),
    "poisson": (LOGITS,),
}
DISCOVERED = likelihoods.discover()
NUMBERS = [name for name, kind in DISCOVERED.items() if issubclass(kind, NumberLikelihood)]
CLASSES = sorted(DISCOVERED.keys() - set(NUMBERS))

NEW_LIKELIHOOD = """
from csgmcmc.posterior.likelihoods.gaussian import Gaussian

class Wide(Gaussian):
    name = "wide"
"""


def members_of(name: str) -> tuple[Tensor, ...]:
    """Outputs of shape (draws, points, ...)."""
    pair = (LOGITS, (0.3 * drawn(MEMBERS, ROWS, 3, seed=1)).exp())
    return OTHER_OUTPUTS.get(name, pair if name in NUMBERS else (LOGITS,))


def as_outputs(tensors: tuple[Tensor, ...]) -> Any:
    return tensors[0] if len(tensors) == 1 else tensors


def averaged(name: str) -> Any:
    average = as_likelihood(name).average(WEIGHTS, keep_members=True)
    average.add(list(range(len(WEIGHTS))), as_outputs(members_of(name)))
    return average.result()


def brute_force(weights: Any, values: Any) -> Any:
    return np.einsum("m,m...->...", weights, values)


def test_every_likelihood_is_found_by_its_name():
    expected = {"bernoulli", "categorical", "gaussian", "negative-binomial", "poisson"}
    assert set(DISCOVERED) >= {*expected, "student-t"}
    for name, kind in DISCOVERED.items():
        assert type(as_likelihood(name)) is kind
        assert kind.__doc__
    with pytest.raises(ValueError, match="likelihood must be"):
        as_likelihood("student")


def test_new_file_is_found(tmp_path, monkeypatch):
    (tmp_path / "wide.py").write_text(NEW_LIKELIHOOD)
    monkeypatch.setattr(likelihoods, "__path__", [*likelihoods.__path__, str(tmp_path)])
    wide: Any = as_likelihood("wide")
    assert type(wide).__name__ == "Wide"
    assert posterior_of("wide", (ONE, TWO.exp())).likelihood.name == "wide"


@pytest.mark.parametrize("name", CLASSES)
def test_average_of_classes_is_the_mean_of_likelihoods(name):
    """Also: probabilities of all possible targets sum to 1, draw by draw."""
    likelihood, outputs = as_likelihood(name), as_outputs(members_of(name))
    predicted = averaged(name)
    probs, total = predicted.probs_numpy(), np.zeros((MEMBERS, ROWS))
    for label in range(probs.shape[1]):
        own = likelihood.log_prob(outputs, torch.full((ROWS,), label)).exp().numpy()
        assert_allclose(probs[:, label], brute_force(WEIGHTS, own), rtol=1e-9)
        total += own
    assert_allclose(total, 1, rtol=1e-9)
    members = predicted.member_probs_numpy()
    assert_allclose(probs, brute_force(WEIGHTS, members), rtol=1e-9)
    entropies = -(members * np.log(members)).sum(-1)
    assert_allclose(
        predicted.expected_entropy.flatten(), brute_force(WEIGHTS, entropies), rtol=1e-9
    )


@pytest.mark.parametrize("name", NUMBERS)
def test_scores_and_moments_of_numbers_match_their_family_in_scipy(name):
    likelihood: Any = as_likelihood(name)
    outputs = as_outputs(members_of(name))
    parameters = {key: each.numpy() for key, each in likelihood.parameters(outputs).items()}
    known = getattr(stats, likelihood.family)(**parameters)
    targets = torch.from_numpy(known.rvs(random_state=0)[0].astype(float))
    log = getattr(known, "logpdf" if hasattr(known.dist, "pdf") else "logpmf")(targets.numpy())
    assert_allclose(likelihood.log_prob(outputs, targets), log.sum(-1), rtol=1e-9)
    mean, variance = likelihood.mean_and_variance(outputs)
    assert_allclose(mean, known.mean(), rtol=1e-9)
    assert_allclose(variance, known.var(), rtol=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
def test_average_of_numbers_has_the_moments_of_the_mixture(name):
    likelihood: Any = as_likelihood(name)
    mean, variance = map(np.asarray, likelihood.mean_and_variance(as_outputs(members_of(name))))
    predicted = averaged(name)
    expected = brute_force(WEIGHTS, mean)
    second_moment = brute_force(WEIGHTS, variance + mean**2)
    assert_allclose(predicted.mean, expected, rtol=1e-9)
    assert_allclose(predicted.variance, second_moment - expected**2, rtol=1e-7)
    assert_allclose(predicted.noise_variance, brute_force(WEIGHTS, variance), rtol=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
def test_quantiles_are_monotone_and_between_those_of_the_members(name):
    likelihood: Any = as_likelihood(name)
    levels = [0.01, 0.1, 0.5, 0.9, 0.99]
    found = averaged(name).quantile(levels).numpy()
    assert (np.diff(found, axis=0) >= 0).all()
    parameters = likelihood.parameters(as_outputs(members_of(name)))
    for level, quantile in zip(levels, found, strict=True):
        own = getattr(stats, likelihood.family)(**parameters).ppf(level)
        assert (quantile >= own.min(0) - 1e-9).all()
        assert (quantile <= own.max(0) + 1e-9).all()


@pytest.mark.parametrize("name", sorted(DISCOVERED))
def test_half_precision_outputs_are_scored_in_single_precision(name):
    likelihood, tensors = as_likelihood(name), members_of(name)
    half = as_outputs(tuple(each.bfloat16() for each in tensors))
    single = as_outputs(tuple(each.bfloat16().float() for each in tensors))
    targets = torch.ones((ROWS, 3) if name in NUMBERS else (ROWS,), dtype=torch.long)
    torch.testing.assert_close(
        likelihood.log_prob(half, targets), likelihood.log_prob(single, targets), rtol=0, atol=0
    )


@pytest.mark.parametrize("likelihood", [Categorical, Bernoulli])
def test_a_temperature_divides_the_logits_of_every_draw(likelihood, tmp_path):
    members = [(drawn(POINTS, 3, seed=seed),) for seed in range(4)]
    cooler = [(logits / 2.5,) for (logits,) in members]
    rows = torch.arange(POINTS)
    targets = torch.arange(POINTS) % 3 if likelihood is Categorical else (ONE[:, :1] > 0).long()
    targets = targets if likelihood is Categorical else targets.expand(POINTS, 3)
    scaled = posterior_of(likelihood(temperature=2.5), *members)
    plain = posterior_of(likelihood(), *cooler)
    assert_allclose(scaled.log_scores([(rows, targets)]), plain.log_scores([(rows, targets)]))
    found, wanted = scaled.predict(rows), plain.predict(rows)
    for name in ("probs", "entropy", "mutual_information", "spread"):
        assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-12)
    program = scaled.export(tmp_path / "scaled.pt2", rows)
    assert_allclose(program.module()(rows)["probs"], wanted.probs, atol=1e-12)
    again = scaled.with_draws(scaled.draws[:1]).likelihood
    assert again.temperature == 2.5
    assert again.scaled(1.0).temperature == 1
    assert again.temperature == 2.5
    with pytest.raises(ValueError, match="temperature must be above 0"):
        likelihood(temperature=0)
    with pytest.raises(ValueError, match="no logits that a temperature could scale"):
        Gaussian().scaled(2.0)

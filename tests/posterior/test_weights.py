"""Weights of cycles and regions, against masses that are known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csgmcmc import SGLD, Chain, Cyclical, Posterior
from csgmcmc.posterior import Gaussian
from csgmcmc.posterior.members import MOST_AT_ONCE
from csgmcmc.posterior.regions import find_regions
from csgmcmc.posterior.weights import harmonic_weights, mass_weights, stacking_weights
from csgmcmc.targets import Density, Mixture
from tests.posterior.support import in_memory, mlp, random
from tests.support import SIGMAS

MASSES = np.array([0.6, 0.3, 0.1])


def three_modes(variances, dimension, draws_each, seed=0):
    """Exact draws from each of three modes, the log of the density there, and the modes."""
    generator = np.random.default_rng(seed)
    means = np.zeros((3, dimension))
    means[1, 0], means[2, 0] = 9.0, -9.0
    variances = np.asarray(variances)
    modes = np.repeat(np.arange(3), draws_each)
    noise = generator.normal(size=(len(modes), dimension))
    points = means[modes] + np.sqrt(variances[modes])[:, None] * noise
    squares = np.square(points[:, None] - means).sum(-1)
    scale = np.log(MASSES) - dimension / 2 * np.log(2 * np.pi * variances)
    return points, np.logaddexp.reduce(scale - squares / (2 * variances), axis=1), modes


def shares(weights, groups):
    return np.array([weights[groups == group].sum() for group in np.unique(groups)])


def mass_tolerance(draws_each):
    """How far shares of mass may be off.

    The estimator's relative variance is at most 2.5 over the draws, for two to ten dimensions at
    level 0.5; a share w moves by w * (1 - w) times two of those.
    """
    return SIGMAS * MASSES * (1 - MASSES) * np.sqrt(2 * 2.5 / draws_each)


def test_harmonic_weights_by_hand():
    # 1/L is 2, 4 and 5, 5: harmonic means 1/3 and 1/5.
    weights = harmonic_weights(np.log([1 / 2, 1 / 4, 1 / 5, 1 / 5]), [0, 0, 1, 1])
    assert weights == pytest.approx([5 / 16, 5 / 16, 3 / 16, 3 / 16])
    # At T = 1/2 likelihoods are squared: 1/L is 4, 16 and 25, 25.
    warm = harmonic_weights(np.log([1 / 2, 1 / 4, 1 / 5, 1 / 5]), [0, 0, 1, 1], temperature=0.5)
    assert shares(warm, np.array([0, 0, 1, 1])) == pytest.approx([25 / 35, 10 / 35])
    assert harmonic_weights([-1.0, -1.0, -9.0], [0, 1, -1]) == pytest.approx([0.5, 0.5, 0])


@given(shift=st.floats(-1e6, 1e6))
def test_harmonic_weights_depend_only_on_differences_and_never_overflow(shift):
    log_likelihoods = np.array([0.0, -0.5, -1.0, -3.0])
    expected = harmonic_weights(log_likelihoods, [0, 0, 1, 1])
    assert harmonic_weights(log_likelihoods + shift, [0, 0, 1, 1]) == pytest.approx(expected)


def test_for_networks_one_cycle_gets_all_of_the_harmonic_weight():
    weights = harmonic_weights([-10_250.0, -10_300.0, -10_120.0, -10_110.0], [0, 0, 1, 1])
    assert np.isfinite(weights).all()
    assert weights == pytest.approx([0, 0, 0.5, 0.5], abs=1e-12)


def test_a_draw_of_likelihood_zero_costs_its_cycle_the_weight():
    assert harmonic_weights([-1.0, -np.inf, -5.0], [0, 0, 1]) == pytest.approx([0, 0, 1])
    with pytest.raises(ValueError, match="no group has a weight"):
        harmonic_weights([-np.inf, -np.inf], [0, 1])


def test_harmonic_weights_recover_masses_where_prior_masses_are_equal_and_likelihoods_broad():
    """Here the variance of 1/L is finite, and the evidence is known exactly.

    Two regions of prior N(c, 1) with half of the prior each, and a likelihood exp(-x^2/8) in each,
    of different heights.
    """
    generator = np.random.default_rng(1)
    count, heights = 20_000, np.array([1.0, 3.0])
    offsets = np.sqrt(0.8) * generator.normal(size=(2, count))  # the posterior in each region
    log_likelihoods = np.log(heights)[:, None] - offsets**2 / 8
    groups = np.repeat([0, 1], count)
    found = shares(harmonic_weights(log_likelihoods.ravel(), groups), groups)
    # Evidence is the height times the same integral. 1/L = exp(x^2/8) has relative variance
    # (1 - 0.2)/sqrt(1 - 0.4) - 1 = 0.0328 under N(0, 0.8).
    exact = heights / heights.sum()
    tolerance = SIGMAS * exact.prod() * np.sqrt(2 * 0.0328 / count)
    assert abs(found[0] - exact[0]) < tolerance


def test_the_harmonic_mean_fails_for_plain_modes_of_unequal_width_and_the_mass_does_not():
    points, log_densities, modes = three_modes([0.1, 0.3, 0.9], dimension=10, draws_each=4000)
    harmonic = shares(harmonic_weights(log_densities, modes), modes)
    assert harmonic[0] > 0.95  # the narrow mode takes all, since its region is small
    mass = shares(mass_weights(points, log_densities, modes), modes)
    assert (np.abs(mass - MASSES) < mass_tolerance(4000)).all()


def test_the_harmonic_mean_has_no_finite_variance_even_for_equal_modes():
    """In the same setting, twenty data sets: its answers scatter many times more than the mass'."""
    harmonic, mass = [], []
    for seed in range(20):
        points, log_densities, modes = three_modes([0.3] * 3, 10, draws_each=1000, seed=seed)
        harmonic.append(shares(harmonic_weights(log_densities, modes), modes))
        mass.append(shares(mass_weights(points, log_densities, modes), modes))
    assert (np.abs(np.array(mass) - MASSES) < mass_tolerance(1000)).all()
    assert np.std(harmonic, axis=0)[0] > 5 * np.std(mass, axis=0)[0]


def test_mass_does_not_depend_on_how_often_a_mode_was_visited():
    visits = np.array([500, 4000, 4000])
    points, log_densities, modes = three_modes([0.2, 0.2, 0.5], dimension=2, draws_each=visits)
    mass = shares(mass_weights(points, log_densities, modes), modes)
    assert (np.abs(mass - MASSES) < mass_tolerance(500)).all()
    assert np.abs(visits / visits.sum() - MASSES).max() > 0.4
    cold = mass_weights(points, log_densities / 3, modes, temperature=1 / 3)
    assert shares(cold, modes) == pytest.approx(mass)


def test_regions_are_found_by_clustering():
    points, _, modes = three_modes([0.2, 0.2, 0.5], 2, draws_each=np.array([300, 9000, 600]))
    regions = find_regions(points)
    pairs = set(zip(regions.tolist(), modes.tolist(), strict=True))
    assert len(pairs) == 3  # one region for each mode, and no draw elsewhere
    assert set(find_regions(np.random.default_rng(0).normal(size=(200, 2)))) == {0}


def test_modes_that_a_sampler_visits_unevenly_are_weighed_by_their_mass():
    """CSGLD over two modes: cycles end in them about equally often, the masses are 0.8 and 0.2."""
    means = torch.tensor([[-3.0, 0.0], [3.0, 0.0]])
    target = Mixture(means, variance=0.2, weights=torch.tensor([0.8, 0.2]))
    starts = 4 * torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    model = Density(target, starts)
    sampler = SGLD(model.parameters(), lr=0.35, num_data=1, seed=0)
    schedule = Cyclical(2000, cycles=4, exploration=0.9, every=2)
    draws = Chain(model, None, None, sampler, schedule, progress=False).run()
    points = torch.cat([draw.tensors()["points"] for draw in draws])
    regions = find_regions(points)
    modes = (points[:, 0] > 0).long().numpy()
    visits = np.bincount(modes) / len(modes)
    found = shares(mass_weights(points, -target.potential(points).double(), regions), modes)
    assert np.abs(visits - [0.8, 0.2]).max() > 0.2
    assert np.abs(found - [0.8, 0.2]).max() < 0.02


def test_stacking_recovers_the_shares_of_a_mixture_of_predictions():
    generator = np.random.default_rng(2)
    means, points = np.array([-2.0, 0.0, 2.0]), 20_000
    targets = means[generator.choice(3, points, p=MASSES)] + generator.normal(size=points)
    log_scores = -0.5 * (targets - means[:, None]) ** 2 - 0.5 * np.log(2 * np.pi)
    weights = stacking_weights(log_scores)
    # Maximum likelihood of the shares: their Fisher information gives the standard errors.
    ratios = np.exp(log_scores - np.logaddexp.reduce(np.log(MASSES)[:, None] + log_scores, axis=0))
    contrasts = ratios[:2] - ratios[2]
    errors = np.sqrt(np.diag(np.linalg.inv(contrasts @ contrasts.T)))
    assert (np.abs(weights - MASSES)[:2] < SIGMAS * errors).all()


@given(seed=st.integers(0, 10_000), draws=st.integers(1, 12), points=st.integers(1, 60))
def test_no_other_weights_have_a_better_held_out_score(seed, draws, points):
    generator = np.random.default_rng(seed)
    log_scores = generator.normal(scale=5, size=(draws, points)) - 1e4

    def score(weights):
        with np.errstate(divide="ignore"):
            return np.logaddexp.reduce(np.log(weights)[:, None] + log_scores, axis=0).mean()

    weights = stacking_weights(log_scores)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    others = generator.dirichlet(np.ones(draws), size=20)
    corners = np.eye(draws)
    assert score(weights) + 2e-4 >= max(map(score, [*others, *corners]))


def test_stacking_of_groups_shares_the_weight_of_a_group_among_its_draws():
    # On half of the points group 0 is right, on the rest group 1; its second draw never is.
    log_scores = np.log([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    weights = stacking_weights(log_scores, [0, 0, 1])
    assert weights[0] == weights[1]
    # Grouped: maximise log(0.2 + 0.7 w) + log(0.8 - 0.7 w), whose best w is 0.6 / 1.4.
    assert 2 * weights[0] == pytest.approx(0.6 / 1.4, abs=0.01)
    assert stacking_weights(log_scores, [0, -1, -1]) == pytest.approx([1, 0, 0])


def test_bad_input():
    with pytest.raises(ValueError, match=r"one entry for each draw, got shapes \(2,\) and \(3,\)"):
        harmonic_weights([1.0, 2.0], [0, 0, 1])
    with pytest.raises(ValueError, match="must hold no nan"):
        harmonic_weights([1.0, np.nan], [0, 1])
    with pytest.raises(ValueError, match="temperature must be above 0"):
        harmonic_weights([1.0], [0], temperature=0)
    with pytest.raises(ValueError, match="no draw is in a group"):
        harmonic_weights([1.0], [-1])
    with pytest.raises(ValueError, match=r"region 1 has 2 draws in 2 .* at least 50"):
        points = np.random.default_rng(0).normal(size=(62, 2))
        mass_weights(points, np.zeros(62), [0] * 60 + [1] * 2)
    with pytest.raises(ValueError, match="draws of region 0 do not span all dimensions"):
        mass_weights(np.zeros((60, 2)), np.zeros(60), [0] * 60)
    with pytest.raises(ValueError, match=r"points must have shape \(3, d\), got \(2, 2\)"):
        mass_weights(np.zeros((2, 2)), np.zeros(3), [0, 0, 0])
    with pytest.raises(ValueError, match="likelihood 0 under every draw"):
        stacking_weights([[-np.inf, 0.0], [-np.inf, 0.0]])
    with pytest.raises(ValueError, match=r"\(draws, points\), got \(2,\)"):
        stacking_weights([1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(draws, dimensions\), none empty, got shape \(3,\)"):
        find_regions([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="number of points must be at least 10, got 3"):
        find_regions(np.zeros((3, 2)))


def test_groups_of_unequal_sizes_share_their_weights_out():
    weights = harmonic_weights(np.log([1 / 3, 1 / 2, 1 / 4, 1 / 3]), [7, 2, 2, 2])
    assert weights == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])  # all harmonic means are 1/3


def test_the_prediction_of_a_group_is_the_mean_of_its_draws():
    # Means 0.5, 0.5 beside 0.2, 0.9: the best w of log(0.2 + 0.3 w) + log(0.9 - 0.4 w). Of means of
    # logarithms, 0.3 and 0.3, it would be 0.
    log_scores = np.log([[0.9, 0.1], [0.1, 0.9], [0.2, 0.9]])
    weights = stacking_weights(log_scores, [0, 0, 1])
    assert weights == pytest.approx([0.19 / 0.48, 0.19 / 0.48, 0.05 / 0.24], abs=0.01)


def test_stacking_leaves_out_a_draw_that_another_beats_everywhere():
    weights = stacking_weights(np.log([[0.5, 0.5, 0.5], [0.1, 0.4, 0.3]]))
    assert weights == pytest.approx([1, 0], abs=1e-3)
    assert stacking_weights([[-np.inf, 0.0], [0.0, -np.inf]]) == pytest.approx([0.5, 0.5], abs=0.01)


@pytest.mark.parametrize("level", [0.1, 0.9])
def test_masses_at_other_levels(level):
    """Relative variances of up to 25 over the draws: ten times those of a level of 0.5."""
    points, log_densities, modes = three_modes([0.2, 0.5, 1.0], 2, draws_each=20_000)
    found = shares(mass_weights(points, log_densities, modes, level=level), modes)
    assert (np.abs(found - MASSES) < 10**0.5 * mass_tolerance(20_000)).all()


def ratio_of_masses(dimension, few, many, seed):
    """The mass of one Gaussian over that of another with the same mass, and with `few` draws."""
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(few + many, dimension))
    stretch = np.repeat([1.0, 2.0], [few, many])[:, None]
    log_densities = -np.square(noise).sum(1) / 2 - dimension * np.log(stretch[:, 0])
    regions = np.repeat([0, 1], [few, many])
    found = shares(
        mass_weights(9 * regions[:, None] + stretch * noise, log_densities, regions), regions
    )
    return found[1] / found[0]


@pytest.mark.parametrize("dimension", [5, 10])
def test_the_fewest_draws_give_masses_that_are_off_by_less_than_their_error(dimension):
    """An ellipsoid evaluated with the draws it was made of gives ratios of 1.4 and 1.8."""
    found = [ratio_of_masses(dimension, 10 * dimension, 3000, seed) for seed in range(300)]
    assert np.std(found) == pytest.approx(0.3, abs=0.06)
    assert abs(np.mean(found) - 1) < np.std(found) / 2


def test_in_one_dimension_the_fewest_draws_are_enough():
    """Fifty draws: the spread of the estimate is known, and its bias is below its error."""
    found = [ratio_of_masses(1, 50, 1000, seed) for seed in range(300)]
    assert np.std(found) == pytest.approx(0.17, abs=0.03)
    assert abs(np.mean(found) - 1) < np.std(found) / 2
    with pytest.raises(ValueError, match="region 0 has 49 draws in 1 dimensions"):
        ratio_of_masses(1, 49, 1000, seed=0)


def test_a_draw_in_no_region_does_not_count():
    points, log_densities, modes = three_modes([0.2, 0.5, 1.0], 2, draws_each=200)
    left_out = np.where(np.arange(600) % 200 < 150, modes, -1)
    weights = mass_weights(points, log_densities, left_out)
    kept = left_out >= 0
    assert weights[kept] == pytest.approx(
        mass_weights(points[kept], log_densities[kept], left_out[kept])
    )
    assert (weights[~kept] == 0).all()


def test_more_bad_input():
    points = np.random.default_rng(0).normal(size=(50, 2))
    for level in (0.0, 1.5):
        with pytest.raises(ValueError, match="level must be"):
            mass_weights(points, np.zeros(50), [0] * 50, level=level)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        mass_weights(points, np.zeros(50), [0] * 50, temperature=0.0)
    with pytest.raises(ValueError, match="region 0 has 49 draws in 2 dimensions"):
        mass_weights(points[:49], np.zeros(49), [0] * 49)
    assert mass_weights(points, np.zeros(50), [0] * 50) == pytest.approx(np.full(50, 1 / 50))
    with pytest.raises(ValueError, match=r"\(draws, points\), got \(2, 0\)"):
        stacking_weights(np.zeros((2, 0)))
    with pytest.raises(ValueError, match="log_scores must hold no nan"):
        stacking_weights([[0.0, np.nan]])
    with pytest.raises(ValueError, match="log_scores and groups must have one entry"):
        stacking_weights([[0.0], [1.0]], [0])
    with pytest.raises(ValueError, match="no draw is in a group"):
        stacking_weights([[0.0]], [-1])


@pytest.mark.parametrize("likelihood", ["categorical", Gaussian(variance=0.1)])
def test_weights_that_are_0_in_the_precision_of_the_model_count_as_0(likelihood):
    """Also where draws that are averaged together have no others."""
    draws = in_memory(mlp, MOST_AT_ONCE + 3)
    weights = np.r_[np.ones(MOST_AT_ONCE), 1e-60, 1e-200, 0]
    posterior = Posterior(mlp(), draws, weights, likelihood=likelihood)
    assert posterior.weights[-3:].tolist() == [0, 0, 0]
    inputs = random(5, 4, dtype=torch.float32)
    found = posterior.predict(inputs)
    few = Posterior(mlp(), list(draws)[:MOST_AT_ONCE], likelihood=likelihood)
    torch.testing.assert_close(found.entropy, few.predict(inputs).entropy)
    assert found.spread.isfinite().all()

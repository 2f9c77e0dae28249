"""Regions of draws, and their masses, where both are known."""

import numpy as np
import pytest
import torch

from csgmcmc import SGLD, Chain, Cyclical, Keep
from csgmcmc.posterior import harmonic_weights
from paper.regions import find_regions, mass_weights
from paper.targets import Density, Mixture
from tests.support import SIGMAS

MASSES = np.array([0.6, 0.3, 0.1])


def cloud(centre, scale, count=300, seed=0):
    return centre + scale * np.random.default_rng(seed).normal(size=(count, 2))


def assert_parted(regions, sizes):
    """Each of the consecutive parts is a region, and no two are the same."""
    found = [set(part) for part in np.split(regions, np.cumsum(sizes)[:-1])]
    assert [len(part) for part in found] == [1] * len(sizes)
    assert len(set.union(*found)) == len(sizes)


def test_a_ring_around_a_core_is_a_region_of_its_own():
    angles = np.random.default_rng(1).uniform(0, 2 * np.pi, 600)
    ring = 6 * np.stack([np.cos(angles), np.sin(angles)], axis=1) + cloud([0, 0], 0.2, 600)
    regions = find_regions(np.concatenate([ring, cloud([0, 0], 0.5, 400)]))
    assert_parted(regions, [600, 400])


def test_a_wide_mode_beside_a_narrow_one():
    wide, narrow = cloud([0, 0], 2.0, 500), cloud([12, 0], 0.1, 500, seed=1)
    assert_parted(find_regions(np.concatenate([wide, narrow])), [500, 500])


def test_stragglers_join_the_region_of_their_nearest_labelled_draw():
    left, right = cloud([0, 0], 0.3), cloud([10, 0], 0.3, seed=1)
    stragglers = np.array([[-30.0, 0], [40, 0], [0, 25], [10, -25], [2, -20], [8, 30]])
    regions = find_regions(np.concatenate([left, right, stragglers]))
    assert_parted(regions[:600], [300, 300])
    of_left, of_right = regions[0], regions[300]
    expected = [of_left, of_right, of_left, of_right, of_left, of_right]
    assert regions[600:].tolist() == expected
    assert regions.dtype == np.int64


def test_of_many_draws_a_part_is_clustered_and_the_rest_join_it():
    many = [cloud([0, 0], 0.3, 5000), cloud([10, 0], 0.3, 1000, seed=1)]
    points = np.concatenate(many)
    assert_parted(find_regions(points), [5000, 1000])
    assert_parted(find_regions(points, seed=3), [5000, 1000])
    before = points.copy()
    find_regions(points[:200])
    assert (points == before).all()


@pytest.mark.parametrize(
    ("share", "count", "parts"), [(0.01, 15, 1), (0.005, 15, 2), (0.001, 8, 1)]
)
def test_a_region_has_its_smallest_share_of_the_draws_and_ten_of_them(share, count, parts):
    points = np.concatenate([cloud([0, 0], 1.0, 2000), cloud([40, 0], 0.3, count, seed=1)])
    far = set(find_regions(points, smallest_share=share)[2000:])
    near = set(find_regions(points, smallest_share=share)[:2000])
    assert len(far | near) >= parts
    assert (far.isdisjoint(near)) is (parts == 2)


def test_draws_that_are_all_one_region_or_in_no_order():
    assert set(find_regions(np.zeros((50, 2)))) == {0}
    even = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2)
    assert set(find_regions(even)) == {0}
    parted = np.concatenate([cloud([0, 0], 0.3), cloud([10, 0], 0.3, seed=1)])
    order = np.random.default_rng(2).permutation(600)
    regions = find_regions(parted[order])
    assert_parted(regions[np.argsort(order)], [300, 300])


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_shares_that_are_none(share):
    with pytest.raises(ValueError, match="smallest_share must be"):
        find_regions(np.zeros((20, 2)), smallest_share=share)


# Masses


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
    schedule = Cyclical(2000, cycles=4, exploration=0.9, keep=Keep(every=2))
    draws = Chain(model, None, None, sampler, schedule, progress=False).run()
    points = torch.cat([draw.tensors()["points"] for draw in draws])
    regions = find_regions(points)
    modes = (points[:, 0] > 0).long().numpy()
    visits = np.bincount(modes) / len(modes)
    found = shares(mass_weights(points, -target.potential(points).double(), regions), modes)
    assert np.abs(visits - [0.8, 0.2]).max() > 0.2
    assert np.abs(found - [0.8, 0.2]).max() < 0.02


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


def test_mass_weights_reject_bad_input():
    points = np.random.default_rng(0).normal(size=(62, 2))
    with pytest.raises(ValueError, match="region 1 has 2 draws"):
        mass_weights(points, np.zeros(62), [0] * 60 + [1] * 2)
    with pytest.raises(ValueError, match="region 0 do not span"):
        mass_weights(np.zeros((60, 2)), np.zeros(60), [0] * 60)
    with pytest.raises(ValueError, match="points must"):
        mass_weights(np.zeros((2, 2)), np.zeros(3), [0, 0, 0])
    with pytest.raises(ValueError, match="number of points must"):
        find_regions(np.zeros((3, 2)))
    points = points[:50]
    for level in (0.0, 1.5):
        with pytest.raises(ValueError, match="level must"):
            mass_weights(points, np.zeros(50), [0] * 50, level=level)
    with pytest.raises(ValueError, match="temperature must"):
        mass_weights(points, np.zeros(50), [0] * 50, temperature=0.0)
    with pytest.raises(ValueError, match="region 0 has 49 draws"):
        mass_weights(points[:49], np.zeros(49), [0] * 49)
    assert mass_weights(points, np.zeros(50), [0] * 50) == pytest.approx(np.full(50, 1 / 50))

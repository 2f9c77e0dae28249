"""Regions of draws whose parts are known."""

import numpy as np
import pytest

from csgmcmc.posterior.regions import find_regions


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

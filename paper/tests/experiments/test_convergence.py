import numpy as np
import pytest
import torch
from scipy import linalg

from csgmcmc.samplers import SGLD
from csgmcmc.schedules import Cyclical, Keep
from paper.double_well import DoubleWell, wasserstein
from paper.experiments import convergence_bounds as bounds
from paper.experiments import reproduce
from paper.experiments.convergence import CHECKS, Convergence, check
from paper.experiments.convergence_exact import (
    bounds_of_theorem_two,
    methods,
    rates,
    rounded,
    slope,
)
from paper.experiments.gaussian_moments import (
    average_of_squares,
    distance,
    mean_of_squares,
    sgld_moments,
)


def wasserstein_gaussian(mean_a, cov_a, mean_b, cov_b):
    """Gelbrich 1990, by roots of matrices: independent of the experiment's own formula."""
    root = np.real(linalg.sqrtm(cov_a))
    cross = np.trace(np.real(linalg.sqrtm(root @ cov_b @ root)))
    squares = np.sum((np.asarray(mean_a) - np.asarray(mean_b)) ** 2)
    return float((squares + np.trace(cov_a) + np.trace(cov_b) - 2 * cross) ** 0.5)


def step_sizes(count: int) -> np.ndarray:
    return 0.3 * np.random.default_rng(0).random(count)


def joint_moments(sizes, scale, mean, variance, noise):
    """Means and the whole covariance of all steps, by matrices: theta = G (start, noise)."""
    count = len(sizes)
    factors = 1 - sizes / scale**2
    weights = np.eye(count)  # of what step j adds, in theta_k
    for k in range(1, count):
        weights[k, :k] = factors[k] * weights[k - 1, :k]
    of_start = np.cumprod(factors)
    added = np.diag(2 * sizes + (sizes * noise) ** 2)
    return mean * of_start, weights @ added @ weights.T + variance * np.outer(of_start, of_start)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_moments_are_those_of_all_steps_together(weighted):
    sizes = step_sizes(40)
    weights = sizes if weighted else np.ones_like(sizes)
    moments = sgld_moments(sizes, 0.7, mean=1.5, variance=0.4, noise=2.0)
    mean, covariance = joint_moments(sizes, 0.7, 1.5, 0.4, 2.0)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.variance, covariance.diagonal(), rtol=1e-12)
    # Isserlis: the covariance of two squares of jointly Gaussian numbers.
    of_squares = 2 * covariance**2 + 4 * np.outer(mean, mean) * covariance
    share = weights / weights.sum()
    average = average_of_squares(moments, weights)
    assert average.mean == pytest.approx(share @ (mean**2 + covariance.diagonal()), rel=1e-12)
    assert average.variance == pytest.approx(share @ of_squares @ share, rel=1e-12)
    assert mean_of_squares(moments, weights) == average.mean


def test_a_constant_step_ends_in_the_stationary_distribution_of_the_sampler():
    moments = sgld_moments(np.full(2_000, 0.1), 1.3, mean=5.0, variance=0.0, noise=2.0)
    known = SGLD.stationary_variance(1.3**-2, lr=0.1, num_data=1, minibatch_variance=4.0)
    assert moments.variance[-1] == pytest.approx(known, rel=1e-12)
    assert abs(moments.mean[-1]) < 1e-12


def test_distance_is_that_between_gaussians():
    sizes, scales = step_sizes(15), (0.6, 1.0, 2.0)
    coordinates = [sgld_moments(sizes, scale, mean=2.0, variance=0.3) for scale in scales]
    known = [
        wasserstein_gaussian(
            [moments.mean[k] for moments in coordinates],
            np.diag([moments.variance[k] for moments in coordinates]),
            np.zeros(3),
            np.diag(np.square(scales)),
        )
        for k in range(15)
    ]
    np.testing.assert_allclose(distance(coordinates), known, rtol=1e-10)


def test_past_what_float64_holds_there_is_no_distance():
    wild = sgld_moments(np.full(2_000, 10.0), 1.0, mean=1.0, variance=0.0)
    assert rounded(distance([wild]))[-1] is None
    assert rounded([[0.1234567, 2.0]]) == [[0.12346, 2.0]]


def test_slopes_are_fitted_on_the_points_to_use():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    y = 3 * x**-1.5
    y[0] = 100.0
    fitted = slope(x, y, x > 1)
    assert fitted == {"slope": -1.5, "points": 3, "from": 2.0, "to": 8.0}
    assert slope(x, y, x > 2) is None


def test_rates_have_the_exponents_of_theorem_one_but_for_the_plain_average():
    """Exact numbers, no chance: the plain average stands still at the end of long cycles."""
    steps, alphas = (1_000, 3_000, 10_000, 30_000), (0.02, 0.1, 0.15, 0.2)
    by_number = rates(steps, alphas, fixed_length=False)
    by_length = rates(steps, alphas, fixed_length=True)
    assert by_number["weighted"]["slopes"]["bias_alpha0"]["slope"] == pytest.approx(1, abs=0.05)
    for record in (by_number, by_length):
        assert record["weighted"]["slopes"]["mse_K"]["slope"] == pytest.approx(-1, abs=0.05)
    assert by_length["plain"]["slopes"]["mse_K"]["slope"] == pytest.approx(-1, abs=0.05)
    assert by_number["plain"]["slopes"]["mse_K"]["slope"] == pytest.approx(-2 / 3, abs=0.08)
    assert by_number["w2_slope_K"]["slope"] == pytest.approx(-2 / 3, abs=0.05)
    assert by_length["w2_slope_K"]["slope"] == pytest.approx(0, abs=1e-6)
    # theta has no bias but the start's: sum of m_k, which is START / alpha_0 for constant steps.
    worst = np.abs(np.array(by_number["theta_bias"])[:, -1]) * np.array(alphas) * steps[-1]
    assert worst.max() < 2 * 2.0


def test_methods_have_an_equal_sum_or_an_equal_first_step():
    for method in methods(400, 0.05):
        sizes = method.alpha0 * method.schedule.table()["lr_scale"]
        if "equal first step" in method.name:
            assert sizes[0] == pytest.approx(0.05)
        else:
            assert sizes.sum() == pytest.approx(0.05 * (200 + 2))  # cosines: K / 2 + M / 2


def test_the_mended_bound_holds_where_the_printed_one_does_not():
    sizes = 0.2 * Cyclical(300, cycles=300, exploration=0, keep=Keep(every=1)).table()["lr_scale"]
    away = distance([sgld_moments(sizes, 1.0, mean=2.0, variance=0.0, noise=10.0)])
    unit = bounds.Curvature(convexity=1.0, smoothness=1.0, dimension=1)
    counts = np.arange(1.0, 301)
    first = np.hypot(2.0, 1.0)
    printed = bounds.strongly_convex(counts, sizes, first, unit, noise=0.0)
    mended = bounds.strongly_convex(counts, sizes, first, unit, noise=10.0)
    stepwise = bounds.strongly_convex_stepwise(sizes, first, unit, noise=10.0)
    assert (printed < away).any()
    assert (mended >= stepwise).all()
    assert (stepwise >= away).all()


def test_the_printed_bound_by_hand():
    """With m = 1, M = 2, d = 4, steps 0.5 and 0.25: case 1, so that A = 0.25."""
    curvature = bounds.Curvature(convexity=1.0, smoothness=2.0, dimension=4)
    found = bounds.strongly_convex(np.array([2.0]), np.array([0.5, 0.25]), 3.0, curvature, 0.0)
    assert found == pytest.approx(0.75**2 * 3 + 1.65 * 2 * 0.5**1.5 * 2 / 0.25)
    # m * 0.9 + M * 0.9 > 2: case 2, A = 2 - 1.8.
    found = bounds.strongly_convex(np.array([2.0]), np.array([0.9]), 3.0, curvature, 0.0)
    assert found == pytest.approx(0.8**2 * 3 + 1.65 * 2 * 0.9**1.5 * 2 / 0.2)


def test_theorem_two_tends_to_its_constant_when_steps_vanish():
    values = [bounds.theorem_two(k, k**-2.0, start=2.0) for k in (10**4, 10**6, 10**8)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(5**0.5, rel=1e-2)


def test_with_noise_no_step_size_makes_the_bound_less_than_its_constant():
    record = bounds_of_theorem_two((100, 100_000), (0.1,))
    constant = rounded(5**0.5)  # at no step at all
    assert record["least_with_noise"] == [constant, constant]
    assert record["least"][0] == constant
    assert record["least"][1] < 0.6 * constant


@pytest.mark.parametrize("schedule", CHECKS)
def test_chains_have_the_moments_of_the_recursion(schedule):
    """30 z-scores, limit 4.5: by chance fails once in 5,000 seeds, and the seed is fixed."""
    record = check(4_000, schedule)
    assert sum(map(len, record["z"].values())) == 30
    assert record["false_alarm_rate"] == pytest.approx(30 * 6.8e-6, rel=0.01)
    assert record["worst"] == max(abs(z) for group in record["z"].values() for z in group)
    assert record["worst"] < record["limit"]


def test_the_check_sees_wrong_moments(monkeypatch):
    def with_more_noise(sizes, scale, mean, variance, noise):
        return sgld_moments(sizes, scale, mean, variance, 3 * noise)

    monkeypatch.setattr("paper.experiments.convergence.sgld_moments", with_more_noise)
    with pytest.raises(ValueError, match="simulated chains, constant: a z-score of"):
        check(1_000, "constant")


def test_the_double_well_is_the_mixture():
    well = DoubleWell(scale=0.3, light=0.25)
    points = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    autograd = super(DoubleWell, well).gradient(points)
    torch.testing.assert_close(well.gradient(points), autograd)
    quantiles = well.quantiles(10_000)
    assert (quantiles < 0).mean() == pytest.approx(0.25, abs=1e-3)
    assert quantiles.mean() == pytest.approx(0.5, abs=1e-3)
    assert (quantiles**2).mean() == pytest.approx(1 + 0.09, abs=1e-3)
    # Between -1 and the top of the barrier, where the gradient is 0, on a fine grid.
    grid = torch.linspace(-1, 0.5, 100_001, dtype=torch.float64)[:, None]
    heights = well.potential(grid)
    assert well.barrier() == pytest.approx(float(heights.max() - heights[:30_000].min()), abs=1e-4)


def test_wasserstein_of_a_shift_is_the_shift():
    quantiles = np.linspace(-1, 1, 50)
    draws = np.random.default_rng(0).permutation(quantiles) + 0.3
    assert wasserstein(draws, quantiles) == pytest.approx((0.3, 0.3))


def test_a_stopped_run_goes_on_and_gives_the_same(tmp_path):
    experiment = Convergence()
    whole = reproduce(experiment, "smoke", tmp_path / "whole")
    assert whole.finished

    def stop_after_eight(key, done, _):
        if done == 8:
            raise RuntimeError(key)

    with pytest.raises(RuntimeError):
        reproduce(experiment, "smoke", tmp_path / "parts", on_job=stop_after_eight)
    keys = []
    parts = reproduce(
        experiment, "smoke", tmp_path / "parts", on_job=lambda key, *_: keys.append(key)
    )
    assert keys == list(whole.records)[8:]
    for key, record in whole.records.items():
        assert {**parts.records[key], "seconds": 0} == {**record, "seconds": 0}


def test_the_paper_preset_has_a_job_for_every_seed_and_method():
    experiment = Convergence()
    config = experiment.presets["paper"]
    wells = [key for key in experiment.jobs(config, {}) if key.startswith("double well")]
    assert len(wells) == 7 * config.seeds

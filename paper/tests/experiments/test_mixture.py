import json

import numpy as np
import pytest
import torch

from csgmcmc import SGLD, Chain, Constant, Cyclical, Keep
from paper.diagnostics import in_mode_mass, mode_total_variation
from paper.experiments import reproduce
from paper.experiments.mixture import (
    Method,
    MixtureConfig,
    MixtureExperiment,
    NoisyMixture25,
    exact_draws,
    sample,
    scores,
)
from paper.experiments.mixture_weights import independent_ends, measure, measure_regions
from paper.targets import Density, Mixture25
from tests.support import SIGMAS

COVERED = {"radius": 0.25, "more_than": 100}
MODES = Mixture25().means.numpy()


def test_it_gives_every_promised_draw_and_is_repeatable():
    config = MixtureConfig(steps=1800, chains=3, seeds=2)
    for method in config.methods + config.published:
        draws = sample(config, method)
        assert draws.shape == (6, method.schedule.total_draws, 2)
        assert np.isfinite(draws).all()
        assert (draws == sample(config, method)).all()
        assert not (draws == sample(config, method, seed=1)).all()


def test_with_exact_gradients_it_is_a_chain_of_sgld():
    """8 chains of 2 numbers, which torch draws alike one by one and at once; a stable step."""
    config = MixtureConfig(chains=8, seed=3)
    method = Method("stable", 0.01, Cyclical(60, cycles=2, exploration=0.3, keep=Keep(every=3)))
    points = torch.empty(8, 2).uniform_(-10, 10, generator=torch.Generator().manual_seed(3))
    model = Density(Mixture25(), points)
    sampler = SGLD(model.parameters(), method.lr, num_data=1, seed=3)
    slow = Chain(model, None, None, sampler, method.schedule, progress=False).run()
    expected = torch.stack([draw.tensors()["points"] for draw in slow], dim=1).numpy()
    np.testing.assert_allclose(sample(config, method), expected, rtol=1e-3, atol=1e-3)


def test_noise_of_the_gradients_and_injected_noise_add_up_to_the_laws_own():
    """Both are drawn, the injected one lessened: 2 * lr in all, as with exact gradients."""
    config, lr = MixtureConfig(chains=20_000), 0.5
    starts = torch.empty(20_000, 2).uniform_(-10, 10, generator=torch.Generator().manual_seed(0))
    noisy = sample(config, Method("", lr, Constant(1, keep=Keep(every=1)), gradient_variance=1.0))[
        :, 0
    ]
    noise = noisy - (starts - lr * Mixture25().gradient(starts)).numpy()
    error = SIGMAS * (2 / noise.size) ** 0.5
    assert abs(noise.var() / (2 * lr) - 1) < error  # uncorrected, it would be 1.25 times as much
    gradients = NoisyMixture25(1.0, seed=0).gradient(starts) - Mixture25().gradient(starts)
    assert abs(gradients.var().item() - 1) < error
    assert abs(np.corrcoef(gradients.flatten(), noise.flatten())[0, 1]) > 0.4  # not of exact ones


def test_the_published_schedules():
    sgld, csgld = (method.schedule.table() for method in MixtureConfig().published)
    assert sgld["collect"].all()
    assert (sgld["lr_scale"][:501] == 1).all()
    assert sgld["lr_scale"][[501, 49_999]] == pytest.approx([2**-0.55, 49_500**-0.55])
    assert (csgld["temperature_scale"] == 1).all()
    assert not csgld["collect"][:50].any()
    assert csgld["collect"][50:1667].all()
    assert not csgld["collect"][1667:1717].any()


def test_exact_draws_score_as_the_truth():
    config = MixtureConfig(chains=1)
    single, pooled = scores(config, exact_draws(config, 50_000)[None]).values()
    assert single.modes_covered == pooled.modes_covered == 25
    assert pooled.in_mode_mass == pytest.approx(0.989, abs=0.003)
    assert pooled.total_variation < 0.02
    assert pooled.smallest_share == pytest.approx(0.04, abs=0.005)


def test_stuck_chains_score_one_mode_each():
    config = MixtureConfig(chains=2)
    draws = np.zeros((2, 200, 2), dtype=np.float32)
    draws[1] += 2
    found = scores(config, draws)
    single, pooled = found["1 chain (mean)"], found["2 chains pooled"]
    assert (single.modes_covered, pooled.modes_covered) == (1, 2)
    assert single.total_variation == pytest.approx(24 / 25)
    assert pooled.total_variation == pytest.approx(23 / 25)


def test_scores_are_those_of_the_diagnostics():
    draws = sample(MixtureConfig(steps=900), MixtureConfig(steps=900).methods[1])[0]
    found = measure(draws, **COVERED)
    assert found.in_mode_mass == pytest.approx(in_mode_mass(draws, MODES, 3 * 0.03**0.5))
    assert found.total_variation == pytest.approx(mode_total_variation(draws, MODES))
    equal = np.full(len(draws), 1 / len(draws))
    assert vars(measure(draws, equal, **COVERED)) == pytest.approx(vars(found))


def test_weights_count_in_the_scores():
    points = np.concatenate([MODES, np.add(MODES[:1], [0.9, 0.0], dtype=np.float32)])
    weights = np.array([0.03, *[0.04] * 23, 0.02, 0.03])
    found = measure(points, weights, **COVERED)
    assert found.modes_covered == 0  # one draw each
    assert found.in_mode_mass == pytest.approx(0.97)
    assert found.total_variation == pytest.approx(0.02)  # shares of 0.06 and 0.02, else 0.04
    assert found.smallest_share == pytest.approx(0.02)


def test_regions_of_unequal_visits_are_given_their_mass():
    generator = np.random.default_rng(0)
    visits = np.where(np.arange(25) < 5, 1200, 300)
    centres = np.repeat(MODES, visits, axis=0)
    points = (centres + 0.03**0.5 * generator.normal(size=centres.shape)).astype(np.float32)
    found = measure_regions(points, **COVERED, smallest_share=0.005)
    assert found.regions == 25
    assert found.scores["visits"].total_variation == pytest.approx(0.3)  # 0.5 - 5 / 25
    # Relative variances of up to 2.5 over the draws of a mode, as in tests/posterior.
    errors = np.sqrt(2.5 / visits) / 25
    assert (np.abs(np.array(found.shares["mass of regions"]) - 1 / 25) < SIGMAS * errors).all()
    assert found.scores["mass of regions"].total_variation < 0.06
    assert found.shares["visits"] == pytest.approx(visits / visits.sum(), abs=1e-5)
    for shares in found.shares.values():
        assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_total_variation_of_independent_cycles():
    assert independent_ends(1) == pytest.approx(24 / 25, abs=1e-5)
    # Two cycles end in the same mode with probability 1/25.
    assert independent_ends(2) == pytest.approx((24 / 25 + 24 * 23 / 25) / 25, abs=1e-5)
    ends = np.random.default_rng(0).multinomial(400, [1 / 25] * 25, size=4000) / 400
    distances = np.abs(ends - 1 / 25).sum(axis=1) / 2
    error = SIGMAS * distances.std() / len(distances) ** 0.5
    assert abs(independent_ends(400) - distances.mean()) < error


def test_the_search_takes_the_best_of_those_that_stay_in_the_modes():
    experiment = MixtureExperiment()
    config = experiment.presets["smoke"]
    first, second = (f"search: {method.name}" for method in config.candidates)

    def chosen(**in_mode_mass):
        records = {
            first: {"total_variation": [0.1, 0.2], "in_mode_mass": [0.98, 0.98]},
            second: {"total_variation": [0.1, 0.1], "in_mode_mass": in_mode_mass["of_second"]},
        }
        return experiment.jobs(config, records)["weights: cooling exploration"]["method"].schedule

    assert chosen(of_second=[0.96, 0.98]) == config.candidates[1].schedule
    assert chosen(of_second=[0.96, 0.97]) == config.candidates[0].schedule
    assert "weights: cooling exploration" not in experiment.jobs(config, {first: {}})


def without_times(results):
    return {
        key: {name: value for name, value in record.items() if name != "seconds"}
        for key, record in results.records.items()
    }


def test_a_run_that_was_stopped_goes_on_and_gives_the_same(tmp_path):
    experiment = MixtureExperiment()
    whole = reproduce(experiment, "smoke", tmp_path / "whole")

    def stop_after_seven(key, done, total):
        if done == 7:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        reproduce(experiment, "smoke", tmp_path / "parts", on_job=stop_after_seven)
    later = []
    parts = reproduce(
        experiment, "smoke", tmp_path / "parts", on_job=lambda key, *_: later.append(key)
    )
    assert len(later) == len(whole.records) - 7 == 4
    assert without_times(parts) == without_times(whole)
    assert parts.finished
    assert json.loads((tmp_path / "parts" / "mixture.json").read_text())["finished"]


def test_what_a_record_holds():
    experiment = MixtureExperiment()
    config = MixtureConfig(steps=900, chains=2, seeds=3)
    record = experiment.run(config, None, task="cover", method=config.methods[0])
    assert [len(record[group]["modes_covered"]) for group in ("single", "pooled")] == [6, 3]
    draws = sample(config, config.methods[0])
    assert record["pooled"]["total_variation"][1] == pytest.approx(
        mode_total_variation(draws[2:4].reshape(-1, 2), MODES), abs=1e-5
    )
    counts = np.array([line.split() for line in record["histograms"]["single"]], dtype=int)
    cells = np.floor((draws[0] + 5.2) / 0.1).astype(int)
    seen = cells[((cells >= 0) & (cells < 104)).all(axis=1)]
    assert counts.sum() == len(seen)
    x, y = seen.T
    assert counts[y, x].min() > 0
    assert (counts > 0).sum() == len(np.unique(seen, axis=0))


@pytest.mark.slow
def test_cyclical_covers_what_traditional_sgld_does_not():
    """The paper's claim at its own settings, over 10 runs of 4 chains, all stacked."""
    config = MixtureConfig(seeds=10)
    covered = {}
    for method in config.methods:
        record = MixtureExperiment().run(config, None, task="cover", method=method)
        covered[method.name] = np.array(
            [np.mean(record[group]["modes_covered"]) for group in ("single", "pooled")]
        )
    assert (covered["SGLD"] < [2, 5]).all()
    assert (covered["cSGLD"] > [14, 24]).all()

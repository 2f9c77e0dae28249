import numpy as np
import pytest

from csgmcmc.experiments.mixture import MixtureConfig, exact_draws, sample, scores


def test_it_gives_every_promised_draw_and_is_repeatable():
    config = MixtureConfig(steps=900, chains=3)
    for method in config.methods:
        seen = []
        draws = sample(config, method, seen.append)
        assert draws.shape == (3, method.schedule.total_draws, 2)
        assert np.isfinite(draws).all()
        assert seen == [500, 900]
        assert (draws == sample(config, method)).all()
        assert not (draws == sample(MixtureConfig(steps=900, chains=3, seed=1), method)).all()


def test_exact_draws_score_as_the_truth():
    config = MixtureConfig(chains=1)
    draws = exact_draws(config, 50_000)
    single, pooled = scores(config, config.methods[0], draws[None])
    assert single.modes_covered == pooled.modes_covered == 25
    assert pooled.in_mode_mass == pytest.approx(0.989, abs=0.003)
    assert pooled.total_variation < 0.02


def test_stuck_chains_score_one_mode_each():
    config = MixtureConfig(chains=2)
    draws = np.zeros((2, 200, 2), dtype=np.float32)
    draws[1] += 2
    single, pooled = scores(config, config.methods[0], draws)
    assert (single.modes_covered, pooled.modes_covered) == (1, 2)
    assert single.total_variation == pytest.approx(24 / 25)
    assert pooled.total_variation == pytest.approx(23 / 25)


@pytest.mark.slow
def test_cyclical_covers_what_traditional_sgld_does_not():
    """The paper's claim at its own settings, over 10 runs of 4 chains, all stacked."""
    config = MixtureConfig(chains=40)
    covered = {}
    for method in config.methods:
        runs = np.split(sample(config, method), 10)
        both = [scores(MixtureConfig(), method, run) for run in runs]
        covered[method.name] = np.mean(
            [[single.modes_covered, pooled.modes_covered] for single, pooled in both], axis=0
        )
    assert (covered["SGLD"] < [2, 5]).all()
    assert (covered["cSGLD"] > [14, 24]).all()

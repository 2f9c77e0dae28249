"""Digits, from end to end."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import csgmcmc
from benchmarks.demo_settings import search
from csgmcmc.demo import load_letters
from csgmcmc.demo.digits import METHODS, DigitsDemo, make_chain, sample, score
from csgmcmc.diagnostics import auroc
from csgmcmc.posterior import ClassPredictive

CSGHMC = METHODS[-1]


def test_csghmc_from_the_store_to_a_checked_prediction(tmp_path):
    config = DigitsDemo(steps=2000)
    store = csgmcmc.DrawStore(tmp_path / "digits")
    chain = make_chain(config, CSGHMC, seed=0, draws=store)
    chain.run()

    posterior = csgmcmc.Posterior(chain.model, csgmcmc.DrawStore(tmp_path / "digits"))
    assert len(posterior.draws) == 40
    test = DataLoader(config.data.test, batch_size=200)
    found = posterior.check(test, stepper=chain.stepper, loss=chain.loss, data=chain.data)
    # Whether it beats the best of all draws, chosen on the test data, is up to rounding here.
    assert found.better.holds == (found.numbers["nll"] < found.numbers["nll_best_draw"])
    each = posterior.log_scores(test).mean(1)
    assert found.numbers["nll"] < -each.mean() - 0.01
    assert found.numbers["error"] < 0.05
    assert found.parameters.keys() == dict(chain.model.named_parameters()).keys()
    assert found.numbers["noise_ratio"] > 1

    predictive = posterior.predict_loader(test)
    assert isinstance(predictive, ClassPredictive)
    outside = posterior.predict(load_letters())
    assert auroc(predictive.entropy, outside.entropy) > 0.7
    assert auroc(predictive.mutual_information, outside.mutual_information) > 0.7

    # Weights by the training data's likelihood, kept in the store, and by held-out data.
    train = DataLoader(config.data.train, batch_size=500)
    harmonic = posterior.weigh("harmonic", train, temperature=CSGHMC.temperature)
    cycles = np.array([harmonic.weights[posterior.cycles == cycle].sum() for cycle in range(4)])
    assert np.sort(cycles)[-2:].sum() > 0.99  # one or two cycles take nearly all
    again = csgmcmc.Posterior(chain.model, csgmcmc.DrawStore(tmp_path / "digits"))
    same = again.weigh("harmonic", temperature=CSGHMC.temperature)  # with no data: they are kept
    assert same.weights.tolist() == harmonic.weights.tolist()
    validation = DataLoader(config.data.validation, batch_size=300)
    stacked = posterior.weigh("stacking", validation)

    def log_score(weighted):
        scores = weighted.log_scores(validation)
        return torch.logsumexp(scores + torch.as_tensor(weighted.weights).log()[:, None], 0).mean()

    assert log_score(stacked) >= log_score(posterior) - 1e-4


def test_scores_are_repeatable_and_depend_on_the_seed():
    config = DigitsDemo(steps=400)
    for method in METHODS:
        one, same, other = (
            score(config, method, seed, sample(config, method, seed)) for seed in (0, 0, 1)
        )
        assert one == same
        assert one.nll != other.nll
        assert one.networks == method.cycles * method.draws_per_cycle
        assert 0 < one.error < 0.2


@pytest.mark.slow
def test_no_candidate_of_the_search_is_clearly_better_than_the_settings():
    """Which of several good candidates is best depends on rounding, and so on the machine.

    The margin is wide: the settings were chosen before the noise changed, and seeds are only two.
    """
    torch.set_num_threads(1)
    found = search(DigitsDemo(seeds=2))
    for method in METHODS:
        scores = found[method.name]
        assert scores[method] < min(scores.values()) + 0.03


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps"):
        DigitsDemo(steps=20)

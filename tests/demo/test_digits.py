"""Digits, from end to end."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

import csgmcmc
from benchmarks.demo_settings import SEARCH, candidates, search
from csgmcmc.diagnostics import auroc
from csgmcmc.posterior import ClassPredictive
from examples.demo.digits import (
    METHODS,
    TRAINING_DIGITS,
    BatchesOfSeeds,
    DigitsDemo,
    make_chain,
    make_model,
    sample,
    score,
)
from paper.data import load_letters

CSGHMC = METHODS[-1]


def test_csghmc_from_the_store_to_a_checked_prediction(tmp_path):
    config = DigitsDemo(seeds=1)
    store = csgmcmc.DrawStore(tmp_path / "digits")
    chain = make_chain(config, CSGHMC, draws=store)
    chain.run()

    model = make_model(0)
    posterior = csgmcmc.Posterior(model, csgmcmc.DrawStore(tmp_path / "digits"))
    assert len(posterior.draws) == 100
    test = DataLoader(config.data.test, batch_size=200)
    found = posterior.check(test, run=chain)
    assert found.better.holds is not False
    assert found.learned.holds
    each = posterior.log_scores(test).mean(1)
    assert found.numbers["nll"] < -each.mean() - 0.01
    assert found.numbers["error"] < 0.1  # of 200 training digits
    assert found.parameters.keys() == dict(model.named_parameters()).keys()
    assert found.numbers["noise_ratio"] > 1

    predictive = posterior.predict_loader(test)
    assert isinstance(predictive, ClassPredictive)
    outside = posterior.predict(load_letters())
    assert auroc(predictive.entropy, outside.entropy) > 0.7
    assert auroc(predictive.mutual_information, outside.mutual_information) > 0.7

    # Weights by the training data's likelihood, and by held-out data.
    assert isinstance(chain.data, BatchesOfSeeds)
    rows = chain.data.rows[0].tolist()
    train = DataLoader(Subset(config.data.train, rows), batch_size=200)
    harmonic = posterior.weigh("harmonic", train, temperature=CSGHMC.temperature)
    cycles = np.array([harmonic.weights[posterior.cycles == cycle].sum() for cycle in range(4)])
    assert np.sort(cycles)[-2:].sum() > 0.99  # one or two cycles take nearly all
    validation = DataLoader(config.data.validation, batch_size=300)
    stacked = posterior.weigh("stacking", validation)

    def log_score(weighted):
        scores = weighted.log_scores(validation)
        return torch.logsumexp(scores + torch.as_tensor(weighted.weights).log()[:, None], 0).mean()

    assert log_score(stacked) >= log_score(posterior) - 1e-4


def test_scores_are_repeatable_and_do_not_depend_on_other_seeds():
    for method in METHODS:
        first, second = (
            score(config, method, 1, sample(config, method)[index])
            for config, index in (
                (DigitsDemo(steps=400, seeds=3), 1),
                (DigitsDemo(steps=400, first_seed=1, seeds=1), 0),
            )
        )
        assert first.nll == pytest.approx(second.nll, rel=0.05)  # stacks of other sizes round
        assert first.networks == method.cycles * method.draws_per_cycle
        assert 0 < first.error < 0.3


def test_seeds_have_their_own_digits_and_batches():
    images, labels = torch.arange(1000.0), torch.arange(1000)
    data = BatchesOfSeeds(images, labels, range(3, 5))
    epoch = [batch[1].reshape(2, -1) for batch in data]
    seen = torch.cat(epoch, dim=1)
    assert [len(each) for each in (epoch, data)] == [4, 4]
    for chosen, rows in zip(seen, data.rows, strict=True):
        assert torch.equal(chosen.sort().values, rows.sort().values)
        assert len(chosen.unique()) == TRAINING_DIGITS
    assert not torch.equal(seen[0], seen[1])
    again = BatchesOfSeeds(images, labels, range(4, 5))
    assert torch.equal(next(iter(again))[1], epoch[0][1])  # of seed 4, alone or beside another


@pytest.mark.slow
def test_no_candidate_of_the_search_is_clearly_better_than_the_settings():
    """Every second candidate: the seeds are those of the search, since few seeds mislead."""
    torch.set_num_threads(1)
    for method in METHODS:
        assert method in candidates(method)
        found = search(SEARCH, {method, *candidates(method)[::2]})
        assert found[method] < min(found.values()) + 0.01


@pytest.mark.slow
def test_csghmc_is_ahead_in_nll_and_in_telling_letters_from_digits():
    torch.set_num_threads(1)
    config = DigitsDemo()
    nll, detection = {}, {}
    for method in METHODS:
        scores = [
            score(config, method, seed, posterior)
            for seed, posterior in zip(config.seed_numbers, sample(config, method), strict=True)
        ]
        nll[method.name] = np.mean([each.nll for each in scores])
        detection[method.name] = np.mean([each.auroc for each in scores])
    assert nll["cSGHMC"] < min(nll["SGDM"], nll["Snapshot"]) - 0.01
    assert detection["cSGHMC"] > max(detection["SGDM"], detection["Snapshot"]) + 0.01


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps"):
        DigitsDemo(steps=20)

"""Estimators, stores and posteriors with the device as torch's default."""

from typing import Any

import numpy as np
import pytest
import torch

from csgmcmc import DrawStore, Posterior
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from tests.devices.support import assert_equal, make_chain, network, points

SHORT: dict[str, Any] = {
    "epochs": 20,
    "chains": 2,
    "cycles": 2,
    "draws_per_cycle": 2,
    "random_state": 0,
}
ROWS, LABELS = (tensor.numpy() for tensor in points(60).tensors)
NUMBERS = ROWS @ np.arange(1.0, 7.0) + 3


@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_an_estimator_does_not_depend_on_the_default_device(kind, device):
    targets = LABELS if kind is BayesianMLPClassifier else NUMBERS
    expected = kind(**SHORT).fit(ROWS, targets).predict(ROWS)
    torch.set_default_device(device)
    try:
        fitted = kind(**SHORT).fit(ROWS, targets)
        assert np.array_equal(fitted.predict(ROWS), expected)
        assert fitted.check(ROWS, targets).numbers
    finally:
        torch.set_default_device(None)


def test_stores_and_posteriors_with_a_default_device(device, default_device, tmp_path):
    inputs, labels = points().tensors  # of generators of the CPU
    batches = [(inputs.to(device), labels.to(device))]
    model = network()
    chain = make_chain(model.to(device), DrawStore(tmp_path), data=batches)
    chain.run()
    posterior = Posterior(model, DrawStore(tmp_path), progress=False, run=chain)
    found = posterior.predict_loader(batches, members=True)
    assert (found.probs.argmax(-1) == found.targets).float().mean() > 0.1
    posterior.check(batches)
    posterior.weigh("stacking", batches)
    on_cpu = Posterior(model, DrawStore(tmp_path), device="cpu", progress=False)
    assert_equal(found.probs, on_cpu.predict_loader(batches).probs, device)

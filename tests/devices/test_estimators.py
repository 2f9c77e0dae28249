"""Estimators with a module on the device, and with it as torch's default."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

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


def module(features, outputs):
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, outputs))


def on(where):
    """A function that makes a module there, with the initial weights of the CPU."""
    return lambda features, outputs: module(features, outputs).to(where)


@pytest.mark.parametrize("plain", [True, False], ids=["one fold", "held-out rows"])
def test_a_classifier_with_a_module_on_the_device(plain, device):
    further: dict[str, Any] = {"prior_scale": 1.0, "temperature": 0.3} if plain else {}
    fitted = BayesianMLPClassifier(module=on(device), **SHORT, **further).fit(ROWS, LABELS)
    assert next(fitted.module_.parameters()).device.type == device.type
    probs = fitted.predict_proba(ROWS)
    assert probs.shape == (60, 3)
    assert (fitted.predict(ROWS) == LABELS).mean() > 0.5
    assert fitted.check(ROWS, LABELS).numbers


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regressor_with_a_module_on_the_device(outputs, device):
    targets = NUMBERS if outputs == 1 else np.stack([NUMBERS, ROWS[:, 0]], 1)
    fitted = BayesianMLPRegressor(module=on(device), **SHORT).fit(ROWS, targets)
    mean, std = fitted.predict(ROWS, return_std=True)
    assert mean.shape == std.shape == targets.shape
    low, high = fitted.predict_interval(ROWS)
    assert (low < high).all()
    assert fitted.score(ROWS, targets) > 0.1
    assert fitted.predictive(ROWS).mean.device.type == device.type
    assert fitted.check(ROWS, targets).numbers


# torch.set_default_device


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

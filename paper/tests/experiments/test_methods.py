"""Scores of a prediction."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc import MemoryDraws, Posterior
from paper.experiments import deep_runs
from paper.experiments.methods import SMALLEST, Perceptron, scores


def test_a_probability_of_zero_has_a_finite_score():
    model, draws = nn.Linear(1, 2, bias=False), MemoryDraws()
    draws.append({"weight": torch.tensor([[1000.0], [-1000.0]])}, step=0)
    pairs = [(torch.ones(4, 1), torch.tensor([0, 0, 1, 1]))]
    predictive: Any = Posterior(model, draws, progress=False).predict_loader(pairs)
    found = scores(predictive)
    assert found["nll"] == pytest.approx(-0.5 * math.log(SMALLEST), rel=1e-4)
    assert math.isfinite(found["nll_error"])
    assert found["error"] == 0.5


def test_a_draw_that_excludes_a_training_label_has_a_finite_nll(monkeypatch):
    probs = np.array([[[1.0, 0.0], [0.25, 0.75]]], dtype=np.float32)
    labels = np.array([1, 1])
    found = SimpleNamespace(member_probs_numpy=lambda: probs, labels_numpy=lambda: labels)
    monkeypatch.setattr(deep_runs, "predict", lambda *_: found)
    source: Any = SimpleNamespace(train=None)
    draws: Any = [SimpleNamespace(cycle=0)]
    fit = deep_runs.training_fit(Perceptron((1, 2), batch=2), source, draws)
    assert fit["nlls"] == [pytest.approx(-math.log(0.75 * SMALLEST) / 2, rel=1e-4)]
    assert fit["errors"] == [0.5]

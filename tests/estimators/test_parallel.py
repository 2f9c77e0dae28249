"""Chains of a fit in several joblib processes."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn import base
from torch import nn

from csgmcmc.errors import DivergedError
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.estimators.chains import divide_chains, effective_jobs
from csgmcmc.schedules import Constant
from tests.estimators.small import SMALL, diabetes, iris

clone: Any = base.clone
OPTIONS: Any = {**SMALL, "chains": 3, "epochs": 10}


def with_dropout(features: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, outputs))


CASES: dict[str, tuple[Any, Any]] = {
    "classifier": (BayesianMLPClassifier(**OPTIONS), iris),
    "regressor": (BayesianMLPRegressor(**OPTIONS), diabetes),
    "module": (BayesianMLPClassifier(module=with_dropout, **OPTIONS), iris),
}


def assert_same_fit(one: Any, other: Any) -> None:
    assert one.lr_ == other.lr_
    assert list(one.draws_) == list(other.draws_)
    for draw, twin in zip(one.draws_, other.draws_, strict=True):
        for name, tensor in draw.tensors().items():
            torch.testing.assert_close(tensor, twin.tensors()[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.loss_curve_, other.loss_curve_, rtol=1e-5)
    np.testing.assert_allclose(one.cycle_weights_, other.cycle_weights_, rtol=1e-3, atol=1e-4)
    assert one.module_.state_dict().keys() == other.module_.state_dict().keys()


@pytest.mark.parametrize("name", CASES)
def test_fit_does_not_depend_on_number_of_processes(name):
    estimator, table = CASES[name]
    alone = clone(estimator).fit(*table())
    state = torch.get_rng_state()
    both = clone(estimator).set_params(n_jobs=2).fit(*table())
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_fit(alone, both)
    again = pickle.loads(pickle.dumps(both))
    assert again.get_params()["n_jobs"] == 2
    np.testing.assert_array_equal(again.predict(table()[0]), both.predict(table()[0]))
    assert both.check(*table()).numbers["nll"] == pytest.approx(
        alone.check(*table()).numbers["nll"], rel=1e-4
    )


def test_fit_inside_parallel_config():
    estimator, table = CASES["classifier"]
    alone = clone(estimator).fit(*table())
    with parallel_config("threading", n_jobs=3):
        assert_same_fit(alone, clone(estimator).fit(*table()))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_lr_that_diverges_raises(n_jobs):
    estimator = BayesianMLPRegressor(**{**OPTIONS, "lr": 1e6, "n_jobs": n_jobs})
    with pytest.raises(ValueError, match="lr="):
        estimator.fit(*diabetes())


def test_n_jobs_of_0_raises():
    with pytest.raises(ValueError, match="n_jobs"):
        BayesianMLPClassifier(**OPTIONS, n_jobs=0).fit(*iris())


@pytest.mark.parametrize(
    ("chains", "jobs", "sizes"), [(5, 2, [2, 3]), (5, 1, [5]), (2, 4, [1, 1]), (6, 3, [2, 2, 2])]
)
def test_stacks_have_nearly_equal_sizes(chains, jobs, sizes):
    parts = divide_chains(chains, jobs, stacked=True)
    assert [len(part) for part in parts] == sizes
    assert [chain for part in parts for chain in part] == list(range(chains))
    assert len(divide_chains(chains, jobs, stacked=False)) == chains


def test_diverged_error_survives_pickling():
    error = DivergedError("the loss", Constant(4).tick(2), 0.1, [1])
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error)
    assert (back.tick, back.lr, back.chain_ids) == (error.tick, 0.1, [1])


def test_threading_backend_uses_one_job():
    for backend, jobs in (("loky", 2), ("threading", 1)):
        with parallel_config(backend=backend):
            assert effective_jobs(2) == jobs
        with parallel_config(backend=backend, n_jobs=2):
            assert effective_jobs(None) == jobs

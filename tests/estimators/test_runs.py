"""Chains of a fit side by side, by joblib."""

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
from csgmcmc.estimators.runs import divided, effective_jobs
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
def test_the_fit_does_not_depend_on_the_number_of_processes(name):
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


def test_a_context_of_joblib_counts():
    estimator, table = CASES["classifier"]
    alone = clone(estimator).fit(*table())
    with parallel_config("threading", n_jobs=3):
        assert_same_fit(alone, clone(estimator).fit(*table()))


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_step_size_that_diverges_is_told(n_jobs):
    estimator = BayesianMLPRegressor(**{**OPTIONS, "lr": 1e6, "n_jobs": n_jobs})
    with pytest.raises(ValueError, match="is too large for these data: lower it"):
        estimator.fit(*diabetes())


@pytest.mark.parametrize("n_jobs", [0, "two", 1.5, 10**9])
def test_other_numbers_are_refused(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be"):
        BayesianMLPClassifier(**OPTIONS, n_jobs=n_jobs).fit(*iris())


@pytest.mark.parametrize(
    ("chains", "jobs", "sizes"), [(5, 2, [2, 3]), (5, 1, [5]), (2, 4, [1, 1]), (6, 3, [2, 2, 2])]
)
def test_stacks_are_nearly_equal(chains, jobs, sizes):
    parts = divided(chains, jobs, stacked=True)
    assert [len(part) for part in parts] == sizes
    assert [chain for part in parts for chain in part] == list(range(chains))
    assert len(divided(chains, jobs, stacked=False)) == chains


def test_what_has_diverged_comes_back_from_a_process_as_it_was():
    error = DivergedError("the loss", Constant(4).tick(2), 0.1, [1])
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error)
    assert (back.tick, back.lr, back.chain_ids) == (error.tick, 0.1, [1])


def test_threads_which_share_random_numbers_are_not_used():
    for backend, jobs in (("loky", 2), ("threading", 1)):
        with parallel_config(backend=backend):
            assert effective_jobs(2) == jobs
        with parallel_config(backend=backend, n_jobs=2):
            assert effective_jobs(None) == jobs

"""What both estimators do, with the network that they make and with a user's own."""

import copy
import inspect
import io
import pickle
from typing import Any

import griffe
import joblib
import numpy as np
import pytest
import torch
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from torch import nn

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.estimators.size import Size
from tests.estimators.small import SMALL, Table, diabetes, iris

BOTH = pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])


RAISE: dict[str, Any] = {"error_score": "raise"}  # instead of a score that is NaN


def table(kind) -> Table:
    return iris() if kind is BayesianMLPClassifier else diabetes()


def answers(estimator, rows):
    """All that an estimator predicts."""
    if isinstance(estimator, BayesianMLPClassifier):
        return estimator.predict_proba(rows)
    return np.stack(estimator.predict(rows, return_std=True), axis=1)


class Net(nn.Module):
    """A user's network, with what draws from torch's generator and what has buffers."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(8, outputs),
        )

    def forward(self, features):
        return self.layers(features)


@BOTH
def test_fitted_attributes(kind):
    features, targets = table(kind)
    estimator = kind(**SMALL).fit(features, targets)
    assert estimator.n_features_in_ == features.shape[1]
    rungs = len(estimator.ladder_)
    assert rungs == (2 if kind is BayesianMLPClassifier else 3)  # one with constant noise
    assert estimator.weights_.shape == (SMALL["cycles"], rungs)
    assert estimator.weights_.sum() == pytest.approx(1)
    members = {(draw.cycle, draw.chain_id % rungs) for draw in estimator.draws_}
    assert members == set(zip(*estimator.weights_.nonzero(), strict=True))
    per_chain = len(members) * SMALL["draws_per_cycle"]
    assert len(estimator.draws_) == SMALL["chains"] * per_chain
    assert estimator.lr_ > 0
    assert len(estimator.loss_curve_) == pytest.approx(SMALL["epochs"], abs=1)
    assert estimator.loss_curve_[-1] < estimator.loss_curve_[0]


@BOTH
def test_feature_names_are_checked(kind):
    pandas = pytest.importorskip("pandas")
    features, targets = table(kind)
    frame = pandas.DataFrame(features).rename(columns="column {}".format)
    estimator = kind(**SMALL).fit(frame, targets)
    assert estimator.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame.rename(columns=str.upper))


@BOTH
@pytest.mark.parametrize("module", [None, Net], ids=["own", "user's"])
def test_random_state_determines_fit_and_global_state_is_unchanged(kind, module):
    features, targets = table(kind)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    one, same, other = (
        answers(
            kind(**{**SMALL, "module": module, "random_state": seed}).fit(features, targets),
            features,
        )
        for seed in (0, 0, 1)
    )
    assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@BOTH
def test_fit_does_not_depend_on_units_of_columns(kind):
    features, targets = table(kind)
    one = kind(**SMALL).fit(features, targets)
    # A power of two, so that no last bit differs.
    other = kind(**SMALL).fit(1024 * features, targets)
    assert_allclose(answers(one, features), answers(other, 1024 * features), rtol=1e-9)


def pickled(estimator):
    return pickle.loads(pickle.dumps(estimator))


def through_joblib(estimator):
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


@BOTH
@pytest.mark.parametrize("module", [None, Net], ids=["own", "user's"])
@pytest.mark.parametrize("copied", [pickled, through_joblib, copy.deepcopy])
def test_copies_predict_the_same(kind, module, copied):
    features, targets = table(kind)
    estimator = kind(**{**SMALL, "module": module}).fit(features, targets)
    other = copied(estimator)
    assert_array_equal(answers(other, features), answers(estimator, features))
    again = copied(estimator)  # what it has kept for its predictions does not matter
    assert_array_equal(answers(again, features), answers(estimator, features))
    assert [draw.cycle for draw in other.draws_] == [draw.cycle for draw in estimator.draws_]
    assert other.draws_[0].tensors().keys() == estimator.draws_[0].tensors().keys()


def test_unfitted_estimator_can_be_pickled():
    assert pickle.loads(pickle.dumps(BayesianMLPClassifier(lr=0.3))).lr == 0.3


@BOTH
def test_pipeline_and_grid_search(kind):
    features, targets = table(kind)
    pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), kind(**SMALL))
    step = pipeline.steps[-1][0]
    grid = {f"{step}__temperature": [0.1, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=2, **RAISE).fit(features, targets)
    assert search.best_params_[f"{step}__temperature"] in (0.1, 1.0)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_cross_validation_with_a_module():
    features, targets = iris()
    module = nn.Linear(4, 3)
    estimator = BayesianMLPClassifier(**{**SMALL, "module": module})
    other: Any = clone(estimator)
    assert other.module is not module
    assert torch.equal(other.module.weight, module.weight)
    assert cross_val_score(estimator, features, targets, cv=2, **RAISE).mean() > 0.5


def test_grid_search_in_processes_equals_sequential_search():
    features, targets = diabetes()
    grid = {"lr": [0.005, 0.02]}
    with parallel_config(backend="loky", inner_max_num_threads=1):  # as here
        alone, shared = (
            GridSearchCV(BayesianMLPRegressor(**SMALL), grid, cv=2, n_jobs=jobs, **RAISE).fit(
                features, targets
            )
            for jobs in (1, 2)
        )
    scores = "mean_test_score"
    assert_array_equal(alone.cv_results_[scores], shared.cv_results_[scores])
    assert_array_equal(shared.predict(features), alone.predict(features))


@BOTH
def test_clone_has_arguments_but_no_fitted_attributes(kind):
    features, targets = table(kind)
    estimator = kind(**{**SMALL, "lr": 0.05}).fit(features, targets)
    other: Any = clone(estimator)
    assert other.get_params() == estimator.get_params()
    assert not hasattr(other, "draws_")
    assert_array_equal(other.fit(features, targets).predict(features), estimator.predict(features))


@BOTH
def test_given_module_is_not_changed(kind):
    features, targets = table(kind)
    outputs = 3 if kind is BayesianMLPClassifier else 1
    module = nn.Linear(features.shape[1], outputs)
    module.bias.requires_grad_(False)
    start = copy.deepcopy(module)
    estimator = kind(**{**SMALL, "module": module}).fit(features, targets)
    assert torch.equal(module.weight, start.weight)
    name = "bias" if kind is BayesianMLPClassifier else "network.bias"
    assert torch.equal(estimator.draws_[-1].tensors()[name], start.bias)  # which is frozen
    other = estimator.draws_[-1].tensors()[name.replace("bias", "weight")]
    assert not torch.equal(other, start.weight)


def test_lazy_module_and_mean_without_output_dimension():
    features, targets = table(BayesianMLPRegressor)
    lazy = nn.Sequential(nn.LazyLinear(1), nn.Flatten(0))
    estimator = BayesianMLPRegressor(**{**SMALL, "module": lazy}).fit(features, targets)
    assert estimator.predict(features).shape == targets.shape


@BOTH
@pytest.mark.parametrize("rows", [2, 5])
def test_fewer_rows_than_a_batch(kind, rows):
    features, targets = table(kind)
    chosen = [0, 60, 1, 61, 2][:rows]
    estimator = kind(**{**SMALL, "batch_size": 64}).fit(features[chosen], targets[chosen])
    assert np.isfinite(answers(estimator, features)).all()


@BOTH
def test_temperature_0_gives_nearly_equal_draws_in_a_cycle(kind):
    features, targets = table(kind)

    def spread(temperature):
        options = {**SMALL, "chains": 1, "cycles": 1, "prior_scale": 1.0, "exploration": 0.9}
        options |= {"epochs": 1500, "batch_size": 150, "temperature": temperature}
        if kind is BayesianMLPRegressor:  # with "auto" there are two networks, which disagree
            options["noise"] = "constant"
        return kind(**options).fit(features, targets).predictive(features).spread.mean()

    assert spread(1.0) > 3 * spread(0.0)


@BOTH
def test_epochs_may_be_few(kind):
    """A search fits parts of the rows with the epochs that fit all of them."""
    features, targets = table(kind)
    for epochs in (1, 2, 0.5):
        estimator = kind(**{**SMALL, "epochs": epochs, "draws_per_cycle": 8})
        cross_val_score(estimator, features, targets, cv=2, **RAISE)


@BOTH
def test_sparse_rows_give_the_same_fit(kind):
    features, targets = table(kind)
    features = np.where(features > np.median(features, axis=0), features, 0)
    dense = kind(**SMALL).fit(features, targets)
    sparse: Any = csr_matrix(features)
    other = kind(**SMALL).fit(sparse, targets)
    assert_array_equal(answers(dense, features), answers(other, sparse))


@BOTH
@pytest.mark.parametrize("cycles", [None, 3])  # steps by the budget, or as they are asked for
def test_fit_that_is_cut_short_says_so_and_predicts(kind, cycles):
    features, targets = table(kind)
    options = {**SMALL, "epochs": None, "cycles": cycles, "max_seconds": 1e-3}
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        estimator = kind(**options).fit(features, targets)
    assert len(estimator.weights_) == 1
    assert cycles or estimator.draws_[-1].step < 10  # the first cycle is shorter, too
    assert np.isfinite(answers(estimator, features)).all()


def test_held_out_rows_and_steps_do_not_grow_without_limit():
    small, large = (Size.of(BayesianMLPRegressor(), rows) for rows in (20_000, 10**6))
    assert small.seconds == large.seconds <= BayesianMLPRegressor().max_seconds
    assert [20_000 // small.folds, 10**6 // large.folds] == [2000, 4000]


@BOTH
def test_fit_does_not_depend_on_number_of_threads(kind):
    features, targets = table(kind)
    before = torch.get_num_threads()
    one, two = (kind(**SMALL, n_jobs=jobs).fit(features, targets) for jobs in (1, 2))
    assert torch.get_num_threads() == before
    assert_allclose(answers(one, features), answers(two, features), rtol=1e-4)
    with pytest.raises(ValueError, match="n_jobs"):
        kind(**SMALL, n_jobs=0).fit(features, targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layer_sizes": (8, 0)}, "hidden_layer_sizes must be"),
        ({"hidden_layer_sizes": 0.5}, "hidden_layer_sizes must be"),
        ({"activation": "gelu"}, "activation must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"prior_scale": 0}, "prior_scale must be"),
        ({"prior_scale": ()}, "prior_scale must be"),
        ({"temperature": (1, 2, 3)}, "temperature must be"),
        ({"temperature": (0, 1)}, "temperature must be"),
        ({"cycles": 0}, "cycles must be"),
        ({"max_seconds": 0}, "max_seconds must be"),
        ({"chains": 0}, "chains must be"),
        ({"lr": 0}, "lr must be"),
        ({"temperature": -1}, "temperature must be"),
        ({"draws_per_cycle": 0}, "draws_per_cycle must be"),
        ({"exploration": 1.0}, "exploration must be"),
        ({"lr": 1e30}, r"lr=1e\+30"),
        ({"module": 3}, "module must be .* got 3"),
        ({"module": lambda *_: 3}, "module must be .* got 3"),
        ({"module": nn.Linear(5, 3)}, "module does not take rows"),
        ({"module": nn.Linear(4, 2)}, r"module must return .* got \(2, 2\)"),
        ({"module": nn.Identity()}, r"module must return .* got \(2, 4\)"),
        ({"module": nn.LSTM(4, 3)}, "module must return .* got a tuple"),
        ({"module": nn.Linear(4, 3).requires_grad_(False)}, "module has no trainable"),
    ],
)
def test_invalid_options_raise(options, message):
    features, targets = iris()
    with pytest.raises(ValueError, match=message):
        BayesianMLPClassifier(**{**SMALL, **options}).fit(features, targets)


@BOTH
def test_invalid_tables_raise(kind):
    features, targets = table(kind)
    estimator = kind(**SMALL)
    holed = features.copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(holed, targets)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(features, targets[:-1])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array instead"):
        estimator.fit(features[:, 0], targets)
    if kind is BayesianMLPClassifier:
        with pytest.raises(ValueError, match="y should be a 1d array"):
            estimator.fit(features, np.stack([targets, targets], axis=1))
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        estimator.fit(features[:0], targets[:0])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.predict(features)
    estimator.fit(features, targets)
    with pytest.raises(ValueError, match="expecting"):
        estimator.predict(features[:, 1:])
    with pytest.raises(ValueError, match="NaN"):
        estimator.predict(holed)


@BOTH
def test_docstring_documents_every_argument(kind):
    """The common arguments are appended to those of each class."""
    found = griffe.Docstring(inspect.getdoc(kind) or "").parse("google")
    sections = [one for one in found if isinstance(one, griffe.DocstringSectionParameters)]
    documented = [argument.name for section in sections for argument in section.value]
    assert sorted(documented) == sorted(inspect.signature(kind).parameters)
    attributes = [one for one in found if isinstance(one, griffe.DocstringSectionAttributes)]
    assert len(attributes) == 2

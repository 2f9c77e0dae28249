"""Mistakes in arguments of the public classes raise an error that names the argument.

See also test_fuzz.py.
"""

# Wrong types are given on purpose.
# pyright: reportArgumentType=false

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from csgmcmc import SGLD, Chain, Constant, DrawStore, MemoryDraws, Posterior, Stack, Stepper, stack
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.posterior import Categorical, Gaussian
from csgmcmc.stacked import StackedParameter

DATA = [(torch.randn(4, 2), torch.randn(4, 1))]


def parts(**changes):
    """What a chain of a small network takes."""
    model = nn.Linear(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4, seed=0)
    usual = {"model": model, "sampler": sampler, "schedule": Constant(4)}
    return {**usual, **changes}


def make_chain(**changes):
    return Chain(**{**parts(loss=mse_loss, data=DATA, progress=False), **changes})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 5),
        ("model", nn.Linear),
        ("sampler", SGLD),
        ("sampler", "SGLD"),
        ("schedule", 100),
        ("schedule", Constant),
        ("draws", "runs/mine"),
        ("chain_id", "0"),
    ],
)
def test_types_of_the_parts_of_a_run(name, value):
    for make in (lambda **given: Stepper(**parts(**given)), make_chain):
        with pytest.raises(ValueError, match=f"{name} must be .*got"):
            make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss", "mse"),
        ("clip", "1"),
        ("accumulate", 1.5),
        ("autocast", "bfloat16"),
        ("autocast", torch.float64),
        ("checkpoint_every", "1"),
        ("checkpoint_dir", 5),
    ],
)
def test_types_of_the_options_of_a_chain(name, value):
    with pytest.raises(ValueError, match=f"{name} must .*got"):
        make_chain(**{name: value})


def test_a_loss_that_returns_no_tensor_is_named():
    with pytest.raises(ValueError, match=r"loss must .* got a float"):
        make_chain(loss=lambda *_: 0.5).run()


def test_numbers_of_a_chain_are_plain():
    settings = make_chain(clip=np.float64(1.0), accumulate=np.int64(2)).stepper.settings
    assert type(settings["clip"]) is float
    assert type(settings["accumulate"]) is int


class WithExtraState(nn.Linear):
    def get_extra_state(self):
        return torch.zeros(1)

    def set_extra_state(self, state):
        pass


def test_a_state_besides_tensors_is_refused_at_once():
    model = WithExtraState(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4)
    with pytest.raises(ValueError, match="_extra_state"):
        Stepper(model, sampler, Constant(4))
    draws = MemoryDraws()
    draws.append(nn.Linear(2, 1), step=0)
    with pytest.raises(ValueError, match="_extra_state"):
        Posterior(model, draws)


def test_an_optimizer_that_divides_the_parameters_is_refused():
    class ZeroRedundancyOptimizer(torch.optim.SGD):
        pass

    model = nn.Linear(2, 1)
    sampler = ZeroRedundancyOptimizer(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="share their noise"):
        Stepper(model, sampler, Constant(4))


@pytest.fixture
def draws():
    kept = MemoryDraws()
    kept.append(nn.Linear(2, 1), step=0)
    return kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 5),
        ("draws", 5),
        ("draws", [nn.Linear(2, 1)]),
        ("weights", ["a"]),
        ("likelihood", 5),
        ("autocast", "bfloat16"),
    ],
)
def test_types_of_the_options_of_a_posterior(draws, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        Posterior(**{"model": nn.Linear(2, 1), "draws": draws, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", 5),
        ("dtype", "float16"),
        ("dtype", torch.int8),
        ("only", "weight"),
        ("only", 5),
        ("provenance", [1]),
    ],
)
def test_types_of_the_options_of_a_store(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        DrawStore(**{"path": tmp_path / "store", name: value})


def test_provenance_must_fit_into_json(tmp_path):
    with pytest.raises(ValueError, match="provenance must be plain values"):
        DrawStore(tmp_path / "store", provenance={"at": object()})


@pytest.mark.parametrize("bad", ["1", 1.5, None])
def test_numbers_of_likelihoods(bad):
    with pytest.raises(ValueError, match="dim must be"):
        Categorical(dim=bad)
    with pytest.raises(ValueError, match="ignore_index must be"):
        Categorical(ignore_index=bad)
    with pytest.raises(ValueError, match="variance must be"):
        Gaussian(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize("make", [stack, Stack, lambda bad: stack(bad, 2)])
@pytest.mark.parametrize("bad", [5, "ab", [], [nn.Linear(2, 1), nn.Linear(3, 1)]])
def test_a_stack_is_of_models_of_one_architecture(make, bad):
    with pytest.raises(ValueError, match=r"model|chains"):
        make(bad)


def test_a_pickled_stack_draws_the_noise_of_its_chains():
    model = pickle.loads(pickle.dumps(stack(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), 3)))
    assert {type(param) for param in model.parameters()} == {StackedParameter}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior_scale", "wide"),
        ("temperature", None),
        ("hidden_layer_sizes", "50"),
        ("batch_size", 0.5),
        ("lr", "0.1"),
        ("epochs", "3"),
    ],
)
def test_options_of_estimators(name, value):
    estimator = BayesianMLPRegressor(**{"epochs": 1, "chains": 1, name: value})
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        estimator.fit(np.ones((5, 2)), np.arange(5))


@pytest.mark.parametrize("value", ["heavy", 5, {0: 0, 1: 0}, {0: -1}])
def test_weights_of_classes(value):
    estimator = BayesianMLPClassifier(epochs=10, chains=1, class_weight=value)
    with pytest.raises(ValueError, match="class_weight"):
        estimator.fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


# Methods; `tests/test_fuzz_methods.py` tries all of them


def kept(draws):
    draws.append(nn.Linear(2, 1), step=0)
    return draws


METHODS = [
    ("of_chain", ("x",), "chain_id must"),
]


@pytest.mark.parametrize(("method", "arguments", "words"), METHODS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_methods_of_draws_name_their_arguments(tmp_path, in_memory, method, arguments, words):
    draws = kept(MemoryDraws() if in_memory else DrawStore(tmp_path))
    given = [draws[0] if argument is None else argument for argument in arguments]
    with pytest.raises(ValueError, match=words):
        getattr(draws, method)(*given)


@pytest.mark.parametrize("chain_id", ["x", -1, None, 0.5])
def test_methods_of_a_store_name_the_chain(tmp_path, chain_id):
    store = kept(DrawStore(tmp_path))
    for method in (store.lock_chain, store.is_being_written):
        with pytest.raises(ValueError, match="chain_id must be"):
            method(chain_id)


def test_a_draw_of_another_model_is_refused():
    draw = kept(MemoryDraws())[0]
    for model in (nn.Linear(3, 1), nn.Sequential(nn.Linear(2, 1))):
        with pytest.raises(RuntimeError, match="state_dict"):
            draw.load_into(model)
    with pytest.raises(ValueError, match="model must be"):
        draw.load_into("x")


def test_methods_of_a_sampler_and_a_run_name_their_arguments():
    sampler = SGLD([nn.Parameter(torch.zeros(2))], lr=0.1, num_data=4)
    with pytest.raises(ValueError, match="state_dict has no noise"):
        sampler.load_state_dict({})

"""Bad input of the public classes is a sentence that names the argument; see also test_fuzz.py."""

# Wrong types are given on purpose.
# pyright: reportArgumentType=false

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from csgmcmc import (
    SGLD,
    Chain,
    Constant,
    DrawStore,
    MemoryDraws,
    Posterior,
    Recipe,
    Stack,
    Stepper,
    Task,
    stack,
)
from csgmcmc.checks import Watch
from csgmcmc.diagnostics import reference_ess
from csgmcmc.errors import StoreError
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.posterior import Categorical, Gaussian
from csgmcmc.stacked import StackedParameter
from csgmcmc.targets import Density, GaussianTarget, LogisticRegression, Mixture, Mixture25

DATA = [(torch.randn(4, 2), torch.randn(4, 1))]


def parts(**changes):
    """What a chain of a small network takes."""
    model = nn.Linear(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4, seed=0)
    usual = {"model": model, "sampler": sampler, "schedule": Constant(4, every=2)}
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
        ("layout", 2),
        ("generators", 5),
        ("generators", [0]),
        ("chain_id", "0"),
    ],
)
def test_parts_of_a_run_have_their_kinds(name, value):
    for make in (lambda **given: Stepper(**parts(**given)), make_chain):
        with pytest.raises(ValueError, match=f"{name} must be .*got"):
            make(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loss", "mse"),
        ("data", 5),
        ("data", "runs"),
        ("device", "gpu"),
        ("device", "meta"),
        ("device", 1.5),
        ("device", 2**63),
        ("clip", "1"),
        ("accumulate", 1.5),
        ("autocast", "bfloat16"),
        ("autocast", torch.float64),
        ("callbacks", 5),
        ("callbacks", [5]),
        ("checkpoint_every", "1"),
        ("checkpoint_dir", 5),
        ("watch", "yes"),
        ("progress", np.zeros(2)),
        ("compile", 5),
    ],
)
def test_options_of_a_chain_have_their_kinds(name, value):
    with pytest.raises(ValueError, match=f"{name} must .*got"):
        make_chain(**{name: value})


def test_a_loss_that_returns_no_tensor_is_named():
    with pytest.raises(ValueError, match=r"loss must be one number .* got a float"):
        make_chain(loss=lambda *_: 0.5).run()


def test_numbers_of_a_chain_are_plain():
    settings = make_chain(clip=np.float64(1.0), accumulate=np.int64(2)).stepper.settings
    assert type(settings["clip"]) is float
    assert type(settings["accumulate"]) is int


@pytest.mark.parametrize("name", ["settings", "words"])
@pytest.mark.parametrize("value", [5, torch.ones(2)])
def test_options_of_a_stepper_have_their_kinds(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        Stepper(**parts(**{name: value}))


class WithExtraState(nn.Linear):
    def get_extra_state(self):
        return torch.zeros(1)

    def set_extra_state(self, state):
        pass


def test_a_state_besides_tensors_is_refused_at_once():
    model = WithExtraState(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4)
    with pytest.raises(ValueError, match="get_extra_state"):
        Stepper(model, sampler, Constant(4))
    draws = MemoryDraws()
    draws.append(nn.Linear(2, 1), step=0)
    with pytest.raises(ValueError, match="get_extra_state"):
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
        ("weights", object()),
        ("likelihood", 5),
        ("device", "gpu"),
        ("autocast", "bfloat16"),
        ("forward", 5),
        ("vectorize", "yes"),
        ("progress", "no"),
    ],
)
def test_options_of_a_posterior_have_their_kinds(draws, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        Posterior(**{"model": nn.Linear(2, 1), "draws": draws, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", 5),
        ("path", b"runs"),
        ("path", "a\0b"),
        ("dtype", "float16"),
        ("dtype", torch.int8),
        ("only", "weight"),
        ("only", 5),
        ("only", [5]),
        ("provenance", [1]),
        ("provenance", np.ones(2)),
    ],
)
def test_options_of_a_store_have_their_kinds(tmp_path, name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        DrawStore(**{"path": tmp_path / "store", name: value})


def test_provenance_must_fit_into_json(tmp_path):
    with pytest.raises(ValueError, match="provenance must be plain values"):
        DrawStore(tmp_path / "store", provenance={"at": object()})


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: GaussianTarget(bad, torch.eye(2)),
        lambda bad: GaussianTarget(torch.zeros(2), bad),
        lambda bad: LogisticRegression(bad, torch.zeros(2)),
        lambda bad: LogisticRegression(torch.ones(2, 2), bad),
        lambda bad: Mixture(bad, 1.0),
        lambda bad: Mixture(torch.zeros(2, 2), 1.0, bad),
        Mixture25,
        lambda bad: Density(bad, torch.zeros(2)),
        lambda bad: Density(Mixture25(), bad),
    ],
)
@pytest.mark.parametrize("bad", [5, "x", [[1.0]], torch.ones(2, 2, dtype=torch.int64)], ids=repr)
def test_targets_take_tensors(make, bad):
    with pytest.raises(ValueError, match=r"must (be|have)"):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianTarget(torch.zeros(2), torch.zeros(2, 2)),
        lambda: Mixture(torch.zeros(99, 2), 1.0, torch.zeros(99)),
        lambda: reference_ess(np.ones((9, 99)), mean=0.0, variance=np.zeros(99), truncate=True),
    ],
    ids=["covariance", "weights", "variance"],
)
def test_a_message_about_an_array_is_one_line(make):
    with pytest.raises(ValueError, match="must be") as found:
        make()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "variance", [torch.eye(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2) * 1j]
)
def test_variances_are_dense_and_real(variance):
    with pytest.raises(ValueError, match="variance must be"):
        Gaussian(variance)


@pytest.mark.parametrize("bad", ["1", 1.5, None, 2**64])
def test_numbers_of_likelihoods(bad):
    with pytest.raises(ValueError, match="dim must be"):
        Categorical(dim=bad)
    with pytest.raises(ValueError, match="ignore_index must be"):
        Categorical(ignore_index=bad)
    with pytest.raises(ValueError, match="variance must be"):
        Gaussian(torch.tensor([1.0, float("nan")]))


@pytest.mark.parametrize("make", [stack, Stack, lambda bad: stack(bad, 2)])
@pytest.mark.parametrize("bad", [5, "ab", [], [5], [nn.Linear(2, 1), nn.Linear(3, 1)]])
def test_a_stack_is_of_models_of_one_architecture(make, bad):
    with pytest.raises(ValueError, match=r"model|chains"):
        make(bad)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.to("meta"),
        lambda model: model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True),
        lambda model: nn.Sequential(model).load_state_dict(
            {f"0.{name}": value.clone() for name, value in model.state_dict().items()}, assign=True
        ),
        lambda model: nn.Sequential(model).to("meta"),
    ],
)
def test_a_stack_stays_one_when_torch_replaces_its_parameters(change):
    """Otherwise all chains would be one parameter, of one chain's noise."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = pickle.loads(pickle.dumps(stack(inner, 3)))
    change(model)
    assert {type(param) for param in model.parameters()} == {StackedParameter}


def test_the_rest():
    with pytest.raises(ValueError, match="stepper must be"):
        Watch(5)
    with pytest.raises(ValueError, match="num_data must be"):
        Task(nn.Linear(2, 1), mse_loss, DATA, num_data="4")
    with pytest.raises(ValueError, match="accumulate must be"):
        Task(nn.Linear(2, 1), mse_loss, DATA, chain_options={"accumulate": "2"})
    with pytest.raises(ValueError, match="seed must be below"):
        Recipe(seed=10**23)
    recipe = Recipe(
        lr=np.float64(0.1), cycles=np.int64(2), sampler_options={"momentum": np.ones(())}
    )
    assert Recipe(lr=0.1, cycles=2, sampler_options={"momentum": 1.0}).to_json() == recipe.to_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior_scale", "wide"),
        ("prior_scale", 1e-200),
        ("prior_scale", [1, [2, 3]]),
        ("temperature", None),
        ("cycles", 10**9),
        ("chains", 10**9),
        ("hidden_layer_sizes", 10**12),
        ("hidden_layer_sizes", "50"),
        ("hidden_layer_sizes", np.array(0.5)),
        ("hidden_layer_sizes", np.array("x")),
        ("batch_size", 0.5),
        ("lr", "0.1"),
        ("epochs", "3"),
        ("random_state", 0.5),
        ("random_state", -1),
        ("verbose", "yes"),
    ],
)
def test_options_of_estimators(name, value):
    estimator = BayesianMLPRegressor(**{"epochs": 1, "chains": 1, name: value})
    with pytest.raises(ValueError, match=f"{name} must be .*got"):
        estimator.fit(np.ones((5, 2)), np.arange(5))


@pytest.mark.parametrize("value", [[1], "heavy", 5, {0: "x"}, {0: 0, 1: 0}, {0: -1}])
def test_weights_of_classes(value):
    estimator = BayesianMLPClassifier(epochs=10, chains=1, class_weight=value)
    with pytest.raises(ValueError, match=r"class_weight .*got"):
        estimator.fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


# Methods; `tests/test_fuzz_methods.py` tries all of them


def kept(draws):
    draws.append(nn.Linear(2, 1), step=0)
    return draws


METHODS = [
    ("set_log_likelihood", ("x", 1.0), "draw must be a draw, got 'x'"),
    ("set_log_likelihood", (None, "x"), "value must be a number, got 'x'"),
    ("of_chain", ("x",), "chain_id must be a whole number, got 'x'"),
]


@pytest.mark.parametrize(("method", "arguments", "words"), METHODS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_methods_of_draws_name_their_arguments(tmp_path, in_memory, method, arguments, words):
    draws = kept(MemoryDraws() if in_memory else DrawStore(tmp_path))
    given = [draws[0] if argument is None else argument for argument in arguments]
    with pytest.raises(ValueError, match=words):
        getattr(draws, method)(*given)


@pytest.mark.parametrize("chain_id", ["x", -1, None, 0.5, torch.ones(2)])
def test_methods_of_a_store_name_the_chain(tmp_path, chain_id):
    store = kept(DrawStore(tmp_path))
    for method in (store.lock_chain, store.is_being_written):
        with pytest.raises(ValueError, match="chain_id must be"):
            method(chain_id)
    with pytest.raises(ValueError, match="each of chain_ids must be"), store.locked([chain_id]):
        pass
    with pytest.raises(ValueError, match="chain_ids must be numbers of chains, got 5"):
        store.close(5)


def test_a_draw_of_another_model_is_named_in_one_line():
    draw = kept(MemoryDraws())[0]
    for model in (nn.Linear(3, 1), nn.Sequential(nn.Linear(2, 1)), "x"):
        with pytest.raises(ValueError, match=r"model (is not that of the draw|must be)") as raised:
            draw.load_into(model)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("path", [5, None, b"x", "a\0b", "absent.json", ".", ""])
def test_a_recipe_that_cannot_be_read_or_written_is_named(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"path must be|cannot be read"):
        Recipe.load(path)
    if path != "absent.json":
        with pytest.raises(
            (ValueError, StoreError), match=r"path must be|writing the recipe failed"
        ):
            Recipe().save(path)


def test_methods_of_a_recipe_name_their_arguments(tmp_path):
    recipe = Recipe(lr=0.1)
    recipe.save(tmp_path / "recipe.json")
    for call, words in [
        (lambda: Recipe.load(tmp_path / "recipe.json", {}), "defaults must be a Recipe, got {}"),
        (lambda: recipe.replace(unknown=1), "unknown is no value of a recipe"),
        (lambda: recipe.make_chain("x", mse_loss, DATA), "model must be a torch.nn.Module"),
        (lambda: recipe.make_chain(nn.Linear(2, 1), mse_loss, DATA, size=3), "size is no argument"),
        (lambda: recipe.make_chain(nn.Linear(2, 1), mse_loss, DATA, layout=3), "layout must be"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


def test_methods_of_a_posterior_name_their_arguments():
    posterior = Posterior(nn.Linear(2, 1), kept(MemoryDraws()), likelihood=Gaussian(1.0))
    for call, words in [
        (lambda: posterior.predict(DATA[0][0], members="x"), "members must be True or False"),
        (lambda: posterior.weigh("uniform", regions=["a"]), "regions must be numbers"),
        (lambda: posterior.weigh("uniform", regions=[1, 2]), "regions must be one number for each"),
        (lambda: posterior.check(DATA, show="x"), "show must be True or False"),
        (lambda: posterior.log_likelihoods(DATA, again="x"), "again must be True or False"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


def test_methods_of_a_sampler_name_their_arguments():
    sampler = SGLD([nn.Parameter(torch.zeros(2))], lr=0.1, num_data=4)
    groups = sampler.state_dict()["param_groups"]
    noise = sampler.state_dict()["noise"]
    for call, words in [
        (lambda: sampler.load_state_dict(5), "state_dict must be a dictionary, got 5"),
        (lambda: sampler.load_state_dict({"noise": noise}), "state_dict must hold param_groups"),
        (lambda: sampler.load_state_dict({"noise": 5}), "noise must be a dictionary, got 5"),
        (
            lambda: sampler.load_state_dict(
                {"noise": noise, "state": {}, "param_groups": [{**groups[0], "lr": "x"}]}
            ),
            "lr must be a number, got 'x'",
        ),
        (lambda: sampler.set_lr({}, 0.1), "group must be one of param_groups, got {}"),
        (lambda: sampler.step(5), "closure must be a function, got 5"),
        (
            lambda: SGLD.stationary_variance("x", lr=0.1, num_data=1),
            "curvature must be a number, got 'x'",
        ),
        (lambda: Constant(3).apply(5, 0), "optimizer must be a torch optimizer, got 5"),
        (lambda: make_chain().run(resume="x"), "resume must be True or False, got 'x'"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()

"""A posterior from trained weights: right around the mode, and of the chosen weights alone."""

import re
import warnings
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, AdamSGHMC, Draw, DrawStore, Posterior, posterior_from_trained, stack
from csgmcmc.checks.evaluation import evaluate
from csgmcmc.errors import SamplingWarning, SettingsMismatchError
from csgmcmc.posterior import Gaussian
from csgmcmc.report.page import cycle_table

ROWS, NOISE, DECAY = 100, 0.25, 0.02


def gaussian_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean() / (2 * NOISE)


class Network(nn.Module):
    """Features that are not linear in the inputs, and a linear layer on top."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5)),
        )
        self.head = nn.Linear(4, outputs, bias=outputs > 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs))


def classes() -> tuple[Network, DataLoader]:
    torch.manual_seed(0)
    inputs = torch.randn(60, 2)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    return Network(outputs=2), DataLoader(data, batch_size=20, shuffle=True)


QUICK = {"held_out": None, "lr": 0.01, "draws": 3, "progress": False, "watch": False}


def test_the_last_layer_has_the_exact_posterior():
    """With frozen features and Gaussian noise it is a linear model, whose posterior is known.

    Squares of standardised draws have mean 1. Their standard error is that of 20 batch means, and
    a Student t of 19 degrees of freedom exceeds 5.5 in one of 37,000 seeds; there are 4 numbers.
    """
    torch.manual_seed(0)
    inputs = torch.randn(ROWS, 2)
    model = Network().eval()
    features = model.body(inputs).detach()
    targets = features @ torch.ones(4, 1) + NOISE**0.5 * torch.randn(ROWS, 1)
    hessian = features.T @ features / (ROWS * NOISE) + DECAY * torch.eye(4)  # of U / N
    mode = torch.linalg.solve(hessian, features.T @ targets / (ROWS * NOISE))
    with torch.no_grad():
        model.head.weight.copy_(mode.T)  # the training
    whole = [(inputs, targets)]
    options = {"num_data": ROWS, "weight_decay": DECAY, "temperature": 1.0, "progress": False}
    options["held_out"] = None
    posterior = posterior_from_trained(
        *(model, gaussian_loss, whole), epochs=3000, only="last layer", draws=2400, **options
    )
    assert posterior.run is not None
    lr = posterior.run.sampler.param_groups[0]["lr"]
    curvatures, directions = torch.linalg.eigh(hessian)
    assert 0.01 < lr * curvatures[-1] / 3.8 < 0.1  # far from the limit of stability
    drawn = torch.stack([draw.tensors()["head.weight"][0] for draw in posterior.draws])
    along = ((drawn - mode.T) @ directions).double().numpy()
    discrete = [
        SGHMC.stationary_variance(float(each), lr=lr, num_data=ROWS, momentum=0.9)
        for each in curvatures
    ]
    squares = along**2 / np.array(discrete)
    batches = squares.reshape(20, -1, 4).mean(1)
    errors = batches.std(0, ddof=1) / 20**0.5
    assert errors.max() < 0.3
    assert np.abs((batches.mean(0) - 1) / errors).max() < 5.5
    exact = 1 / (ROWS * curvatures.numpy())
    assert np.all(np.array(discrete) < 1.15 * exact)  # at this lr the discrete update is close


def test_only_the_chosen_part_moves_and_the_model_is_left_alone():
    model, loader = classes()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    posterior = posterior_from_trained(
        model, cross_entropy, loader, epochs=3, only="last layer", **QUICK
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(param.requires_grad for param in model.parameters())
    for draw in posterior.draws:
        tensors = draw.tensors()
        moved = {name for name in tensors if not torch.equal(tensors[name], before[name])}
        assert moved == {"head.weight", "head.bias"}  # batch-norm statistics do not
    modes = {name: module.training for name, module in posterior.model.named_modules()}
    assert modes["head"]
    assert not modes["body.1"]
    assert not modes["body.3"]


@pytest.mark.parametrize(
    ("only", "moved"),
    [
        ("body", {"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"}),
        (["head.bias", "body.0"], {"head.bias", "body.0.weight", "body.0.bias"}),
    ],
)
def test_parts_have_names(only, moved):
    model, loader = classes()
    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=3, only=only, **QUICK)
    named = posterior.model.named_parameters()
    assert {name for name, param in named if param.requires_grad} == moved


def test_all_weights_move_by_default_except_frozen_ones():
    model, loader = classes()
    model.head.weight.requires_grad_(False)
    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=3, **QUICK)
    tensors = posterior.draws[0].tensors()
    assert torch.equal(tensors["head.weight"], model.head.weight)
    assert not torch.equal(tensors["body.0.weight"], model.state_dict()["body.0.weight"])
    assert posterior.model.get_submodule("body.1").training  # its statistics follow the weights


def test_a_folder_holds_the_part_and_repeats_nothing(tmp_path):
    model, loader = classes()
    given = (model, cross_entropy, loader)
    options = {"epochs": 3, "only": "head", **QUICK, "lr": None}
    in_memory = posterior_from_trained(*given, **options)
    torch.manual_seed(99)  # of the caller: it has no effect, and is left alone
    state = torch.get_rng_state()
    on_disk = posterior_from_trained(*given, folder=tmp_path, **options)
    again = posterior_from_trained(*given, folder=tmp_path, **options)
    assert torch.equal(torch.get_rng_state(), state)
    store = DrawStore(tmp_path)
    assert (tmp_path / "base.safetensors").exists()
    assert len(store) == 3
    for one, *others in zip(in_memory.draws, on_disk.draws, again.draws, strict=True):
        for other in others:
            assert torch.equal(one.tensors()["head.weight"], other.tensors()["head.weight"])
    assert isinstance(Posterior(model, store), Posterior)


def test_the_step_size_does_not_depend_on_the_prior():
    """A prior that is narrower than that of the training raises the loss at any step size."""
    model, loader = classes()
    found = []
    for weight_decay in (1e-4, 0.1):
        options = {**QUICK, "lr": None, "weight_decay": weight_decay, "epochs": 3}
        run = posterior_from_trained(model, cross_entropy, loader, **options).run
        assert run is not None
        found.append(run.sampler.param_groups[0]["lr"])
    assert found[0] == found[1]


def test_it_can_be_checked_without_being_told_of_the_run():
    model, loader = classes()
    posterior = posterior_from_trained(model, cross_entropy, loader, epochs=20, **QUICK)
    plain = Posterior(model, posterior.draws).check(loader)
    assert "run=" in plain.sampling.words
    found = posterior.check(loader)
    assert "temperature" in found.sampling.words
    assert "nll_start" in found.numbers
    assert "temperature" in posterior.with_draws(posterior.draws[:2]).check(loader).sampling.words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"only": "haed"}, "only has 'haed', .* choose from \"last layer\", body.0, body.1, head"),
        ({"draws": 9}, "draws=9 is more than the 8 steps after the burn-in: give more"),
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"temperature": -1}, "temperature must be at least 0, got -1"),
    ],
)
def test_what_is_wrong_is_said(changed, words):
    model, loader = classes()
    with pytest.raises(ValueError, match=words):
        posterior_from_trained(
            model, cross_entropy, loader, **{"epochs": 3, "only": "head", **QUICK, **changed}
        )


def test_a_stack_and_a_frozen_model_are_refused():
    model, loader = classes()
    with pytest.raises(ValueError, match="model is a Stack: give one trained network"):
        posterior_from_trained(stack(Network, chains=2), cross_entropy, loader, epochs=3, **QUICK)
    with pytest.raises(ValueError, match="no weight of the model requires gradients"):
        posterior_from_trained(
            model.requires_grad_(False), cross_entropy, loader, epochs=3, **QUICK
        )


@pytest.mark.parametrize("only", [None, "head"])
def test_a_folder_of_other_trained_weights_is_refused(tmp_path, only):
    model, loader = classes()
    options = {"epochs": 3, "only": only, "folder": tmp_path, **QUICK}
    posterior_from_trained(model, cross_entropy, loader, **options)
    with torch.no_grad():
        next(model.parameters()).add_(0.01)
    with pytest.raises(SettingsMismatchError, match=r"trained weights.*use another folder"):
        posterior_from_trained(model, cross_entropy, loader, **options)


@cache
def digits() -> tuple[DataLoader, list, list]:
    """A loader of training digits, held-out ones, and others."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order].float() / 16, labels[order]
    data = TensorDataset(images[:300], labels[:300])
    loader = DataLoader(data, batch_size=50, shuffle=True)
    return loader, [(images[300:900], labels[300:900])], [(images[900:], labels[900:])]


def trained_on_digits(seed: int, epochs: int) -> nn.Module:
    loader, *_ = digits()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def test_it_is_never_worse_than_the_scaled_network():
    """On ten networks, of which five are trained well already and five for a single epoch."""
    loader, held_out, _ = digits()
    gains = []
    for seed, epochs in enumerate([60] * 5 + [1] * 5):
        model = trained_on_digits(seed, epochs)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SamplingWarning)
            posterior = posterior_from_trained(
                *(model, cross_entropy, loader),
                **{**QUICK, "held_out": held_out, "epochs": 6, "cycles": 2, "seed": seed},
            )
        scaled = scaled_nll(model, held_out)
        gains.append(scaled - averaged_nll(posterior, held_out))
        assert gains[-1] > -1e-6
        kept = any("no gain over the scaled network: keep it" in str(w.message) for w in caught)
        assert kept == (posterior.weights[0] == 1)
        assert kept == (gains[-1] < 1e-6)
    assert min(gains[5:]) > 0.02  # sampling goes on with the training
    assert min(gains) < 1e-6


def scaled_nll(model: nn.Module, data: list) -> float:
    """By a grid, which no optimiser of the library has touched."""
    inputs, labels = data[0]
    with torch.no_grad():
        logits = model(inputs)
        heats = np.geomspace(0.2, 5, 2000)
        return min(cross_entropy(logits / heat, labels).item() for heat in heats)


def averaged_nll(posterior: Posterior, data: list) -> float:
    inputs, labels = data[0]
    return nll_loss(posterior.predict(inputs).log_probs, labels).item()


def test_weights_and_temperature_are_the_best_on_held_out_data():
    """Against a grid over both, for the network and one group of draws."""
    loader, held_out, others = digits()
    model = trained_on_digits(0, 10)
    options = {**QUICK, "held_out": held_out, "epochs": 6, "lr": 0.1}
    posterior = posterior_from_trained(model, cross_entropy, loader, **options)
    assert [draw.stage for draw in posterior.draws] == ["burn-in", *["sample"] * 3]
    inputs, labels = held_out[0]
    logits = torch.stack([_outputs(model, draw, inputs) for draw in posterior.draws])
    best = np.inf
    for heat in np.geomspace(0.4, 2.5, 100):
        probs = (logits / heat).softmax(-1)
        for share in np.linspace(0, 1, 41):
            mean = share * probs[0] + (1 - share) * probs[1:].mean(0)
            best = min(best, nll_loss(mean.log(), labels).item())
    assert best - 5e-4 < averaged_nll(posterior, held_out) < best + 2e-4
    check = posterior.check(others)
    assert check.numbers["nll_start_scaled"] == pytest.approx(check.numbers["nll_start"], rel=0.02)
    assert " scaled)" in check.better.words
    assert check.numbers["nll"] < check.numbers["nll_start"]
    started = check.numbers["nll_start"]
    with torch.no_grad():
        assert started == pytest.approx(cross_entropy(model(others[0][0]), others[0][1]).item())


def _outputs(model: nn.Module, draw: Draw, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.func.functional_call(model, draw.tensors(), (inputs,))


def test_a_first_cycle_that_ends_worse_is_said():
    loader, held_out, _ = digits()
    model = trained_on_digits(0, 60)
    options = {**QUICK, "held_out": held_out, "epochs": 4, "cycles": 2, "lr": 1.0}
    with (
        pytest.warns(SamplingWarning, match="the first cycle predicts worse than the trained net"),
        pytest.warns(SamplingWarning, match="no gain over the scaled network: keep it"),
    ):
        posterior = posterior_from_trained(model, cross_entropy, loader, **options)
    with torch.no_grad():
        heat = posterior.likelihood.temperature
        wanted = (model(held_out[0][0]) / heat).softmax(-1)
    assert torch.allclose(posterior.predict(held_out[0][0]).probs, wanted, atol=1e-6)


@pytest.mark.filterwarnings("ignore:no gain over the scaled network")
@pytest.mark.parametrize("cycles", [None, 2])
@pytest.mark.parametrize("make", [AdamSGHMC, partial(SGHMC, momentum=0.5)])
def test_other_samplers(make, cycles):
    """Adam's preconditioner adapts in cold steps first, so that it does not warn."""
    loader, held_out, _ = digits()
    model = trained_on_digits(0, 2)
    options = {"held_out": held_out, "epochs": 6, "draws": 4, "cycles": cycles, "progress": False}
    posterior = posterior_from_trained(
        model, cross_entropy, loader, sampler=make, watch=False, **options
    )
    assert posterior.run is not None
    assert type(posterior.run.sampler) is getattr(make, "func", make)
    assert len(posterior.draws) == 5
    assert averaged_nll(posterior, held_out) < scaled_nll(model, held_out) + 1e-6


def test_numbers_are_weighed_without_a_temperature(tmp_path):
    """And a run in a folder resumes to the same posterior."""
    torch.manual_seed(0)
    inputs = torch.randn(ROWS, 2)
    data = [(inputs, inputs.sum(1, keepdim=True))]
    options = {**QUICK, "held_out": data, "epochs": 40, "num_data": ROWS, "folder": tmp_path}
    options["posterior_options"] = {"likelihood": Gaussian(variance=NOISE)}
    found = [
        posterior_from_trained(Network().eval(), gaussian_loss, data, **options)
        for _ in range(2)
        if torch.manual_seed(1)
    ]
    assert found[0].weights[0] < 0.5  # the network has not been trained
    assert found[0].likelihood.temperature is None
    assert np.array_equal(found[0].weights, found[1].weights)
    assert found[0].store is not None


@pytest.mark.filterwarnings("ignore:no gain over the scaled network")
def test_a_report_shows_the_network_beside_the_cycles():
    pytest.importorskip("matplotlib")
    loader, held_out, others = digits()
    options = {**QUICK, "held_out": held_out, "epochs": 6, "cycles": 2}
    posterior = posterior_from_trained(trained_on_digits(0, 2), cross_entropy, loader, **options)
    table = cycle_table(evaluate(posterior, others))
    assert re.findall(r"<t[dh][^>]*>(start|cycle \d)</t[dh]>", table) == [
        *("start", "cycle 1", "cycle 2")
    ]

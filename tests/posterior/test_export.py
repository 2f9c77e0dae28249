import subprocess
import sys
import zipfile
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.testing import assert_close

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.draws import Draws
from csgmcmc.posterior import Categorical, Gaussian
from paper.networks import resnet8
from tests.posterior.support import (
    CLOSE,
    Branching,
    Table,
    Tied,
    conv_net,
    in_memory,
    mean_and_variance,
    mlp,
    random,
    randomise,
    tables,
)

WEIGHTS = [0.5, 3.0, 0.0, 1.5]
PAIRS = {"likelihood": "gaussian", "forward": mean_and_variance}
EVERY_CLASS = {
    "probs",
    "log_probs",
    "entropy",
    "expected_entropy",
    "mutual_information",
    "spread",
}
EVERY_NUMBER = {
    "mean",
    "variance",
    "noise_variance",
    "entropy",
    "expected_entropy",
    "mutual_information",
    "spread",
}


class Words(nn.Module):
    """Looks words up and counts them: inputs may have any length, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.classes = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, numbers: Tensor, mask: Tensor | None = None) -> Tensor:
        found = self.words(numbers).tanh()
        return self.classes(found.mean(1) if mask is None else (found * mask).mean(1))


def make_posterior(make, weights: Any = WEIGHTS, **options) -> Posterior:
    return Posterior(make(), in_memory(make, len(weights)), weights, **options)


def floats(*shape: int, seed: int = 0) -> Tensor:
    return random(*shape, seed=seed, dtype=torch.float32)


def exported(posterior, path, inputs, **options) -> Any:
    """What someone else gets from the file."""
    posterior.export(path, inputs, **options)
    return torch.export.load(path).module()


def assert_predicts(program, posterior, inputs, names=None, tolerance=CLOSE) -> None:
    found, expected = program(inputs), posterior.predict(inputs)
    for name in found if names is None else names:
        # The square root in it makes much of rounding.
        near = {**tolerance, "atol": 1e-3} if name == "spread" else tolerance
        assert_close(found[name], getattr(expected, name), **near)


def slow(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.pt2"


# What is in the program


@pytest.mark.parametrize(
    ("make", "shape", "options", "names"),
    [
        (mlp, (5, 4), {"vectorize": False}, EVERY_CLASS),
        (mlp, (5, 4), {"vectorize": False, "likelihood": "bernoulli"}, EVERY_CLASS),
        (mlp, (5, 4), {"vectorize": False, **PAIRS}, EVERY_NUMBER),
        slow(mlp, (5, 4), PAIRS, EVERY_NUMBER),
        slow(mlp, (5, 4), {"likelihood": "bernoulli"}, EVERY_CLASS),
        slow(Tied, (5, 4), {}, EVERY_CLASS),
        slow(mlp, (5, 6, 4), {"likelihood": Categorical(dim=-1)}, EVERY_CLASS),
        slow(mlp, (5, 4), {"likelihood": Gaussian(variance=0.3)}, EVERY_NUMBER),
        slow(resnet8, (2, 3, 16, 16), {}, EVERY_CLASS),
    ],
)
def test_program_matches_predict(make, shape, options, names, path):
    posterior = make_posterior(make, **options)
    program = exported(posterior, path, floats(*shape))
    assert set(program(floats(*shape))) == names
    for batch in (1, 2, 9):
        assert_predicts(program, posterior, floats(batch, *shape[1:], seed=batch))


@pytest.mark.parametrize(
    "options",
    [PAIRS, {"vectorize": False, "likelihood": Gaussian(variance=0.3)}],
    ids=["learned noise", "given noise"],
)
def test_quantiles_are_those_of_the_mixture(options, path):
    posterior = make_posterior(mlp, **options)
    levels = [0.05, 0.5, 0.999]
    program = exported(posterior, path, floats(5, 4), quantiles=levels)
    for batch in (1, 9):
        inputs = 3 * floats(batch, 4, seed=batch)
        expected = posterior.predict(inputs, members=True).quantile(levels)
        assert_close(program(inputs)["quantiles"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "levels", "words"),
    [
        ("categorical", [0.5], "gaussian likelihood"),
        ("student-t", [0.5], "gaussian likelihood"),
        (Gaussian(variance=1.0), [1.0], "quantiles must be above 0 and below 1"),
    ],
)
def test_quantiles_that_cannot_be_exported_are_refused(likelihood, levels, words, path):
    posterior = make_posterior(mlp, likelihood=likelihood)
    with pytest.raises(ValueError, match=words):
        posterior.export(path, floats(5, 4), quantiles=levels)
    assert not path.exists()


def perceptron() -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3, bias=False))


@pytest.mark.parametrize("only", [None, ["3.weight"]])
@pytest.mark.parametrize("vectorize", [None, False])
def test_perceptron_is_evaluated_at_once(vectorize, only, path, tmp_path):
    draws, model = DrawStore(tmp_path / "store", only=only), randomise(perceptron(), seed=0)
    for step in range(4):
        torch.nn.init.normal_(model[3].weight)
        draws.append(model, step=step)
    posterior = Posterior(perceptron(), draws, vectorize=vectorize)
    program: Any = posterior.export(path, floats(5, 2, 2))
    for batch in (1, 2, 9):
        assert_predicts(program.module(), posterior, floats(batch, 2, 2, seed=batch))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    products = [name for name in called if "linear" in name or "bmm" in name]
    assert len(products) == (2 if vectorize is None else 8)


def test_program_of_draws_one_after_another(path):
    posterior = make_posterior(mlp)
    inputs = floats(5, 4)
    program: Any = posterior.export(path, inputs)
    loaded = torch.export.load(path).module()
    for batch in (1, 2, 9):
        assert_predicts(loaded, posterior, floats(batch, 4, seed=batch))

    assert program.state_dict["draws/0/weight"].shape == (3, 6, 4)  # 0 does not count
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded(floats(5, 3))
    assert_predicts(loaded, posterior, inputs)

    # It says nothing of the inputs and of this machine.
    assert not program.example_inputs[0][0].any()
    with zipfile.ZipFile(path) as archive:
        everything = b"".join(archive.read(name) for name in archive.namelist())
    assert b".py" not in everything
    assert inputs.numpy().tobytes() not in everything


def test_program_runs_without_this_library(path):
    posterior = make_posterior(conv_net, [1.0, 2.0])
    posterior.export(path, floats(2, 1, 3, 3))
    images = floats(7, 1, 3, 3, seed=1)
    torch.save(images, path.with_name("images.pt"))
    code = """
import sys
sys.modules["csgmcmc"] = None
import torch
program = torch.export.load("model.pt2").module()
torch.save(program(torch.load("images.pt")), "found.pt")
assert not any(name.startswith("csgmcmc.") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=path.parent, check=True)
    found, expected = torch.load(path.with_name("found.pt")), posterior.predict(images)
    assert found.keys() == EVERY_CLASS
    for name in EVERY_CLASS - {"spread"}:
        assert_close(found[name], getattr(expected, name), **CLOSE)


def test_draws_of_weight_0_are_not_exported(path):
    nan = {name: tensor * float("nan") for name, tensor in mlp().state_dict().items()}
    draws = in_memory(mlp, 2)
    draws.append(nan, step=5)
    posterior = Posterior(mlp(), draws, [1, 2, 0], vectorize=False)
    program = posterior.export(path, floats(5, 4))
    assert program.state_dict["draws/3/bias"].shape == (2, 3)
    assert_predicts(program.module(), posterior, floats(5, 4))


def test_equal_draws_are_stored_once(path):
    draws = MemoryDraws()
    for step in range(3):
        draws.append(randomise(mlp(), seed=0), step=step)
    posterior = Posterior(mlp(), draws)
    program = posterior.export(path, floats(1, 4))  # and a batch of one, too
    assert program.state_dict["common/0/weight"].shape == (6, 4)
    assert_predicts(program.module(), posterior, floats(6, 4))


def test_common_tensors_are_stored_once(path, tmp_path):
    draws: Draws = DrawStore(tmp_path / "store", only=["3.weight", "3.bias"])
    model = mlp()
    for step in range(4):
        with torch.no_grad():
            model[3].bias += step
        draws.append(model, step=step)
    posterior = Posterior(mlp(), draws)
    program = posterior.export(path, floats(5, 4))
    assert program.state_dict["common/0/weight"].shape == (6, 4)
    assert program.state_dict["draws/3/bias"].shape == (4, 3)
    assert_predicts(program.module(), posterior, floats(5, 4))


def test_tied_weights_are_stored_once(path):
    posterior = make_posterior(Tied, vectorize=False)
    program = posterior.export(path, floats(5, 4))
    assert_predicts(program.module(), posterior, floats(5, 4))
    assert set(program.state_dict) == {
        "draws/first/weight",
        "draws/first/bias",
        "draws/second/bias",
        "draw_weights",
    }


def test_autocast_is_exported(path):
    posterior = make_posterior(mlp, autocast=torch.bfloat16)
    program = exported(posterior, path, floats(5, 4))
    half = {"rtol": 0.0, "atol": 0.03}
    assert_predicts(program, posterior, floats(5, 4), ["probs"], half)
    precise: Any = make_posterior(mlp).predict(floats(5, 4))
    assert not torch.allclose(program(floats(5, 4))["probs"], precise.probs, rtol=0, atol=1e-5)


# Inputs


@pytest.mark.parametrize("kind", ["dictionary", slow("tuple")])
def test_inputs_of_several_tensors(kind, path):
    def batch(count: int) -> Any:
        numbers = torch.arange(count * 6).reshape(count, 6) % 7
        mask = floats(count, 6, 1)
        return {"numbers": numbers, "mask": mask} if kind == "dictionary" else (numbers, mask)

    def forward(model, inputs):
        return model(**inputs) if kind == "dictionary" else model(*inputs)

    posterior = make_posterior(Words, forward=forward)
    program = exported(posterior, path, batch(4))
    for count in (1, 7):
        assert_predicts(program, posterior, batch(count))


def test_dynamic_shapes(path):
    posterior = make_posterior(Words, vectorize=False)
    shapes = {0: Dim("batch"), 1: Dim("length")}
    numbers = torch.arange(24).reshape(4, 6) % 7
    program = exported(posterior, path, numbers, dynamic_shapes=shapes)
    assert_predicts(program, posterior, numbers.reshape(8, 3))


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(0, 4),
        {"a": torch.zeros(2, 4), "b": torch.zeros(3, 4)},
        torch.tensor(1.0),
        "text",
    ],
)
def test_inputs_without_a_batch_are_rejected(inputs, path):
    with pytest.raises(ValueError, match="inputs must be tensors"):
        make_posterior(mlp).export(path, inputs)


def test_wrong_inputs_raise_the_error_of_predict(path):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make_posterior(mlp).export(path, floats(5, 3))
    assert not path.exists()


def test_path_must_end_in_pt2_in_an_existing_folder(tmp_path):
    posterior = make_posterior(mlp)
    with pytest.raises(ValueError, match="path must end"):
        posterior.export("model.pt", floats(5, 4))
    with pytest.raises(ValueError, match="path must be in"):
        posterior.export(tmp_path / "absent" / "model.pt2", floats(5, 4))


# What cannot be exported


class Guessing(nn.Linear):
    """Not the same twice."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) + torch.randn_like(input)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        (lambda: make_posterior(Branching), "data-dependent"),
        (lambda: make_posterior(lambda: Guessing(4, 4)), "probs of the program differs"),
    ],
    ids=["branching", "random"],
)
def test_export_error_is_one_line(posterior, message, path):
    with pytest.raises(ValueError, match=message) as error:
        posterior().export(path, floats(5, 4))
    assert "cannot be exported" in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(path.parent.iterdir())  # and nothing is left behind


def test_program_that_differs_from_predict_is_not_written(path, monkeypatch):
    outputs = random(2, 3, 4)
    posterior = Posterior(Table(outputs[0]), tables(outputs), vectorize=False)
    other = Posterior(Table(outputs[0]), tables(2 * outputs))
    monkeypatch.setattr(posterior, "predict", other.predict)
    with pytest.raises(ValueError, match="probs of the program"):
        posterior.export(path, torch.arange(3))
    assert not path.exists()


FULL_DISK = """
import resource, sys
import torch
from torch import nn
from csgmcmc import MemoryDraws, Posterior
from csgmcmc.errors import StoreError
draws = MemoryDraws()
draws.append(nn.Linear(4, 3), step=0)
posterior = Posterior(nn.Linear(4, 3), draws)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    posterior.export(sys.argv[1], torch.zeros(5, 4))
except StoreError as error:
    print(error)
"""


def test_full_disk_raises_store_error(path):
    pytest.importorskip("resource")
    command = [sys.executable, "-W", "ignore", "-c", FULL_DISK, str(path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"{path}: writing the program failed: [Errno 27] File too large" in found
    assert not list(path.parent.iterdir())

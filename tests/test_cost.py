"""The cost of a step, a run and a prediction, counted in operations and files, not in seconds."""

import gc
import io
import sys
from collections import Counter
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from csgmcmc import SGHMC, SGLD, Chain, Constant, DrawStore, Keep, MemoryDraws, Posterior
from csgmcmc.estimators import BayesianMLPClassifier
from csgmcmc.posterior import Gaussian
from paper.networks import mlp


class Count(TorchDispatchMode):
    """Counts the operations that reach a device."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations[str(func)] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return sum(self.operations.values())


def counted_step(optimizer: torch.optim.Optimizer) -> Count:
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()  # makes the state
    with Count() as count:
        optimizer.step()
    return count


@pytest.mark.parametrize(("sampler", "momentum"), [(SGLD, 0.0), (SGHMC, 0.9)])
def test_a_cold_step_takes_no_more_operations_than_torch_sgd(sampler, momentum):
    params = list(mlp(8, 6, 4).parameters())
    reference = torch.optim.SGD(params, 0.1, momentum=momentum, weight_decay=0.1, foreach=True)
    options = {"num_data": 10, "temperature": 0.0, "weight_decay": 0.1, "fused": False}
    assert counted_step(sampler(params, 0.1, **options)).total <= counted_step(reference).total


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sampler", [SGLD, SGHMC])
def test_a_fused_step_is_one_call_of_the_kernel_for_a_group(sampler, temperature, monkeypatch):
    calls = []
    kernels = SimpleNamespace(move_all=lambda *_: calls.append(1))
    monkeypatch.setattr("csgmcmc.noise.fused.load_kernels", lambda _: kernels)
    params = list(mlp(8, 6, 4).parameters())
    options = {"num_data": 10, "temperature": temperature, "weight_decay": 0.1}
    operations = counted_step(sampler(params, 0.1, **options)).operations
    assert all(name.startswith("profiler.") for name in operations)  # nothing but the kernel
    assert len(calls) == 2  # of all parameters together


def test_a_plain_hot_step_adds_the_noise_and_one_pass():
    params = list(mlp(8, 6, 4).parameters())
    options = {"num_data": 10, "fused": False}
    cold, hot = (
        counted_step(SGHMC(params, 0.1, temperature=temperature, **options))
        for temperature in (0.0, 1.0)
    )
    added = hot.operations - cold.operations
    assert added.pop("aten._foreach_add_.List") == 1
    # A buffer for the noise of each parameter, in its shape.
    assert set(added) == {"aten.empty.memory_format", "aten.view.default"}
    assert set(added.values()) == {len(params)}


def test_a_chain_only_adds_reading_the_loss_to_each_step():
    """Operations of 6 more steps, beside those of a loop by hand; a watch adds to the first 100."""
    batch = (torch.randn(10, 8), torch.randint(4, (10,)))

    def by_hand(steps: int) -> Counter[str]:
        model = mlp(8, 6, 4)
        sampler = SGHMC(model.parameters(), 0.1, num_data=10, seed=0)
        with Count() as count:
            for _ in range(steps):
                sampler.zero_grad()
                cross_entropy(model(batch[0]), batch[1]).backward()
                sampler.step()
        return count.operations

    def chained(steps: int) -> Counter[str]:
        model = mlp(8, 6, 4)
        sampler = SGHMC(model.parameters(), 0.1, num_data=10, seed=0)
        schedule = Constant(steps, keep=Keep(every=steps))
        options = {"checkpoint_every": 100, "progress": False, "watch": False}
        chain = Chain(model, cross_entropy, [batch] * 20, sampler, schedule, **options)
        with Count() as count:
            chain.run()
        return count.operations

    added = (chained(12) - chained(6)) - (by_hand(12) - by_hand(6))
    assert added["aten._local_scalar_dense.default"] == 6
    assert set(added) <= {"aten._local_scalar_dense.default", "aten.detach.default"}, added


def calls_of_a_fit(epochs: int) -> Counter[str]:
    """Number of function calls in each file, except for samplers, noise and shards.

    An epoch has 10 steps.
    """
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counted[frame.f_code.co_filename] += 1

    features, labels = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    ladder: dict[str, Any] = {"prior_scale": 1.0, "temperature": 1.0, "cycles": 1}
    model = BayesianMLPClassifier(
        (4,), epochs=epochs, batch_size=4, draws_per_cycle=1, random_state=0, **ladder
    )
    before = sys.getprofile()
    gc.collect()
    gc.disable()  # closing a generator that is garbage is a call, too
    sys.setprofile(count)
    try:
        model.fit(features, labels)
    finally:
        sys.setprofile(before)
        gc.enable()
    samplers = ("csgmcmc/samplers/", "csgmcmc/noise/", "csgmcmc/shards.py")
    loop = [name for name in counted if not any(part in name for part in samplers)]
    return Counter({name.split("site-packages/")[-1]: counted[name] for name in loop})


def test_the_loop_of_a_fit_makes_few_calls():
    """Python calls of 10 epochs, 100 steps, of an estimator, besides those of the sampler."""
    calls_of_a_fit(2)  # imports
    added = calls_of_a_fit(20) - calls_of_a_fit(10)
    assert "torch/utils/_pytree.py" not in added  # batches on a device
    own = {name: count for name, count in added.items() if "csgmcmc/" in name}
    assert sum(own.values()) <= 54 * 100, own


def make_draws(draws, count: int):
    for step in range(count):
        draws.append(mlp(8, 6, 4), step=step)
    return draws


def test_a_stacked_prediction_takes_as_many_operations_for_many_draws_as_for_few():
    totals = []
    for count in (3, 30):
        posterior = Posterior(mlp(8, 6, 4), make_draws(MemoryDraws(), count), vectorize=True)
        posterior.predict(torch.randn(5, 8))  # stacks them
        with Count() as counted:
            posterior.predict(torch.randn(5, 8))
        totals.append(counted.total)
    assert totals[0] == totals[1]


VIEWS = {"expand", "expand_as", "flatten", "lift_fresh", "movedim", "permute", "reshape", "select"}
VIEWS |= {"t", "view"}


@pytest.mark.parametrize(
    ("likelihood", "most"), [("categorical", 34), ("bernoulli", 29), (Gaussian(0.1), 20)]
)
def test_averaging_takes_few_operations(likelihood, most):
    """For a small network they are most of the cost. Views are not counted."""
    draws = make_draws(MemoryDraws(), 3)
    posterior = Posterior(mlp(8, 6, 4), draws, likelihood=likelihood, vectorize=True)
    inputs = torch.randn(5, 8)
    posterior.predict(inputs)  # stacks them
    with Count() as whole:
        posterior.predict(inputs)
    with Count() as forward, torch.inference_mode():
        list(posterior.members.outputs([inputs]))
    added = whole.operations - forward.operations
    work = {name: count for name, count in added.items() if name.split(".")[1] not in VIEWS}
    assert sum(work.values()) <= most, work


def test_one_by_one_a_draw_costs_its_forward_pass_and_little_else():
    model, inputs = mlp(8, 6, 4), torch.randn(5, 8)
    with Count() as plain, torch.inference_mode():
        model(inputs)
    totals = []
    for count in (3, 13):
        posterior = Posterior(model, make_draws(MemoryDraws(), count), vectorize=False)
        posterior.predict(inputs)
        with Count() as counted:
            posterior.predict(inputs)
        totals.append(counted.total)
    assert (totals[1] - totals[0]) / 10 <= plain.total + 6  # the weights' places, and a detach


def test_opening_a_store_reads_no_draw(tmp_path, monkeypatch):
    make_draws(DrawStore(tmp_path), 5)
    opened = []
    original = Path.open

    def spy(path: Path, *args, **kwargs):
        opened.append(path)
        return original(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", spy)
    store = DrawStore(tmp_path)
    assert not [path for path in opened if path.suffix == ".safetensors"]
    store[2].tensors()
    read = [path.name for path in opened if path.suffix == ".safetensors"]
    assert read == ["0000-000000002.safetensors"]


class CountedFile(io.FileIO):
    """Counts the bytes that are read from files."""

    read_bytes = 0

    def readall(self) -> bytes:
        return self._counted(super().readall())

    def read(self, size: int | None = -1, /) -> bytes:
        return self._counted(super().read(-1 if size is None else size))

    def _counted(self, content: bytes) -> bytes:
        CountedFile.read_bytes += len(content)
        return content

"""Samplers, `Stepper` and `Chain` on the device give the CPU's draws, and resume across devices."""

import io
import json

import pytest
import torch
from torch import nn

from csgmcmc import SGHMC, SGLD, Chain, DrawStore, MemoryDraws, Stepper, stack, suggest_lr
from csgmcmc.samplers import discover
from tests.devices.support import (
    OPTIONS,
    SCHEDULE,
    STEPS,
    assert_equal,
    assert_same_draws,
    loader,
    make_chain,
    network,
)
from tests.support import make, small_model

CPU = torch.device("cpu")

# Chains that do not begin at temperature 0, for which AdamSGHMC warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*a preconditioner from a single gradient")


class Stop(Exception):  # noqa: N818
    pass


def stop_at(step):
    def call(info):
        if info.tick.step + 1 == step:
            raise Stop

    return call


def steps(model, sampler, first, last):
    """Steps `first` to `last` of a fixed sequence of minibatches, on the device of the model."""
    where = next(model.parameters()).device
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(8, 2, 4, 4, generator=generator).to(where)
        labels = torch.randint(3, (8,), generator=generator).to(where)
        sampler.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        sampler.step()


def unfused(kind):
    """The options without which a sampler would use a kernel of its device, which rounds."""
    return {"fused": False} if "fused" in make(kind, [torch.zeros(1)]).defaults else {}


def prior(param):
    return torch.tanh(param)


# Samplers


@pytest.mark.parametrize("kind", discover().values(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"weight_decay": 0.1},
        {"prior": prior},
        {"prior": torch.distributions.Normal(0.0, 2.0)},
    ],
    ids=["temperature 0", "weight decay", "a function", "a distribution"],
)
def test_every_sampler_moves_as_on_the_cpu_and_continues_elsewhere(kind, options, device):
    options = {**options, **unfused(kind), "lr": 0.01}
    expected, found, elsewhere = small_model(), small_model().to(device), small_model()
    alone = make(kind, expected.parameters(), **options)
    steps(expected, alone, 0, 6)
    one = make(kind, found.parameters(), **options)
    steps(found, one, 0, 3)
    other = make(kind, elsewhere.parameters(), **options)
    elsewhere.load_state_dict(found.state_dict())
    other.load_state_dict(one.state_dict())  # from the device to the CPU ...
    steps(elsewhere, other, 3, 4)
    found.load_state_dict(elsewhere.state_dict())
    one.load_state_dict(other.state_dict())  # ... and back
    steps(found, one, 4, 6)
    assert all(param.device.type == device.type for param in found.parameters())
    assert_equal(dict(found.state_dict()), dict(expected.state_dict()), device)


@pytest.mark.parametrize("kind", [SGLD, SGHMC])
def test_fused_samplers_draw_the_noise_of_the_cpu(kind, device):
    """By default a device may have a kernel of its own, equal to rounding."""
    expected, found = small_model(), small_model().to(device)
    for model in (expected, found):
        steps(model, make(kind, model.parameters(), lr=0.01), 0, 3)
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-6)


# Stepper


def loop(where, state=None, until=STEPS, dropout=0.0):
    """A user's own loop; its draws, and its state after `until` steps as `torch.save` keeps it."""
    model = network(dropout).to(where)
    sampler, draws = SGHMC(model.parameters(), **OPTIONS, fused=False), MemoryDraws()
    stepper = Stepper(model, sampler, SCHEDULE, draws)
    torch.manual_seed(4)
    if state is not None:
        stepper.load_state_dict(torch.load(state, map_location=where))
    for inputs, labels in stepper.batches(loader()):
        sampler.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs.to(where)), labels.to(where))
        loss.backward()
        stepper.step(loss)
        if stepper.taken == until:
            break
    file = io.BytesIO()
    torch.save(stepper.state_dict(), file)
    file.seek(0)
    return draws, file


@pytest.mark.filterwarnings("ignore:.* of the .* draws before step .* are not in draws")
def test_a_stepper_resumes_exactly_on_the_device(device):
    whole, _ = loop(device, dropout=0.3)
    _, state = loop(device, until=15, dropout=0.3)
    torch.randn(5, device=device)  # moves the generator of the device on
    rest, _ = loop(device, state, dropout=0.3)
    assert_same_draws(rest, [draw for draw in whole if draw.step >= 15], CPU)


@pytest.mark.filterwarnings("ignore:.* of the .* draws before step .* are not in draws")
@pytest.mark.parametrize("first", ["cpu", "device"])
def test_a_state_is_loaded_on_another_device(first, device):
    devices = [CPU, device] if first == "cpu" else [device, CPU]
    whole, _ = loop(CPU)
    _, state = loop(devices[0], until=15)
    rest, _ = loop(devices[1], state)
    assert_same_draws(rest, [draw for draw in whole if draw.step >= 15], device)


# Chain


@pytest.mark.parametrize("store", [True, False], ids=["store", "memory"])
def test_a_chain_on_the_device_keeps_the_draws_of_the_cpu(store, device, tmp_path):
    """Without `device=` batches of a loader on the CPU go to where the model is."""
    expected = make_chain(network()).run()
    draws = DrawStore(tmp_path) if store else None
    chain = make_chain(network().to(device), draws)
    assert_same_draws(chain.run(), expected, device)


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 2},
        {"clip": 0.1},
        {"device": "named"},
        {"autocast": torch.bfloat16},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_a_chain(options, device):
    where = {"device": device} if "device" in options else {}
    expected = make_chain(network(), **{**options, **({"device": "cpu"} if where else {})}).run()
    found = make_chain(network().to(device), **{**options, **where}).run()
    if "autocast" in options:  # lists of what is narrowed differ between devices
        assert all(tensor.isfinite().all() for d in found for tensor in d.tensors().values())
    else:
        assert_same_draws(found, expected, device)


def test_a_chain_is_resumed_on_the_device_with_dropout(device, tmp_path):
    torch.manual_seed(9)
    whole = make_chain(network(0.3).to(device), DrawStore(tmp_path / "whole")).run()
    torch.manual_seed(9)
    model, store = network(0.3).to(device), DrawStore(tmp_path / "cut")
    with pytest.raises(Stop):
        make_chain(model, store, callbacks=stop_at(13)).run()
    torch.randn(5, device=device)
    cut = make_chain(network(0.3).to(device), DrawStore(tmp_path / "cut")).run(resume=True)
    assert_same_draws(cut, whole, CPU)


@pytest.mark.parametrize("first", ["cpu", "device"])
def test_a_chain_is_resumed_on_another_device(first, device, tmp_path):
    devices = [CPU, device] if first == "cpu" else [device, CPU]
    whole = make_chain(network()).run()
    with pytest.raises(Stop):
        begun = make_chain(network().to(devices[0]), DrawStore(tmp_path), callbacks=stop_at(13))
        begun.run()
    rest = make_chain(network().to(devices[1]), DrawStore(tmp_path)).run(resume=True)
    assert_same_draws(rest, whole, device)


def test_a_stack_on_the_device(device):
    def run(where):
        models = [network().to(where) for _ in range(2)]
        model = stack([nn.Sequential(each[0], each[2], each[4]) for each in models])
        return make_chain(model).run()

    assert_same_draws(run(device), run("cpu"), device)


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Parameter(torch.ones(3))

    def forward(self):
        return self.point.square().sum() / 2


def test_a_density_on_the_device(device):
    def run(where):
        model = Density().to(where)
        sampler = SGLD(model.parameters(), 0.1, num_data=1, seed=2, fused=False)
        return Chain(model, None, None, sampler, SCHEDULE, progress=False).run()

    assert_same_draws(run(device), run("cpu"), device)


def test_the_range_test_on_the_device(device):
    found = []
    for where in (CPU, device):
        model = network().to(where)
        cross_entropy = nn.functional.cross_entropy
        found.append(
            suggest_lr(
                model,
                cross_entropy,
                loader(),
                sampler=lambda params, lr: SGHMC(params, lr, num_data=40, seed=1, fused=False),
                steps=50,
            ).lr
        )
    if device.type == "sim":
        assert found[0] == found[1]
    assert 0.1 < found[1] / found[0] < 10


def test_the_log_of_a_chain(device, tmp_path):
    make_chain(network().to(device), DrawStore(tmp_path)).run()
    lines = (tmp_path / "logs" / "0000.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(STEPS))


def test_draws_of_a_device_load_anywhere(device, tmp_path):
    """They are read on the CPU, whichever device they were made on."""
    model = network().to(device).requires_grad_(False)
    model[4].requires_grad_(True)
    store = DrawStore(tmp_path, only=["4.weight", "4.bias", *dict(model.named_buffers())])
    kept = make_chain(model, store).run()
    assert all(tensor.device == CPU for tensor in kept[-1].tensors().values())
    for where in (CPU, device):
        other = network().to(where)
        kept[-1].load_into(other)
        assert_equal(dict(other.state_dict()), dict(model.state_dict()), CPU)

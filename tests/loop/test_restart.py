"""Restarts between cycles: what the weights become, from which random numbers, and resuming."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from csgmcmc import (
    SGHMC,
    SGLD,
    AdamSGHMC,
    Chain,
    Cyclical,
    DrawStore,
    MemoryDraws,
    Stepper,
    stack,
)
from csgmcmc.loop.restart import restart_weights
from csgmcmc.schedules import Joined, Ramp
from csgmcmc.schedules.base import Schedule, Tick
from tests.loop.support import Noisy, make_chain
from tests.loop.test_resume import Stopped, assert_same_runs, stop_at
from tests.support import SIGMAS

FRESH = Cyclical(30, cycles=3, exploration=0.5, draws_per_cycle=1, restart="fresh")
MIXED = Cyclical(30, cycles=3, exploration=0.5, draws_per_cycle=1, restart=0.6)
EVERY_OTHER = Cyclical(
    40, cycles=4, exploration=0.5, draws_per_cycle=1, restart="fresh", restart_every=2
)


def network() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def batches() -> list[Any]:
    torch.manual_seed(0)
    return list(DataLoader(Noisy(), batch_size=8))


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def restarted(model: Any, rho: float, key=(1, 0, 10), initialise=None) -> Any:
    restart_weights(model, list(model.parameters()), rho, [key], initialise)
    return model


# What the weights become


def test_fresh_weights_are_distributed_as_newly_made_ones_and_depend_on_the_key_alone():
    torch.manual_seed(3)
    models = [network() for _ in range(3)]
    before = torch.get_rng_state()
    one, other = restarted(models[0], 0.0), restarted(models[1], 0.0)
    assert equal(state(one), state(other))
    assert torch.equal(torch.get_rng_state(), before)
    another = restarted(models[2], 0.0, (1, 0, 20))
    assert not torch.equal(one[0].weight, another[0].weight)
    big, new = restarted(nn.Linear(100, 100), 0.0), nn.Linear(100, 100)
    assert big.weight.abs().max() <= new.weight.abs().max() * 1.01
    assert big.weight.std().item() == pytest.approx(0.1 / 3**0.5, rel=SIGMAS * 0.005)


def test_a_share_keeps_the_distribution_of_the_initialisation():
    def normal(module: Any) -> None:
        nn.init.normal_(module.weight, std=0.3)

    model = nn.Linear(200, 200, bias=False)
    normal(model)
    before = model.weight.detach().clone()
    restarted(model, 0.8, initialise=normal)
    error = 1 / 40_000**0.5
    assert model.weight.std().item() == pytest.approx(0.3, rel=SIGMAS * error)
    both = torch.stack([before.flatten(), model.weight.detach().flatten()])
    assert torch.corrcoef(both)[0, 1].item() == pytest.approx(0.8, abs=SIGMAS * error)


def test_values_that_are_not_random_are_approached():
    model = network()
    with torch.no_grad():
        model[1].weight.fill_(3.0)
        model[1].bias.fill_(1.0)
    restarted(model, 0.75)
    assert torch.allclose(model[1].weight, torch.tensor(0.75 * 3 + 0.25))
    assert torch.allclose(model[1].bias, torch.tensor(0.75))
    restarted(model, 0.0)
    assert (model[1].weight == 1).all()
    assert (model[1].bias == 0).all()


def test_statistics_of_norms_begin_anew():
    model = network()
    model(torch.randn(50, 6) + 3)
    assert model[1].num_batches_tracked == 1
    restarted(model, 0.5)
    assert model[1].num_batches_tracked == 0
    assert (model[1].running_mean == 0).all()
    assert (model[1].running_var == 1).all()


def test_only_sampled_weights_restart():
    model = network()
    model(torch.randn(50, 6))
    for layer in model[:2]:
        layer.requires_grad_(False)
    before = state(model)
    restart_weights(model, list(model[3].parameters()), 0.0, [(0, 0, 0)])
    after = state(model)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"3.weight", "3.bias"}


def test_ties_are_kept_and_tensors_are_the_same_objects():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Embedding(5, 3)
            self.outer = nn.Linear(3, 5, bias=False)
            self.outer.weight = self.inner.weight

    model = Tied()
    before, old = model.inner.weight, model.inner.weight.detach().clone()
    restarted(model, 0.0)
    assert model.inner.weight is before
    assert model.outer.weight is before
    assert not torch.equal(before, old)


@pytest.mark.parametrize(
    "model",
    [
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.MultiheadAttention(8, 2),
        nn.LSTM(3, 4, 2),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.PReLU()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_layers_of_torch_need_no_function(model):
    before = state(model)
    restarted(model, 0.0)
    assert any(not torch.equal(value, before[name]) for name, value in state(model).items())
    model.requires_grad_(True)
    assert all(param.isfinite().all() for param in model.parameters())


class WithToken(nn.Module):
    """As a vision transformer: a parameter of its own beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(6))
        self.head = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(inputs + self.token)


def set_token(model: Any) -> None:
    nn.init.normal_(model.token)


def test_parameters_that_no_module_initialises_are_named_before_the_run():
    model = WithToken()
    before, sampler = state(model), SGHMC(model.parameters(), lr=0.1, num_data=40, seed=0)
    with pytest.raises(ValueError, match=r"reset_parameters.*token.*initialise=") as error:
        Stepper(model, sampler, FRESH)
    assert "head" not in str(error.value)
    assert equal(state(model), before)
    Stepper(model, sampler, Cyclical(30, cycles=3, exploration=0.5, draws_per_cycle=1))
    loss = cross_entropy
    Chain(model, loss, batches(), sampler, FRESH, initialise=set_token, progress=False).run()
    assert not torch.equal(model.token, before["token"])


def test_a_modules_own_method_comes_after_those_of_its_layers():
    class Whole(WithToken):
        def reset_parameters(self) -> None:
            nn.init.normal_(self.token)
            nn.init.constant_(self.head.bias, 7.0)

    model = restarted(Whole(), 0.0)
    assert (model.head.bias == 7).all()
    assert 0 < model.head.weight.abs().max() <= 1 / 6**0.5


# In a run


def run(schedule: Schedule = FRESH, kind: Any = SGHMC, model: Any = None, **options: Any) -> Chain:
    torch.manual_seed(1)
    model = network() if model is None else model
    sampler = kind(model.parameters(), lr=0.1, num_data=40, seed=options.pop("seed", 3))
    options = {"progress": False, "watch": False, **options}
    chain = Chain(model, cross_entropy, batches(), sampler, schedule, **options)
    chain.run()
    return chain


def test_a_chain_restarts_between_cycles_and_continues_by_default():
    seen: list[dict[str, torch.Tensor]] = []

    def look(info) -> None:
        if info.ends_cycle:  # the weights of the draw, not yet the next cycle's
            seen.append(state(info.chain.model))

    chain = run(EVERY_OTHER, callbacks=look)
    for kept, own in zip(chain.draws, seen, strict=True):
        assert equal(dict(kept.tensors()), own)
    # The third cycle began with what is known: the first two with what has been learned.
    expected = restarted(network(), 0.0, (3, 0, 20))
    begun = network()
    begun.load_state_dict(seen[1])
    assert equal(state(restarted(begun, 0.0, (3, 0, 20))), state(expected))
    sampler = SGHMC(expected.parameters(), lr=0.1, num_data=40, seed=3)
    sampler.noise.step = 20
    rest = Cyclical(20, cycles=2, exploration=0.5, draws_per_cycle=1)
    again = Chain(expected, cross_entropy, batches(), sampler, rest, progress=False, watch=False)
    assert equal(dict(again.run()[-1].tensors()), dict(chain.draws[-1].tensors()))


@pytest.mark.parametrize("kind", [SGLD, SGHMC, AdamSGHMC])
def test_the_state_of_the_sampler_begins_anew(kind):
    states: list[dict] = []

    class Recorded(kind):
        def step(self, closure=None):
            states.append(copy.deepcopy(dict(self.state)))
            return super().step(closure)

    run(MIXED, kind=Recorded)
    assert states[0] == states[10] == states[20] == {}
    assert kind is SGLD or states[11]


def test_any_torch_optimizer_restarts():
    def adam(params, *, num_data, seed, **options):
        return torch.optim.Adam(params, **options)

    chain = run(FRESH, kind=adam)
    assert chain.sampler.state_dict()["state"][0]["step"] == 10


def test_chains_and_seeds_restart_differently():
    def ends(seed: int, chain_id: int) -> torch.Tensor:
        model = network()
        options: dict[str, Any] = {"lr": 0.0, "num_data": 40, "seed": seed, "chain_id": chain_id}
        chain = Chain(
            model, cross_entropy, batches(), SGHMC(model.parameters(), **options), FRESH,
            progress=False, watch=False,
        )  # fmt: skip
        chain.run()
        return model[0].weight.detach().clone()

    assert torch.equal(ends(1, 0), ends(1, 0))
    assert not torch.equal(ends(1, 0), ends(1, 1))
    assert not torch.equal(ends(1, 0), ends(2, 0))


def test_each_chain_of_a_stack_restarts_as_it_would_alone():
    models = [network() for _ in range(3)]
    stacked = stack(copy.deepcopy(models))
    assert not torch.equal(models[0][0].weight, models[1][0].weight)
    keys = [(3, 5 + chain, 10) for chain in range(3)]
    restart_weights(stacked, list(stacked.parameters()), 0.6, keys)
    for model, key, own in zip(models, keys, stacked.chain_tensors(), strict=True):
        assert equal(state(restarted(model, 0.6, key)), {name: own[name] for name in own})


def test_a_stack_runs_with_restarts_and_resumes(tmp_path):

    def chain(path, **options):
        model = stack([nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in "ab"])
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, seed=3)
        draws, loss = DrawStore(path), cross_entropy
        options |= {"progress": False, "watch": False, "checkpoint_every": 10}
        return Chain(model, loss, batches(), sampler, MIXED, draws, **options)

    torch.manual_seed(1)
    chain(tmp_path / "whole").run()
    torch.manual_seed(1)
    with pytest.raises(Stopped):
        chain(tmp_path / "cut", callbacks=stop_at(10)).run()
    chain(tmp_path / "cut").run(resume=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("kind", [SGHMC, AdamSGHMC])
@pytest.mark.parametrize("schedule", [FRESH, MIXED], ids=["fresh", "mixed"])
def test_stopped_around_a_restart_it_resumes_bit_for_bit(schedule, kind, tmp_path):
    """Checkpoints after each step: of the last step of a cycle, and of the first of the next."""
    options: dict[str, Any] = {"schedule": schedule, "kind": kind, "checkpoint_every": 1}
    make_chain(tmp_path / "whole", **options).run()
    for stop in (8, 9, 10, 11, 19, 20, 21):
        with pytest.raises(Stopped):
            make_chain(tmp_path / "cut", callbacks=stop_at(stop), **options).run(resume=True)
    chain = make_chain(tmp_path / "cut", **options)
    torch.manual_seed(99)
    chain.run(resume=True)
    assert_same_runs(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("at", ["after a step", "before gradients"])
def test_a_loop_of_ones_own_resumes_at_the_boundary(at):
    """`state_dict` before the restart and after it: each continues with one restart."""

    def parts() -> Stepper:
        torch.manual_seed(1)
        model = network()
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, seed=3)
        return Stepper(model, sampler, MIXED)

    def steps(stepper: Stepper, most: int) -> None:
        data = batches()
        for step in range(stepper.taken, most):
            stepper.prepare()
            inputs, labels = data[step % len(data)]
            stepper.sampler.zero_grad()
            cross_entropy(stepper.model(inputs), labels).backward()
            stepper.step()

    whole, first, second = parts(), parts(), parts()
    steps(whole, 30)
    steps(first, 10)
    if at == "before gradients":
        first.prepare()
    second.draws = first.draws
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(second, 30)
    assert equal(state(whole.model), state(second.model))


def test_a_loop_without_prepare_is_told_so_at_once():
    model = network()
    stepper = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=40, seed=0), FRESH)
    inputs, labels = batches()[0]
    cross_entropy(model(inputs), labels).backward()
    stepper.step()
    with pytest.raises(ValueError, match="prepare"):
        stepper.step()
    looped = Stepper(model, SGHMC(model.parameters(), lr=0.1, num_data=40, seed=0), FRESH)
    for inputs, labels in looped.batches(batches()):
        looped.sampler.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        looped.step()
    assert len(looped.draws) == 3


def test_a_schedule_of_ones_own_restarts_if_it_says_so():
    @dataclass(frozen=True)
    class Forgetful(Schedule):
        steps: int

        def tick(self, step: int) -> Tick:
            return Tick(step, 0, "sample", 0.0, 0.0, collect=True, restart=0.5 if step else 1.0)

    class Halves(Forgetful):
        restarts: Any = True

    weights = [draw.tensors()["0.weight"] for draw in run(Halves(3)).draws]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    with pytest.raises(ValueError, match="restarts"):
        run(Forgetful(3))


def test_joined_schedules_restart():
    chain = run(Joined([Ramp(5, 0.1, 1.0), FRESH]))
    assert isinstance(chain.draws, MemoryDraws)
    assert [draw.step for draw in chain.draws] == [14, 24, 34]

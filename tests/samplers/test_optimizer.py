"""Every discovered sampler behaves as a `torch.optim.Optimizer`."""

import copy
import io
import pickle
from inspect import signature

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from csgmcmc import SGHMC, SGLD, Cyclical, Keep, Sampler
from csgmcmc.arguments import shown
from csgmcmc.noise import Noise
from tests.samplers.registry import REGISTRY, SAMPLERS, every_sampler
from tests.support import REQUIRED, make, same_bits, small_model, train

# Chains that do not begin at temperature 0, for which AdamSGHMC warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*a preconditioner from a single gradient")


def through_a_file(state):
    """Save and load as users do: nothing but tensors and plain values may be in it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@every_sampler
def test_required_options_are_enough_and_num_data_is_required(sampler):
    params = [nn.Parameter(torch.zeros(2))]
    sampler(params, **REQUIRED)
    with pytest.raises(TypeError, match="num_data"):
        sampler(params, lr=0.1)


@every_sampler
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_temperature_zero_is_the_reference_optimizer(sampler, weight_decay):
    ours, theirs = small_model(torch.float64), small_model(torch.float64)
    chain = make(sampler, ours.parameters(), temperature=0, weight_decay=weight_decay)
    reference = REGISTRY[sampler.__name__].at_temperature_0(theirs.parameters(), chain.defaults)
    train(ours, chain, steps=30)
    train(theirs, reference, steps=30)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@every_sampler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperature_zero_draws_no_noise(sampler, dtype, monkeypatch):
    def ends(temperature):
        models = [small_model(dtype) for _ in range(2)]
        for seed, model in enumerate(models):
            chain = make(sampler, model.parameters(), temperature=temperature, seed=seed)
            train(model, chain, steps=2)
        return models

    assert not same_bits(*ends(temperature=1.0))

    def refuse(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Noise, "like", refuse)
    assert same_bits(*ends(temperature=0.0))


def test_sghmc_without_momentum_is_sgld():
    one, other = small_model(torch.float64), small_model(torch.float64)
    train(one, make(SGHMC, one.parameters(), momentum=0.0, weight_decay=0.01), steps=20)
    train(other, make(SGLD, other.parameters(), weight_decay=0.01), steps=20)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)


@every_sampler
def test_global_generator_is_left_alone(sampler):
    model = small_model()
    before = torch.get_rng_state()
    train(model, sampler(model.parameters(), **REQUIRED), steps=3)
    assert torch.equal(torch.get_rng_state(), before)


@every_sampler
def test_seed_decides_and_no_seed_is_a_new_one(sampler):
    models = [small_model() for _ in range(6)]
    options = [{"seed": 5}, {"seed": 5}, {"seed": 6}, {"seed": 5, "chain_id": 1}, {}, {}]
    for model, option in zip(models, options, strict=True):
        train(model, sampler(model.parameters(), **REQUIRED, **option), steps=3)
    assert same_bits(models[0], models[1])
    for index, model in enumerate(models[2:], start=2):
        assert not any(same_bits(model, other) for other in models[:index])


@every_sampler
@settings(max_examples=10)
@given(split=st.integers(0, 24), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_saved_and_loaded_between_any_two_steps_it_continues_bit_for_bit(sampler, split, dtype):
    """Through exploration and sampling of a cyclical schedule, from a state file."""
    schedule = Cyclical(steps=24, cycles=3, exploration=0.5, keep=Keep(every=1))

    def run(model, chain, first, last):
        for step in range(first, last):
            schedule.apply(chain, step)
            train(model, chain, steps=1, first=step)

    whole = small_model(dtype)
    chain = make(sampler, whole.parameters())
    run(whole, chain, 0, 24)

    first = small_model(dtype)
    chain = make(sampler, first.parameters())
    run(first, chain, 0, split)
    saved, weights = through_a_file(chain.state_dict()), copy.deepcopy(first.state_dict())
    second = small_model(dtype)
    second.load_state_dict(weights)
    chain = make(sampler, second.parameters(), lr=123.0, seed=99)
    chain.load_state_dict(saved)
    run(second, chain, split, 24)
    assert same_bits(whole, second)


@every_sampler
@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_and_pickles_continue_bit_for_bit(sampler, how):
    model = small_model()
    chain = make(sampler, model.parameters())
    train(model, chain, steps=3)
    other_model, other_chain = how((model, chain))
    other_chain.load_state_dict(other_chain.state_dict())
    train(model, chain, steps=3, first=3)
    train(other_model, other_chain, steps=3, first=3)
    assert same_bits(model, other_model)


# The plain update is compared here, in tests/samplers/test_fused.py the fused one with it.
NOT_FUSED = {
    sampler: {"fused": False} if "fused" in signature(sampler).parameters else {}
    for sampler in SAMPLERS.values()
}


class Plain(torch.optim.Optimizer):
    """A sampler written out: one tensor after another, without foreach operations."""

    def __init__(self, params, options, update):
        super().__init__(params, options)
        self.noise, self.update = Noise(seed=1), update

    @torch.no_grad()
    def step(self, closure=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        (group,) = self.param_groups
        params, noise = group["params"], [None] * len(group["params"])
        if group["temperature"] > 0:
            noise = self.noise.like(params)
        self.noise.step += 1
        for param, epsilon in zip(params, noise, strict=True):
            gradient = param.grad
            if group["weight_decay"] != 0:
                gradient = gradient.add(param, alpha=group["weight_decay"])
            self.update(group, param, gradient, epsilon, self.state[param])


@every_sampler
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_the_plain_update_bit_for_bit(sampler, temperature, weight_decay, dtype):
    model, plain = small_model(dtype), small_model(dtype)
    options = {"temperature": temperature, "weight_decay": weight_decay, **NOT_FUSED[sampler]}
    chain = make(sampler, model.parameters(), **options)
    update = REGISTRY[sampler.__name__].plain_update
    train(model, chain, steps=10)
    train(plain, Plain(plain.parameters(), chain.defaults, update), steps=10)
    assert same_bits(model, plain)


@every_sampler
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (300, 7)])
def test_a_single_tensor_equals_the_plain_update_bit_for_bit(sampler, shape):
    points = [torch.ones(shape), torch.ones(shape)]
    chain = make(sampler, [points[0]], weight_decay=0.1, **NOT_FUSED[sampler])
    plain = Plain([points[1]], chain.defaults, REGISTRY[sampler.__name__].plain_update)
    for step in range(10):
        for point, optimizer in zip(points, (chain, plain), strict=True):
            point.grad = point.sin() + step
            optimizer.step()
    assert torch.equal(*points)


@every_sampler
def test_thread_count_does_not_matter(sampler):
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        params = [torch.zeros(300, 700), torch.zeros(5)]
        chain = make(sampler, params)
        for _ in range(3):
            for param in params:
                param.grad = param + 1
            chain.step()
        results.append(params)
    torch.set_num_threads(1)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@every_sampler
def test_groups_have_their_own_options(sampler):
    """One group frozen out of sampling, one with another N, one added later."""
    frozen, busy, late = (torch.zeros(1000, dtype=torch.float64) for _ in range(3))
    chain = make(
        sampler,
        [{"params": [frozen], "temperature": 0.0}, {"params": [busy], "num_data": 1000.0}],
        **REGISTRY[sampler.__name__].options,
    )
    chain.add_param_group({"params": [late], "lr": 0.4})
    assert [group["initial_lr"] for group in chain.param_groups] == [0.1, 0.1, 0.4]
    assert [group["initial_temperature"] for group in chain.param_groups] == [0.0, 1.0, 1.0]
    for param in (frozen, busy, late):
        param.grad = torch.zeros_like(param)
    chain.step()
    assert (frozen == 0).all()
    assert float(late.var() / busy.var()) == pytest.approx(4 * 100, rel=0.3)


@every_sampler
def test_closure_runs_with_gradients_and_gives_the_loss(sampler):
    model = small_model()
    chain = make(sampler, model.parameters())
    inputs = torch.ones(1, 2, 4, 4)

    def closure():
        chain.zero_grad()
        loss = model(inputs).square().sum()
        loss.backward()
        return loss

    assert chain.step(closure).item() == pytest.approx(small_model()(inputs).square().sum().item())
    assert chain.step() is None


@every_sampler
def test_parameters_without_gradient_stay_and_need_no_noise(sampler):
    with_gradient, without = torch.ones(3), torch.ones(3)
    with_gradient.grad = torch.ones(3)
    chain = make(sampler, [without, with_gradient])
    chain.step()
    assert (without == 1).all()
    assert (with_gradient != 1).all()
    assert without not in chain.state
    with_gradient.grad = None
    chain.step()  # nothing at all to do


@every_sampler
def test_several_dtypes_in_one_sampler(sampler):
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
    params = [torch.zeros(400, dtype=dtype) for dtype in dtypes]
    chain = make(sampler, params)
    for param in params:
        param.grad = torch.zeros_like(param)
    chain.step()
    for param in params:
        assert 0 < float(param.double().std()) < float("inf")


@pytest.fixture
def mesh():
    """A mesh of one process, whose tensors are sharded all the same."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@every_sampler
def test_sharded_parameters_are_updated_as_local_tensors(sampler, mesh, monkeypatch):
    """State is sharded as the parameters are; `update` sees none of it."""
    seen, update = [], sampler.update

    def spy(self, group, params, gradients, noise, states):
        update(self, group, params, gradients, noise, states)
        made = [tensor for name in self.state[sharded] for tensor in states(name)]
        seen.extend([*params, *gradients, *(noise or []), *made])

    monkeypatch.setattr(sampler, "update", spy)
    sharded = distribute_tensor(torch.ones(6), mesh, [Shard(0)])
    options = {"weight_decay": 0.1, "temperature": 0.0, **NOT_FUSED[sampler]}
    chain = make(sampler, [sharded], **options)
    whole = torch.ones(6)
    other = make(sampler, [whole], **options)
    for temperature in (0.0, 0.0, 1.0):
        sharded.grad = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
        chain.param_groups[0]["temperature"] = temperature
        chain.step()
        whole.grad = torch.arange(6.0)
        other.param_groups[0]["temperature"] = temperature
        other.step()
        assert torch.equal(sharded.to_local(), whole)
    assert all(type(tensor) is torch.Tensor for tensor in seen)
    assert all(isinstance(tensor, DTensor) for tensor in chain.state[sharded].values())


@every_sampler
def test_hooks_and_zero_grad_and_torch_schedulers_work(sampler):
    model = small_model()
    chain = make(sampler, model.parameters())
    seen = []
    chain.register_step_pre_hook(lambda *_: seen.append("before"))
    chain.register_step_post_hook(lambda *_: seen.append("after"))
    decay = torch.optim.lr_scheduler.ExponentialLR(chain, gamma=0.5)
    train(model, chain, steps=1)
    decay.step()
    assert seen == ["before", "after"]
    assert chain.param_groups[0]["lr"] == pytest.approx(0.05)
    chain.zero_grad()
    assert all(param.grad is None for param in model.parameters())


@every_sampler
def test_sparse_and_complex_parameters_raise(sampler):
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        make(sampler, table.parameters()).step()
    with pytest.raises(ValueError, match="real"):
        make(sampler, [torch.zeros(2, dtype=torch.complex64)])
    chain = make(sampler, [torch.zeros(1)])
    with pytest.raises(ValueError, match="real"):
        chain.add_param_group({"params": [torch.zeros(2, dtype=torch.complex64)]})
    assert len(chain.param_groups) == 1


BAD_FOR_ALL = [
    ("lr", -0.1),
    ("lr", float("nan")),
    ("lr", float("inf")),
    ("lr", "fast"),
    ("temperature", -1.0),
    ("temperature", float("nan")),
    ("num_data", 0),
    ("num_data", float("nan")),
    ("num_data", None),
    ("weight_decay", -1e-4),
    ("weight_decay", float("nan")),
    ("prior", 3.0),
    ("seed", -1),
    ("seed", 1.5),
    ("chain_id", -1),
]
BAD_WHERE_KNOWN = [
    ("momentum", 1.0),
    ("momentum", -0.1),
    ("momentum", float("nan")),
    ("gradient_variance", 0.21),  # gamma = 0.105 > 1 - momentum
    ("gradient_variance", -0.1),
    ("gradient_variance", float("nan")),
    ("alpha", 1.0),
    ("alpha", float("nan")),
    ("eps", 0.0),
    ("adapt", "sometimes"),
    ("betas", 0.9),
    ("betas", (0.9,)),
    ("betas", (0.9, 1.0)),
    ("damping", 0.0),
    ("damping", "small"),
    ("coupling", -1.0),
    ("coupling", float("nan")),
]


BAD = [
    pytest.param(sampler, option, value, id=f"{name}-{option}-{value}")
    for name, sampler in SAMPLERS.items()
    for option, value in BAD_FOR_ALL + BAD_WHERE_KNOWN
    if option in make(sampler, [torch.zeros(1)]).defaults or (option, value) in BAD_FOR_ALL
]


@pytest.mark.parametrize(("sampler", "option", "value"), BAD)
def test_bad_options_are_named_with_their_value(sampler, option, value):
    with pytest.raises(ValueError, match=f"^{option} must .*got") as error:
        make(sampler, [torch.zeros(1)], **{"seed": None, option: value})
    assert shown(value) in str(error.value)


@every_sampler
def test_bad_options_of_a_later_group_leave_the_sampler_as_it_was(sampler):
    chain = make(sampler, [torch.zeros(1)])
    with pytest.raises(ValueError, match=r"^temperature must be at least 0, got -2"):
        chain.add_param_group({"params": [torch.zeros(1)], "temperature": -2})
    assert len(chain.param_groups) == 1


@every_sampler
@pytest.mark.parametrize("option", ["foreach", "generator", "noise_estimate", "options"])
def test_unknown_options_raise(sampler, option):
    with pytest.raises(TypeError, match=f"keyword argument '{option}'"):
        make(sampler, [torch.zeros(1)], **{option: None})


def test_the_state_of_a_torch_optimizer_raises():
    chain = make(SGLD, [torch.zeros(1)])
    with pytest.raises(ValueError, match="no noise"):
        chain.load_state_dict(torch.optim.SGD([torch.zeros(1)], lr=0.1).state_dict())


@every_sampler
def test_a_state_of_another_chain_raises_and_reseed_forks(sampler):
    """Chains that start from one state must not share their noise."""
    model = small_model()
    chain = make(sampler, model.parameters(), chain_id=0)
    train(model, chain, steps=2)
    state, weights = chain.state_dict(), copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"of chain 0, and this sampler is chain 1.*reseed"):
        make(sampler, model.parameters(), chain_id=1).load_state_dict(state)
    forks = []
    for number in (1, 2):
        fork = small_model()
        fork.load_state_dict(weights)
        again = make(sampler, fork.parameters())
        again.load_state_dict(state)
        again.reseed(chain_id=number)
        assert (again.noise.seed, again.noise.chain_id) == (chain.noise.seed, number)
        train(fork, again, steps=1, first=2)
        forks.append(fork)
    train(model, chain, steps=1, first=2)
    assert not same_bits(forks[0], forks[1])
    assert not same_bits(forks[0], model)


@every_sampler
def test_numbers_of_other_kinds_become_plain(sampler):
    """Tensors and numpy scalars would alias each other, and make a state that cannot be loaded."""
    options = {
        "lr": torch.tensor(0.1),
        "temperature": torch.tensor(1.0),
        "num_data": np.int64(10),
        "weight_decay": np.float32(0.5),
    }
    chain = make(sampler, [torch.zeros(1)], **options)
    schedule = Cyclical(10, cycles=1, exploration=0.5, keep=Keep(every=1))
    for step in range(10):
        schedule.apply(chain, step)
    assert chain.param_groups[0]["temperature"] == 1.0
    assert chain.param_groups[0]["lr"] < 0.01
    through_a_file(chain.state_dict())


@every_sampler
def test_a_failing_prior_leaves_no_half_step(sampler):
    good, bad = torch.ones(2), torch.ones(2)
    groups = [{"params": [good]}, {"params": [bad], "prior": lambda param: param[:1]}]
    chain = make(sampler, groups)
    good.grad, bad.grad = torch.ones(2), torch.ones(2)
    before = through_a_file(chain.state_dict())
    with pytest.raises(ValueError, match="prior must return"):
        chain.step()
    assert (good == 1).all()
    assert chain.state_dict() == before


def test_a_state_of_another_sampler_raises_and_changes_nothing():
    chain = make(SGHMC, [torch.zeros(1)], lr=0.3)
    for state in (make(SGLD, [torch.zeros(1)]).state_dict(), {"noise": {}, "param_groups": []}):
        with pytest.raises((ValueError, KeyError)):
            chain.load_state_dict(state)
        assert chain.param_groups[0]["lr"] == 0.3
        assert chain.noise.seed == 1


def test_a_sampler_without_an_update_rule_cannot_be_made():
    class Unfinished(Sampler):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Unfinished([torch.zeros(1)], lr=0.1, num_data=1)  # pyright: ignore[reportAbstractUsage]


def test_gradient_variance_may_leave_no_noise_to_inject():
    """At most gamma = lr * N * V / (2 * T) = 1 - momentum, which 0.1 * 10 * V / 2 reaches."""
    for momentum, gradient_variance in ((0.9, 0.2), (0.8, 0.4)):
        options = {"momentum": momentum, "gradient_variance": gradient_variance}
        make(SGHMC, [torch.zeros(1)], **options)
        with pytest.raises(ValueError, match=r"at most 2 \* \(1 - momentum\) \* T / \(lr \* N\)"):
            make(SGHMC, [torch.zeros(1)], **{**options, "lr": 0.101})
    # Without noise there is nothing to correct.
    make(SGHMC, [torch.zeros(1)], gradient_variance=5.0, temperature=0.0)
    make(SGHMC, [torch.zeros(1)], gradient_variance=5.0, lr=0.0)

"""Every sampler, discovered, is a `torch.optim.Optimizer` in all that users rely on."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from csgmcmc import SGHMC, SGLD, SGNHT, Cyclical, Sampler
from csgmcmc.samplers import discover
from csgmcmc.samplers.noise import Noise
from tests.support import REQUIRED, make, same_bits, small_model, train

every_sampler = pytest.mark.parametrize("sampler", discover().values(), ids=discover())


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
    reference = sampler.reference(theirs.parameters(), **chain.defaults)
    train(ours, chain, steps=30)
    train(theirs, reference, steps=30)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@every_sampler
def test_temperature_zero_draws_no_noise(sampler, monkeypatch):
    def refuse(*_):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(Noise, "_fill", refuse)
    model = small_model()
    train(model, make(sampler, model.parameters(), temperature=0), steps=2)
    with pytest.raises(AssertionError, match="noise was drawn"):
        train(model, make(sampler, model.parameters()), steps=1)


def test_sghmc_without_momentum_is_sgld():
    one, other = small_model(torch.float64), small_model(torch.float64)
    train(one, make(SGHMC, one.parameters(), momentum=0.0, weight_decay=0.01), steps=20)
    train(other, make(SGLD, other.parameters(), weight_decay=0.01), steps=20)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)


def test_thermostat_survives_cold_exploration():
    """A friction below 0 must not drive its weight away while the chain is cold."""
    point = torch.zeros(5000, dtype=torch.float64)
    chain = make(SGNHT, [point], momentum=0.99, coupling=0.01)
    schedule = Cyclical(2000, cycles=4, exploration=0.8, every=1)
    for step in range(schedule.steps):
        tick = schedule.apply(chain, step)
        point.grad = point.clone()
        chain.step()
        if tick.stage == "explore" and step > 500:
            assert point.abs().max() < 100
    assert (chain.state[point]["friction"] < 0).any()


def test_thermostat_without_coupling_is_sghmc_and_freezes_when_cold():
    one, other = small_model(torch.float64), small_model(torch.float64)
    train(one, make(SGNHT, one.parameters(), coupling=0.0), steps=20)
    train(other, make(SGHMC, other.parameters()), steps=20)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)

    chain = make(SGNHT, one.parameters())
    train(one, chain, steps=5)
    warm = [chain.state[param]["friction"].clone() for param in one.parameters()]
    assert all((friction != 0.1).all() for friction in warm)
    chain.param_groups[0]["temperature"] = 0.0
    train(one, chain, steps=5)
    for param, friction in zip(one.parameters(), warm, strict=True):
        assert torch.equal(chain.state[param]["friction"], friction)


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
def test_generator_gives_the_seed(sampler):
    def run(generator_seed):
        model, generator = small_model(), torch.Generator().manual_seed(generator_seed)
        chain = sampler(model.parameters(), **REQUIRED, generator=generator)
        train(model, chain, steps=2)
        return model, chain.noise.seed

    (one, seed), (again, _), (other, _) = run(3), run(3), run(4)
    assert same_bits(one, again)
    assert not same_bits(one, other)
    repeated = small_model()
    train(repeated, sampler(repeated.parameters(), **REQUIRED, seed=seed), steps=2)
    assert same_bits(one, repeated)


@every_sampler
@settings(max_examples=10)
@given(split=st.integers(0, 24), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_saved_and_loaded_between_any_two_steps_goes_on_bit_for_bit(sampler, split, dtype):
    """Through exploration and sampling of a cyclical schedule, from a state file."""
    schedule = Cyclical(steps=24, cycles=3, exploration=0.5, every=1)

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
def test_copies_and_pickles_go_on_bit_for_bit(sampler, how):
    model = small_model()
    chain = make(sampler, model.parameters())
    train(model, chain, steps=3)
    other_model, other_chain = how((model, chain))
    other_chain.load_state_dict(other_chain.state_dict())
    train(model, chain, steps=3, first=3)
    train(other_model, other_chain, steps=3, first=3)
    assert same_bits(model, other_model)


@every_sampler
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_foreach_and_plain_agree_bit_for_bit(sampler, temperature, weight_decay):
    models = []
    for foreach in (True, False, None):
        model = small_model()
        options = {"temperature": temperature, "weight_decay": weight_decay}
        train(model, make(sampler, model.parameters(), foreach=foreach, **options), steps=10)
        models.append(model)
    assert same_bits(models[0], models[1])
    assert same_bits(models[0], models[2])


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
    for foreach in (True, False):
        chain = make(sampler, params, foreach=foreach)
        for param in params:
            param.zero_().grad = torch.zeros_like(param)
        chain.step()
        for param in params:
            assert 0 < float(param.double().std()) < float("inf")


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
def test_sparse_and_complex_are_refused(sampler):
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
    ("foreach", "no"),
    ("generator", 5),
    ("num_data", 10**400),
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
    ("noise_estimate", 0.11),
    ("noise_estimate", -0.1),
    ("noise_estimate", float("nan")),
    ("alpha", 1.0),
    ("alpha", float("nan")),
    ("eps", 0.0),
    ("adapt", "sometimes"),
    ("coupling", -1.0),
    ("coupling", float("nan")),
]


BAD = [
    pytest.param(sampler, option, value, id=f"{name}-{option}-{value}")
    for name, sampler in discover().items()
    for option, value in BAD_FOR_ALL + BAD_WHERE_KNOWN
    if option in make(sampler, [torch.zeros(1)]).defaults or (option, value) in BAD_FOR_ALL
]


@pytest.mark.parametrize(("sampler", "option", "value"), BAD)
def test_bad_options_are_named_with_their_value(sampler, option, value):
    with pytest.raises(ValueError, match=f"^{option} must .*got") as error:
        make(sampler, [torch.zeros(1)], **{"seed": None, option: value})
    assert repr(value) in str(error.value)


@every_sampler
def test_bad_options_of_a_later_group_leave_the_sampler_as_it_was(sampler):
    chain = make(sampler, [torch.zeros(1)])
    with pytest.raises(ValueError, match=r"^temperature must be at least 0, got -2"):
        chain.add_param_group({"params": [torch.zeros(1)], "temperature": -2})
    assert len(chain.param_groups) == 1


def test_seed_and_generator_together_are_refused():
    with pytest.raises(ValueError, match="seed or generator"):
        SGLD([torch.zeros(1)], lr=0.1, num_data=1, seed=1, generator=torch.Generator())


def test_foreign_state_is_refused():
    chain = make(SGLD, [torch.zeros(1)])
    with pytest.raises(ValueError, match="no noise"):
        chain.load_state_dict(torch.optim.SGD([torch.zeros(1)], lr=0.1).state_dict())


@every_sampler
def test_a_state_of_another_chain_is_refused_and_reseed_forks(sampler):
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
    schedule = Cyclical(10, cycles=1, exploration=0.5, every=1)
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
    with pytest.raises(ValueError, match="prior returned"):
        chain.step()
    assert (good == 1).all()
    assert chain.state_dict() == before


def test_a_state_of_another_sampler_is_refused_whole():
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
        Unfinished([torch.zeros(1)], {}, seed=None, generator=None, chain_id=0)  # pyright: ignore[reportAbstractUsage]


def test_noise_estimate_may_be_all_of_the_friction():
    for momentum, noise_estimate in ((0.9, 0.1), (0.8, 0.2)):
        make(SGHMC, [torch.zeros(1)], momentum=momentum, noise_estimate=noise_estimate)
    with pytest.raises(ValueError, match="temperature must be above 0 for noise_estimate"):
        make(SGHMC, [torch.zeros(1)], noise_estimate=0.05, temperature=0.0)

"""Noise and update in one pass, against the plain update and against plain arithmetic."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from csgmcmc import SGHMC, SGLD, SGNHT, stack
from csgmcmc.noise import Noise
from csgmcmc.noise import fused as fused_module
from csgmcmc.noise import numba_kernels as kernels
from csgmcmc.noise import source as noise_module
from csgmcmc.noise.backends import Coefficients
from csgmcmc.noise.fused import fused_update
from tests.support import make, same_bits, small_model, train

both = pytest.mark.parametrize("sampler", [SGLD, SGHMC])


def contiguous_model(dtype=torch.float32):
    return small_model(dtype).to(memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]


@both
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_the_plain_update_to_rounding(sampler, temperature, weight_decay):
    options = {"temperature": temperature, "weight_decay": weight_decay}
    plain, fused, chosen = (contiguous_model() for _ in range(3))
    train(plain, make(sampler, plain.parameters(), fused=False, **options), steps=20)
    train(fused, make(sampler, fused.parameters(), fused=True, **options), steps=20)
    train(chosen, make(sampler, chosen.parameters(), **options), steps=20)
    assert same_bits(fused, chosen)
    assert not same_bits(fused, plain)  # it does serve: rounding differs
    for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-6)


@both
def test_large_updates_without_noise_are_left_to_torch_unless_asked_for(sampler):
    """Torch runs them on several threads."""
    ends = {}
    for fused in (None, False, True):
        param = torch.linspace(-1, 1, 32_769)
        chain = make(sampler, [param], temperature=0.0, weight_decay=0.3, fused=fused)
        for _ in range(3):
            param.grad = param.sin()
            chain.step()
        ends[fused] = param
    assert torch.equal(ends[None], ends[False])
    assert not torch.equal(ends[None], ends[True])


@both
def test_the_noise_is_the_same_to_the_bit(sampler):
    """From rest, without gradients, lr is 1 and the noise's variance is 1 too."""
    options = {"lr": 1.0, "num_data": 2.0, "temperature": 1.0, "seed": 3}
    if sampler is SGHMC:
        options["momentum"] = 0.0
    params = [torch.zeros(shape) for shape in ((), 1, 63, 64, 65, (30, 70), 3001)]
    for param in params:
        param.grad = torch.zeros_like(param)
    sampler(params, fused=True, **options).step()
    for ours, theirs in zip(params, Noise(seed=3).like(params), strict=True):
        assert torch.equal(ours, theirs)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 2500), cold=st.booleans(), has_momentum=st.booleans())
def test_it_is_single_precision_without_fused_multiply_add(size, cold, has_momentum):
    """Bit for bit what numpy computes, one operation after another."""
    random = np.random.default_rng(size)
    start, gradient = random.standard_normal((2, size), np.float32)
    lr, decay, single = np.float32(0.1), np.float32(0.25), np.float32
    options = {"temperature": 0.0 if cold else 1.0, "weight_decay": 0.25, "fused": True}
    param = torch.from_numpy(start.copy())
    sampler = make(SGHMC if has_momentum else SGLD, [param], **options)
    velocity, point = np.zeros_like(start), start.copy()
    for step in range(3):
        noise = Noise(seed=1)
        noise.step = step
        added = noise.like([param])[0].numpy()
        std = single((0 if cold else 2 * (0.1 if has_momentum else 1) * 0.1 / 10) ** 0.5)
        pull = lr * (gradient + decay * point)
        if has_momentum:
            velocity = single(0.9) * velocity - pull + std * added
            point = point + velocity
        else:
            point = point + (std * added - pull)
        param.grad = torch.from_numpy(gradient)
        sampler.step()
        assert np.array_equal(param.numpy(), point)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 2500), cold=st.booleans())
def test_scales_move_the_weights_divided_by_them(size, cold):
    """Bit for bit what numpy computes; scales of 1 are no scales."""
    random = np.random.default_rng(size)
    start, gradient, velocity = random.standard_normal((3, size), np.float32)
    scale = random.uniform(0.5, 3, size).astype(np.float32)
    std, lr, decay, kept = (np.float32(x) for x in (0.0 if cold else 0.3, 0.1, 0.25, 0.9))
    noise = Noise(seed=1, chain_id=2)
    added = noise.like([torch.zeros(size)], [4], 7)[0].numpy()

    def moved(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        point, speed = torch.from_numpy(start.copy()), torch.from_numpy(velocity.copy())
        given = () if scales is one else [torch.from_numpy(scales)]
        columns = ([point], [torch.from_numpy(gradient)], [speed], given)
        numbers = Coefficients(float(lr), float(kept), float(std), float(decay))
        fused_update(noise, 7, [4], [point], columns, numbers)
        return point.numpy(), speed.numpy()

    one = np.ones_like(scale)
    for scales in (scale, one):
        speed = kept * velocity - lr * scales * (gradient + decay * start) + std * added
        found = moved(scales)
        assert np.array_equal(found[0], start + scales * speed)
        assert np.array_equal(found[1], speed)


@both
def test_priors_are_kept(sampler):
    prior = torch.distributions.Normal(0.0, 2.0)
    with_prior, with_decay = contiguous_model(), contiguous_model()
    train(with_prior, make(sampler, with_prior.parameters(), prior=prior, fused=True), steps=10)
    decay = 1 / 4 / 10  # precision over num_data
    train(with_decay, make(sampler, with_decay.parameters(), weight_decay=decay), steps=10)
    for ours, theirs in zip(with_prior.parameters(), with_decay.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@both
def test_a_stacked_chain_moves_as_it_would_alone(sampler):
    """Bit for bit, where the gradients are the same."""

    def moved(model, **options):
        chain = make(sampler, model.parameters(), fused=True, **options)
        for _ in range(3):
            for param in model.parameters():
                param.grad = param.detach().sin()
            chain.step()
        return model

    models = [torch.nn.Linear(9, 8) for _ in range(3)]
    together = moved(stack(models), chain_id=4).chain_tensors()
    for index, model in enumerate(models):
        alone = moved(model, chain_id=4 + index).state_dict()
        assert all(torch.equal(together[index][name], alone[name]) for name in alone)


@both
def test_where_it_cannot_serve_the_plain_update_does(sampler, monkeypatch):
    for make_model in (lambda: contiguous_model(torch.float64), small_model):
        chosen, plain = make_model(), make_model()
        train(chosen, make(sampler, chosen.parameters()), steps=5)
        train(plain, make(sampler, plain.parameters(), fused=False), steps=5)
        assert same_bits(chosen, plain)
    with_numba = contiguous_model()
    train(with_numba, make(sampler, with_numba.parameters(), fused=False), steps=5)
    for module in (noise_module, fused_module):
        monkeypatch.setattr(module, "load_kernels", lambda _: None)
    without = contiguous_model()
    train(without, make(sampler, without.parameters()), steps=5)
    assert same_bits(without, with_numba)


def test_velocities_in_another_layout_are_left_to_the_plain_update():
    model, other = contiguous_model(), contiguous_model()
    chain, other_chain = (make(SGHMC, one.parameters()) for one in (model, other))
    train(model, chain, steps=2)
    train(other, other_chain, steps=2)
    state = other_chain.state[next(other.parameters())]
    state["velocity"] = state["velocity"].to(memory_format=torch.channels_last)
    train(model, chain, steps=3, first=2)
    train(other, other_chain, steps=3, first=2)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@both
def test_true_is_refused_where_it_cannot_serve(sampler, monkeypatch):
    cases = {
        "float64": torch.zeros(2, dtype=torch.float64),
        "not contiguous": torch.zeros(3, 2).T,
        "a device without kernels": torch.zeros(2, device="meta"),
    }
    for param in cases.values():
        with pytest.raises(ValueError, match="fused must be None or False, got True"):
            make(sampler, [param], fused=True)
    with pytest.raises(ValueError, match="fused must be None, True or False, got 'yes'"):
        make(sampler, [torch.zeros(2)], fused="yes")
    monkeypatch.setattr(fused_module, "load_kernels", lambda _: None)
    with pytest.raises(ValueError, match="a CPU with numba"):
        make(sampler, [torch.zeros(2)], fused=True)


def test_samplers_without_a_fused_update_have_no_such_option():
    with pytest.raises(TypeError, match="unexpected keyword argument 'fused'"):
        make(SGNHT, [torch.zeros(2)], fused=None)


@both
def test_a_backward_pass_through_moved_weights_raises(sampler):
    """As after a step of any torch optimizer, though the kernel writes behind torch's back."""
    param = torch.ones(3, requires_grad=True)
    chain = make(sampler, [param], fused=True)
    loss = param.square().sum()
    loss.backward(retain_graph=True)
    chain.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@both
def test_whole_numbers_are_not_compiled_for_anew(sampler):
    options = {"lr": 1, "num_data": 10, "weight_decay": 0, "temperature": 1}
    param = torch.ones(3)
    param.grad = torch.ones(3)
    make(sampler, [param], fused=True).step()
    before = len(kernels.move.signatures)
    sampler([param], fused=True, **options).step()
    assert len(kernels.move.signatures) == before


@both
def test_tensors_of_another_shape_are_never_given_to_the_kernel(sampler):
    """It would read and write past their ends."""
    param = torch.ones(40)
    chain = make(sampler, [param])
    param.grad = torch.ones(40)
    chain.step()
    before = param.clone()
    if sampler is SGHMC:
        chain.state[param]["velocity"] = torch.zeros(4)
        with pytest.raises(RuntimeError, match="size of tensor"):
            chain.step()
        assert torch.equal(param, before)
    param.data = torch.ones(80)
    with pytest.raises(RuntimeError, match="size of tensor"):
        chain.step()


def test_a_negated_gradient_keeps_its_sign():
    """Autograd negates lazily behind a conjugate: memory has the other sign."""
    ends = []
    for fused in (None, False):
        param = torch.nn.Parameter(torch.ones(1))
        chain = make(SGLD, [param], temperature=0.0, fused=fused)
        (torch.complex(torch.zeros(1), param).conj() * torch.tensor([1 + 2j])).real.sum().backward()
        assert param.grad is not None
        assert param.grad.is_neg()
        chain.step()
        ends.append(param.item())
    assert ends[0] == pytest.approx(ends[1])


def test_an_update_of_a_subclass_is_not_passed_over():
    class Seven:
        def update(self, group, params, gradients, noise, states):
            params[0].fill_(7.0)

    class Mine(SGLD):
        update = Seven.update  # pyright: ignore[reportAssignmentType]

    class Mixed(Seven, SGLD):
        pass

    for sampler in (Mine, Mixed):
        param = torch.ones(2)
        param.grad = torch.ones(2)
        make(sampler, [param]).step()
        assert (param == 7).all()


@both
@pytest.mark.parametrize("fused", [None, False])
def test_an_interrupted_step_does_not_repeat_its_noise(sampler, fused, monkeypatch):
    params = [torch.zeros(5), torch.zeros(5)]
    chain = make(sampler, [{"params": [param]} for param in params], lr=1.0, fused=fused)
    for param in params:
        param.grad = torch.zeros(5)
    apply, calls = chain._apply, []

    def interrupted(move, step):
        calls.append(step)
        if len(calls) == 2:
            raise KeyboardInterrupt
        apply(move, step)

    monkeypatch.setattr(chain, "_apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chain.step()
    chain.step()
    assert calls == [0, 0, 1, 1]


@both
def test_empty_parameters_are_left_alone(sampler):
    empty, full = torch.zeros(0, 3), torch.zeros(3)
    chain = make(sampler, [empty, full], fused=True)
    empty.grad, full.grad = torch.zeros(0, 3), torch.zeros(3)
    chain.step()
    assert (full != 0).all()


PATH_OF_A_CHAIN = """
import hashlib, torch
from csgmcmc import SGHMC
param = torch.ones(5000)
chain = SGHMC([param], lr=0.1, num_data=10, weight_decay=0.1, fused=True, seed=1)
for _ in range(20):
    param.grad = param * 0.5
    chain.step()
print(hashlib.sha256(param.numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_every_cpu_computes_the_same_bits(tmp_path):
    """Kernels compiled for CPUs with other vector units, and with fused multiply-add or without."""
    found = set()
    for number, variables in enumerate(
        [{}, {"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "generic", "NUMBA_OPT": "1"}]
    ):
        result = subprocess.run(
            [sys.executable, "-c", PATH_OF_A_CHAIN],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / str(number)), **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(result.stdout)
    assert len(found) == 1

"""The noise as samplers see it: a pure function of seed, chain, step, parameter and position."""

import copy
import itertools
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from csgmcmc import stack
from csgmcmc.noise import Noise
from csgmcmc.noise import source as noise_module
from csgmcmc.stacked import StackedParameter
from tests.support import SIGMAS

MANY = 300_000


def draw(noise: Noise, *shapes, dtype=torch.float32) -> list[torch.Tensor]:
    return noise.like([torch.empty(shape, dtype=dtype) for shape in shapes])


def at_step(step: int, **options) -> Noise:
    noise = Noise(**options)
    noise.step = step
    return noise


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setattr(noise_module, "load_kernels", lambda _: None)


def test_it_is_standard_normal():
    """False alarm: one in 100,000 for the distribution, SIGMAS for moments and tails."""
    values = draw(Noise(seed=1), MANY)[0].double().numpy()
    assert stats.kstest(values, "norm").pvalue > 1e-5
    # The standard error of a mean of x**k is that of its own variance.
    for power, moment, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105)):
        error = math.sqrt((square - moment**2) / MANY)
        assert abs((values**power).mean() - moment) < SIGMAS * error
    assert max(abs(values)) < 6.7


def test_its_tails_are_those_of_a_normal_distribution():
    """Counts beyond 3, 4 and 5 on either side are Poisson. False alarm: one in 100,000 each."""
    count = 20_000_000
    noise, beyond = Noise(seed=2), dict.fromkeys(itertools.product((1, -1), (3, 4, 5)), 0)
    for noise.step in range(5):
        values = draw(noise, count // 5)[0]
        for sign, limit in beyond:
            beyond[sign, limit] += int((sign * values > limit).sum())
    for (_, limit), found in beyond.items():
        expected = count * stats.norm.sf(limit)
        assert stats.poisson.cdf(found, expected) > 5e-6
        assert stats.poisson.sf(found - 1, expected) > 5e-6


def test_seeds_chains_steps_parameters_and_positions_are_independent():
    """Correlations of numbers, of their squares and of their signs' products; 150 comparisons."""
    size = 1 << 16
    rows = []
    for seed, chain, step in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 2, 0), (1, 0, 1), (1, 0, 2)):
        rows += draw(at_step(step, seed=seed, chain_id=chain), size, size)
    rows.append(draw(Noise(seed=1), 2 * size)[0][size:])
    first = draw(Noise(seed=1), size + 64)[0]
    rows += [first[lag : lag + size] for lag in (1, 4, 15, 16, 17, 32, 48, 64)]
    values = torch.stack(rows).double()
    for function in (lambda x: x, lambda x: x.square(), lambda x: x.abs()):
        correlations = torch.corrcoef(function(values))
        # Among themselves the shifted rows share numbers: compare them with the first alone.
        own = correlations[:13, :13] - torch.eye(13, dtype=torch.float64)
        assert own.abs().max() < 5.2 / size**0.5  # false alarm: one in 20,000 for all together
        assert correlations[0, 13:].abs().max() < 5.2 / size**0.5


def test_it_is_a_pure_function():
    noise = at_step(7, seed=5)
    first = draw(noise, (3, 5), 4)
    assert all(torch.equal(*pair) for pair in zip(first, draw(noise, (3, 5), 4), strict=True))
    noise.step = 8
    later = draw(noise, (3, 5), 4)
    assert not any(torch.equal(*pair) for pair in zip(first, later, strict=True))
    noise.step = 7
    assert torch.equal(draw(noise, (3, 5))[0], first[0])
    assert torch.equal(draw(at_step(7, seed=5), (3, 5))[0], first[0])


def test_a_parameter_has_the_same_noise_whichever_others_there_are():
    noise = Noise(seed=1)
    params = [torch.empty(size) for size in (3, 70, 5)]
    every = noise.like(params)
    assert torch.equal(noise.like(params[:2])[1], every[1])
    assert torch.equal(noise.like([params[2]], [2])[0], every[2])
    assert not torch.equal(noise.like([params[2]])[0], every[2])


def test_shape_layout_and_dtype_change_nothing():
    noise = Noise(seed=1)
    flat = draw(noise, 4 * 3 * 5 * 5)[0]
    param = torch.empty(4, 3, 5, 5).to(memory_format=torch.channels_last)
    assert torch.equal(noise.like([param])[0].flatten(), flat)
    assert torch.equal(noise.like([param.double()])[0].flatten(), flat.double())
    assert torch.equal(noise.like([param.bfloat16()])[0].flatten(), flat.bfloat16())
    assert torch.equal(noise.like([torch.empty(4, 1).expand(4, 3)])[0].flatten(), flat[:12])
    assert noise.like([torch.empty(0, 3)])[0].shape == (0, 3)
    assert torch.equal(noise.like([torch.empty(())])[0], flat[0])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    chain_id=st.integers(0, 2**32 - 1),
    step=st.integers(0, 2**48),
    shapes=st.lists(
        st.one_of(st.integers(0, 2200), st.tuples(st.integers(0, 9), st.integers(0, 9))),
        min_size=1,
        max_size=4,
    ),
)
def test_kernels_and_torch_operations_give_the_same_bits(seed, chain_id, step, shapes):
    noise = at_step(step, seed=seed, chain_id=chain_id)
    params = [torch.empty(shape) for shape in shapes]
    ids = [3 * index for index in range(len(params))]
    fast = noise.like(params, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_module, "load_kernels", lambda _: None)
        slow = noise.like(params, ids)
    assert all(torch.equal(*pair) for pair in zip(fast, slow, strict=True))


@pytest.mark.parametrize("numba", [True, False])
def test_ahead_is_the_noise_of_the_steps_that_come(numba, request):
    if not numba:
        request.getfixturevalue("without_numba")
    noise, param = at_step(5, seed=3), torch.empty(40, 2, dtype=torch.float64)
    later = noise.ahead(param, 4, parameter_id=2)
    assert later.shape == (4, 40, 2)
    for offset, row in enumerate(later):
        assert torch.equal(at_step(5 + offset, seed=3).like([param], [2])[0], row)
    assert noise.step == 5


@pytest.mark.parametrize("numba", [True, False])
def test_a_stacked_chain_draws_what_it_would_draw_alone(numba, request):
    if not numba:
        request.getfixturevalue("without_numba")
    model = stack(nn.Linear(30, 7), chains=3)
    for stacked in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        together = Noise(seed=4, chain_id=10).like(list(stacked.parameters()))
        for chain in range(3):
            alone = Noise(seed=4, chain_id=10 + chain).like(list(nn.Linear(30, 7).parameters()))
            for ours, theirs in zip(together, alone, strict=True):
                assert torch.equal(ours[chain], theirs)
    assert all(isinstance(param, StackedParameter) for param in model.double().parameters())


def test_seed_and_chain_are_bounded_and_every_bit_counts():
    seeds = [5, 5 + 2**32, 5 + 2**62, 5 + 2**63]
    chains = [0, 7, 2**31, 2**32 - 1]
    found = {
        draw(Noise(seed=seed, chain_id=chain), 4)[0].sum().item()
        for seed in seeds
        for chain in chains
    }
    assert len(found) == 16
    with pytest.raises(ValueError, match=r"seed must be below 18446744073709551616, got"):
        Noise(seed=2**64)
    with pytest.raises(ValueError, match=r"chain_id must be below 4294967296, got"):
        Noise(chain_id=2**32)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda noise: pickle.loads(pickle.dumps(noise))])
def test_its_only_state_is_the_step(how):
    noise = at_step(12, seed=4, chain_id=2)
    state = noise.state_dict()
    assert state == {"seed": 4, "chain": 2, "step": 12}
    loaded = Noise()
    loaded.load_state_dict(state)
    for other in (loaded, how(noise)):
        assert torch.equal(draw(other, 9)[0], draw(noise, 9)[0])


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_torchs_defaults_do_not_matter(numba, dtype, request):
    expected = draw(Noise(seed=1), 70)[0]
    if not numba:
        request.getfixturevalue("without_numba")
    param = torch.empty(70, dtype=torch.float64)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):  # the default device
            found = Noise(seed=1).like([param])[0]
    finally:
        torch.set_default_dtype(default)
    assert torch.equal(found, expected.double())


@pytest.mark.parametrize("numba", [True, False])
def test_an_empty_stack_has_no_noise(numba, request):
    if not numba:
        request.getfixturevalue("without_numba")
    assert Noise(seed=1).like([StackedParameter(torch.empty(0, 3))])[0].shape == (0, 3)


def test_without_compilation_the_noise_is_the_same():
    code = "import csgmcmc, torch; print(csgmcmc.noise.Noise(1).like([torch.empty(9)])[0].sum())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for variables in ({}, {"NUMBA_DISABLE_JIT": "1"})
    }
    assert len(found) == 1


def test_threads_do_not_matter():
    sizes = np.array([1, 63, 64, 65, 100_000])
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(draw(Noise(seed=1), *sizes.tolist()))
    torch.set_num_threads(1)
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from csgmcmc.samplers import noise as noise_module
from csgmcmc.samplers.noise import ELEMENTS_PER_STREAM, MAX_STREAMS, Noise

MANY = 3 * ELEMENTS_PER_STREAM


def draw(noise, *shapes, dtype=torch.float32):
    return [piece.clone() for piece in noise.like([torch.empty(s, dtype=dtype) for s in shapes])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_standard_normal(dtype):
    """False alarm: one in 100,000, and one in 150,000 for the correlations."""
    values = draw(Noise(seed=1), MANY + 5, dtype=dtype)[0].double().numpy()
    assert stats.kstest(values, "norm").pvalue > 1e-5
    for lag in (1, 2, 8, 16, ELEMENTS_PER_STREAM):  # lanes of the vector units, and streams
        correlation = np.corrcoef(values[lag:], values[:-lag])[0, 1]
        assert abs(correlation) < 4.5 / (len(values) - lag) ** 0.5


def test_chains_seeds_streams_and_steps_are_independent():
    streams = [Noise(seed=1), Noise(seed=2), Noise(seed=1, chain_id=1), Noise(seed=1, chain_id=2)]
    rows = [draw(noise, ELEMENTS_PER_STREAM)[0] for noise in streams]
    rows.append(draw(streams[0], ELEMENTS_PER_STREAM)[0])  # the next step of the first
    rows.append(draw(Noise(seed=1), MANY)[0][-ELEMENTS_PER_STREAM:])  # the last of its streams
    correlations = torch.corrcoef(torch.stack(rows).double())
    off_diagonal = correlations - torch.eye(len(rows), dtype=torch.float64)
    assert off_diagonal.abs().max() < 4.5 / ELEMENTS_PER_STREAM**0.5


def test_seeds_past_32_bits_differ():
    """Torch's own seeding would give the same noise to seeds that differ by 2**32."""
    seeds = [5, 5 + 2**32, 5 + 2**62, 5 + 2**100]
    assert len({draw(Noise(seed=seed), 4)[0].sum().item() for seed in seeds}) == len(seeds)
    # Nor may the words of a long seed be taken for a short one and a chain.
    assert not torch.equal(
        draw(Noise(seed=5 + 7 * 2**32), 4)[0], draw(Noise(seed=5, chain_id=7), 4)[0]
    )


def test_the_generator_state_is_that_of_the_mersenne_twister():
    """Numpy's generator gives the same stream from the same words."""
    ours = noise_module._generator(torch.device("cpu"), 3, (1, 0, 2))
    words = np.random.SeedSequence(3, spawn_key=(1, 0, 2)).generate_state(624, np.uint32)
    words[0] |= 0x80000000
    theirs = np.random.MT19937()
    state: Any = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    theirs.state = state
    bits = torch.empty(2000, dtype=torch.int64).random_(0, 2**24, generator=ours)
    assert (bits.numpy() == theirs.random_raw(2000) % 2**24).all()


def test_another_generator_layout_raises(monkeypatch):
    monkeypatch.setattr(noise_module, "MT_STATE_BYTES", 1)
    with pytest.raises(RuntimeError, match="cannot seed"):
        draw(Noise(seed=1), 3)


def test_one_flat_buffer_whatever_the_shapes():
    """Cutting the same number of elements into other tensors gives the same values."""
    whole = draw(Noise(seed=1), 24)[0]
    pieces = draw(Noise(seed=1), (2, 3), (3, 4), (6,))
    assert torch.equal(whole, torch.cat([piece.flatten() for piece in pieces]))


def test_memory_layout_is_the_parameters_own():
    param = torch.empty(4, 3, 5, 5).to(memory_format=torch.channels_last)
    piece = Noise(seed=1).like([torch.empty(7), param])[1]
    assert piece.stride() == param.stride()
    assert len(piece.unique()) == param.numel()
    expanded = torch.empty(4, 1).expand(4, 3)
    assert len(Noise(seed=1).like([expanded])[0].unique()) == 12


@settings(max_examples=25)
@given(
    sizes=st.lists(st.sampled_from([1, 15, 16, 17, 100, MANY]), min_size=1, max_size=6),
    split=st.integers(0, 6),
)
def test_state_can_be_saved_at_any_point(sizes, split):
    """Also between draws of other sizes, and twice without a draw between."""
    whole, first = Noise(seed=4, chain_id=2), Noise(seed=4, chain_id=2)
    for size in sizes[:split]:
        assert torch.equal(draw(whole, size)[0], draw(first, size)[0])
    second, third = Noise(seed=0), Noise(seed=0)
    second.load_state_dict(first.state_dict())
    third.load_state_dict(second.state_dict())
    for size in sizes[split:]:
        assert torch.equal(draw(whole, size)[0], draw(third, size)[0])
    assert (third.seed, third.chain_id) == (4, 2)


def test_number_of_streams_is_bounded():
    noise = Noise(seed=1)
    draw(noise, (2 * MAX_STREAMS * ELEMENTS_PER_STREAM,))
    assert len(noise.state_dict()["devices"][0]["shards"][0]) == MAX_STREAMS


def test_streams_of_another_kind_of_device_start_anew():
    """A run that moves from CPU to an accelerator continues, though not bit for bit."""
    noise = Noise(seed=1)
    draw(noise, 5)
    state = noise.state_dict()
    state["devices"][0]["device"] = "cuda"
    noise.load_state_dict(state)
    assert torch.equal(draw(noise, 5)[0], draw(Noise(seed=1), 5)[0])


def test_devices_have_streams_of_their_own_whichever_asks_first():
    """Numbered among all parameters, not by first use: one group may be cold for a while."""

    class Elsewhere:
        """A parameter of the second of two devices."""

        device, dtype, shape = torch.device("cpu", 1), torch.float32, torch.Size([4])

        def numel(self):
            return 4

        def is_contiguous(self):
            return True

    here, there = torch.empty(4), Elsewhere()
    both: Any = [here, there]

    def draws(noise, *asked):
        return [noise.like([param], among=both)[0].clone() for param in asked]

    first, second = draws(Noise(seed=1), here, there)
    assert not torch.equal(first, second)
    late_second, late_first = draws(Noise(seed=1), there, here)
    assert torch.equal(first, late_first)
    assert torch.equal(second, late_second)

    noise = Noise(seed=1)
    draws(noise, there)
    loaded = Noise()
    loaded.load_state_dict(noise.state_dict())
    assert torch.equal(draws(loaded, here)[0], first)
    assert torch.equal(draws(loaded, there)[0], draws(noise, there)[0])


def test_double_precision_is_drawn_in_double():
    values = draw(Noise(seed=1), 1000, dtype=torch.float64)[0]
    assert (values != values.float().double()).any()

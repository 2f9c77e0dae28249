"""Threefry against its authors' published answers, and normal numbers against plain arithmetic."""

import importlib
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from numba import njit
from numba.core.caching import IndexDataCacheFile

from csgmcmc.noise import numba_kernels as kernels
from csgmcmc.noise import threefry as tensors
from csgmcmc.noise.backends import Key
from csgmcmc.noise.positions import Spans

CPU = torch.device("cpu")

# Of Random123's kat_vectors: counter, key and result of Threefry-4x32 with 13 rounds. The last
# counter and key are digits of pi.
KNOWN_ANSWERS = [
    ("00000000 " * 8, "531c7e4f 39491ee5 2c855a92 3d6abf9a"),
    ("ffffffff " * 8, "c4189358 1c9cc83a d5881c67 6a0a89e0"),
    (
        "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89",
        "4aa71d8f 734738c2 431fc6a8 ae6debf1",
    ),
]


@njit
def words_from(counter, key):
    """Four random words of the kernels."""
    a, b, c, d = counter[0], counter[1], counter[2], counter[3]
    return kernels.threefry(a, b, c, d, key[0], key[1], key[2], key[3])


def words_of(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(("inputs", "answer"), KNOWN_ANSWERS)
def test_known_answers(inputs, answer):
    counter, key = words_of(inputs)[:4], words_of(inputs)[4:]
    assert np.array_equal(words_from(counter, key), words_of(answer))
    words = torch.from_numpy(counter.view(np.int32)).view(2, 2).T  # words 0 and 2, 1 and 3
    schedule = torch.from_numpy(tensors.key_schedule(key.view(np.int32)))
    constants = torch.from_numpy(tensors.rotations().astype(np.int32)).view(8, 3, 2)
    even, odd = tensors.threefry(words[0], words[1], schedule, constants)
    found = torch.stack([even, odd]).T.flatten()
    assert np.array_equal(found.numpy().view(np.uint32), words_of(answer))


def reference(seed: int, chain: int, parameter: int, step: int, position: int) -> float:
    """The documented layout, one number at a time, in double precision."""
    block, number = position // 64 * 16 + position % 16, position // 16 % 4
    counter = np.array([block % 2**32, block >> 32, step % 2**32, step >> 32], np.uint32)
    key = np.array([seed % 2**32, seed >> 32, chain, parameter], np.uint32)
    words = [int(word) for word in words_from(counter, key)]
    first, second = words[number // 2 * 2], words[number // 2 * 2 + 1]
    radius = math.sqrt(-2 * math.log(((first >> 1) + 0.5) / 2**31))
    quarter, rest = second >> 30, (second >> 8) % 2**22
    angle = (quarter + (rest - 2**21 + 0.5) / 2**22) * math.pi / 2
    return radius * (math.sin(angle) if number % 2 else math.cos(angle))


@pytest.mark.parametrize("step", [0, 3, 2**40 + 5])
def test_every_number_is_where_the_layout_says(step):
    start, seed, chain, parameter = 64 * 2**33 + 50, 2**63 + 11, 7, 5
    spans = [Spans(np.array([[0, start]]), 200)]
    (found,) = tensors.normals(Key(seed, chain, step), [parameter], spans, CPU)
    expected = [reference(seed, chain, parameter, step, start + i) for i in range(200)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=2e-6)


def test_extreme_words_give_finite_numbers():
    extremes = torch.tensor([0, 1, 2, -1, -2, 2**31 - 1, -(2**31)], dtype=torch.int32)
    first, second = torch.meshgrid(extremes, extremes, indexing="ij")
    numbers = torch.stack(tensors.two_normals(first, second))
    assert numbers.isfinite().all()
    largest = math.sqrt(-2 * math.log(2**-32))
    assert float(numbers.norm(dim=0).max()) == pytest.approx(largest, rel=1e-5)


def test_the_square_root_is_correctly_rounded():
    values = torch.rand(100_000, generator=torch.Generator().manual_seed(0)) * 45
    assert np.array_equal(tensors._sqrt(values).numpy(), np.sqrt(values.numpy()))


def test_the_compiler_of_torch_traces_the_operations_as_one_graph():
    """Seed, layout and rotations are tensors, and the step's words are numbers of any value."""
    made = tensors._layout(2**64 - 1, 2, (5,), (Spans(np.zeros((1, 2), np.int64), 200),), CPU)
    traced = torch.compile(tensors.numbers_of, backend="eager", fullgraph=True)
    for words in ((0, 0), (7, 0), (-5, 3), (2**31 - 1, 0)):
        assert torch.equal(traced(made, *words), tensors.numbers_of(made, *words))


def test_what_is_kept_on_the_device_is_small_and_bounded():
    tensors._layout.cache_clear()
    size, most = 1 << 20, tensors._layout.cache_info().maxsize
    spans = Spans(np.zeros((1, 2), int), size)
    for seed in range(20):
        tensors.normals(Key(seed, 0, 0), [0], [spans], CPU)
    assert tensors._layout.cache_info().currsize == most == 16
    kept = tensors._layout(19, 0, (0,), (spans,), CPU)
    held = sum(each.nbytes for each in kept if isinstance(each, torch.Tensor))
    assert held <= 0.4 * size  # bytes


def test_a_kernel_without_a_folder_for_its_cache_is_compiled_anew():
    namespace = {}
    exec("def double(x): return 2 * x", namespace)  # noqa: S102  (a function that is in no file)
    assert kernels._kernel(namespace["double"])(4) == 8


@pytest.mark.parametrize("failing", ["_save_index", "_save_data", "_load_index", "_load_data"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), EOFError()])
def test_a_kernel_whose_cache_fails_is_used_all_the_same(tmp_path, monkeypatch, failing, error):
    """A full disk, a folder that is read-only, a damaged file."""
    monkeypatch.setattr(kernels.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "doubling.py").write_text("def double(x): return 2 * x")
    double = importlib.import_module("doubling").double
    assert kernels._kernel(double)(4) == 8
    assert list(tmp_path.rglob("*.nbc"))  # kept, for the next

    def fail(*_):
        raise error

    monkeypatch.setattr(IndexDataCacheFile, failing, fail)
    kernel = kernels._kernel(double)
    assert kernel(4) == 8
    assert kernel(4.5) == 9.0


def test_slow_packages_are_imported_when_they_are_needed():
    """Each of them takes longer to import than all of this library; numba, with the first step."""
    code = """
import sys, torch, csgmcmc, csgmcmc.samplers
csgmcmc.samplers.discover()
slow = {"arviz_stats", "numba", "scipy", "sklearn", "torch.distributed.tensor"}
assert not slow & sys.modules.keys(), slow & sys.modules.keys()
param = torch.ones(3)
sampler = csgmcmc.SGHMC([param], lr=0.1, num_data=1)
assert "numba" not in sys.modules
param.grad = torch.ones(3)
sampler.step()
assert "numba" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

"""The Triton kernels without a GPU: compiled for real ones, and their PTX executed on the CPU.

Triton compiles as for a launch; only the driver is a stand-in. `ptx` then executes what it would
send to the GPU, on the tensors that the library would send, and every bit is compared with numba's
kernels. What that cannot show is in `test_cuda.py`.
"""

import os
import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from csgmcmc import SGHMC, SGLD, stack
from csgmcmc.noise import fused as fused_module
from csgmcmc.noise import numba_kernels, threefry
from csgmcmc.noise import source as source_module
from csgmcmc.noise.backends import Coefficients, Key
from csgmcmc.noise.positions import Spans
from tests.noise import ptx
from tests.support import make

triton: pytest.Module = pytest.importorskip(
    "triton", reason="triton is not installed: `make test-slow` installs it, on Linux"
)
# They need triton.
from benchmarks.gpu_counts import VARIANTS, compiled, compiling_for, resources  # noqa: E402
from csgmcmc.noise import triton_kernels as kernels  # noqa: E402

pytestmark = pytest.mark.slow

nvidia = pytest.mark.parametrize("target", ["sm_80", "sm_90"])
KEYS = [
    Key(0, 0, 0),
    Key(7, 3, 12),
    Key(2**64 - 1, 2**32 - 1, 2**63 - 1),
    Key(2**40, 1, 2**32),
]


class Emulated:
    """A kernel whose launches are compiled for a GPU and executed on the CPU."""

    def __init__(self, kernel) -> None:
        self.kernel = kernel
        self.tensors: list[torch.Tensor] = []  # what launches may touch, besides their tables
        self.launches = 0
        self.compiled: dict[str, str] = {}

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            compiled = self.kernel.warmup(*arguments, grid=grid, **constants)
            assert compiled.metadata.enable_fp_fusion is False
            text = compiled.asm["ptx"]
            self.compiled[compiled.hash] = text
            self.launches += 1
            ptx.run(text, grid[0], arguments, self.tensors)

        return launch


@pytest.fixture
def emulated(target, monkeypatch):
    """The kernels `fill` and `move`, emulated; both may touch the tensors that are appended."""
    fill, move = Emulated(kernels.fill), Emulated(kernels.move)
    fill.tensors = move.tensors
    monkeypatch.setattr(kernels, "fill", fill)
    monkeypatch.setattr(kernels, "move", move)
    with compiling_for(target):
        yield SimpleNamespace(fill=fill, move=move, tensors=move.tensors)


def spans_of(length: int, *firsts: tuple[int, int]) -> Spans:
    return Spans(np.array(firsts, np.int64), length)


# Shards that begin anywhere, also where a block's number needs its upper word; stacked chains; no
# positions at all; and enough for many programs.
SPANS = [spans_of(n, (0, at)) for n, at in product((1, 63, 64, 65, 1000), (0, 1, 63, 64, 1000))]
SPANS += [spans_of(300, (0, 2**36 - 100)), spans_of(70, (0, 10), (0, 500)), spans_of(0, (0, 0))]
SPANS += [spans_of(130, *((chain, 0) for chain in range(5))), spans_of(100_003, (0, 70))]
IDS = [5 * index for index in range(len(SPANS) - 1)] + [2**31]


def numbers(seed: int) -> list[torch.Tensor]:
    """A tensor for each of SPANS; some numbers are ones that a GPU could flush to zero."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(len(own.first) * own.length, generator=generator) for own in SPANS]
    for tensor in made:
        tensor[::7], tensor[3::7] = 1e-41, -0.0
    return made


def assert_same_bits(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))


@nvidia
@pytest.mark.parametrize("key", KEYS)
def test_compiled_noise_has_the_bits_of_numba_and_of_torch_operations(emulated, key):
    made, expected = numbers(0), numbers(0)
    emulated.tensors += made
    kernels.fill_all(key, IDS, SPANS, made)
    numba_kernels.fill_all(key, IDS, SPANS, expected)
    assert_same_bits(made, expected)
    assert_same_bits(made, threefry.normals(key, IDS, SPANS, torch.device("cpu")))
    assert emulated.fill.launches == 1


@nvidia
@pytest.mark.parametrize("name", VARIANTS)
def test_compiled_updates_have_the_bits_of_numba(emulated, name):
    flags, key = VARIANTS[name], KEYS[1]
    tensors = [numbers(seed) for seed in range(4)]
    params, gradients, velocities, scales = tensors
    velocities, scales = velocities * flags["momentum"], scales * flags["scaled"]
    columns = (params, gradients, velocities, scales)
    theirs = [[tensor.clone() for tensor in column] for column in columns]
    emulated.tensors += [tensor for column in columns for tensor in column]
    coefficients = Coefficients(rate=0.1, kept=0.9, std=1e-3 * flags["noise"], decay=5e-4)
    for step in range(2):
        own = key._replace(step=key.step + step)
        kernels.move_all(own, IDS, SPANS, columns, coefficients)
        numba_kernels.move_all(own, IDS, SPANS, theirs, coefficients)
        for column, other in zip(columns, theirs, strict=True):
            assert_same_bits(column, other)
    assert not torch.equal(params[-1], numbers(0)[-1])
    assert emulated.move.launches == 2


@nvidia
@pytest.mark.parametrize("sampler", [SGLD, SGHMC])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_sampler_moves_each_group_in_one_launch(emulated, sampler, temperature, monkeypatch):
    """New gradients in each step, two groups, a stack and an empty parameter."""

    def path(backend) -> list[torch.Tensor]:
        for module in (fused_module, source_module):
            monkeypatch.setattr(module, "load_kernels", lambda _: backend)
        torch.manual_seed(0)
        stacked = stack([torch.nn.Linear(30, 70) for _ in range(3)])
        groups = [list(stacked.parameters()), [torch.zeros(0, 3), torch.randn(9)]]
        options = {"temperature": temperature, "weight_decay": 0.1, "fused": True}
        chain = make(sampler, [{"params": group} for group in groups], **options)
        params = [param for group in groups for param in group]
        for _ in range(3):
            for param in params:
                param.grad = param.detach().sin()
            states = [each for param in params for each in chain.state[param].values()]
            if not states and sampler is SGHMC:
                for param in params:
                    chain.state[param]["velocity"] = torch.zeros_like(param)
                states = [chain.state[param]["velocity"] for param in params]
            gradients = [param.grad for param in params if param.grad is not None]
            emulated.tensors[:] = [*map(torch.Tensor.detach, params), *gradients, *states]
            chain.step()
        return [param.detach() for param in params]

    assert_same_bits(path(kernels), path(numba_kernels))
    assert emulated.move.launches == 2 * 3
    assert len(emulated.move.compiled) == 1


@pytest.mark.parametrize("target", ["sm_80"])
def test_one_compilation_serves_all_seeds_steps_and_groups(emulated):
    for count, key in ((1, KEYS[0]), (16, Key(16, 0, 1)), (17, KEYS[3]), (1, KEYS[2])):
        params, gradients = ([torch.ones(5) for _ in range(count)] for _ in range(2))
        emulated.tensors[:] = [*params, *gradients]
        for rate in (1, 0.1):
            numbers = Coefficients(rate, 0, 1.0, 0)
            own = [spans_of(5, (0, 0))] * count
            kernels.move_all(key, range(count), own, (params, gradients, [], []), numbers)
    assert len(emulated.move.compiled) == 1


@pytest.mark.parametrize("target", ["sm_80"])
def test_tables_are_uploaded_only_when_addresses_or_shapes_change(emulated, monkeypatch):
    uploaded, upload = [], kernels._on_device

    def counted(numbers, dtype, device):
        uploaded.append(len(numbers))
        return upload(numbers, dtype, device)

    monkeypatch.setattr(kernels, "_on_device", counted)
    params = [torch.ones(1234), torch.ones(77)]
    others = [[torch.full_like(param, value) for param in params] for value in (1.0, 2.0)]
    emulated.tensors += [*params, *others[0], *others[1]]
    uploads = []
    own = [spans_of(len(param), (0, 0)) for param in params]
    for step, (gradients, chain) in enumerate([(0, 0), (0, 0), (1, 0), (0, 0), (1, 0), (1, 1)]):
        key, numbers = Key(1, chain, step), Coefficients(1.0, 0.0, 0.0, 0.0)
        kernels.move_all(key, [3, 4], own, (params, others[gradients], [], []), numbers)
        uploads.append(len(uploaded))
        uploaded.clear()
    assert uploads == [3, 0, 1, 0, 0, 2]  # what has been there before is there still
    assert all((param == 1 - 3 * 1 - 3 * 2).all() for param in params)


@pytest.mark.parametrize("target", ["sm_80"])
def test_an_access_outside_of_the_tensors_would_be_noticed(emulated):
    made = torch.empty(100)
    emulated.tensors.append(made[:99])
    with pytest.raises(IndexError, match="outside of tensor"):
        kernels.fill_all(KEYS[0], [0], [spans_of(100, (0, 0))], [made])


EVERY = [("fill", {}), *((f"move: {name}", flags) for name, flags in VARIANTS.items())]


@nvidia
@pytest.mark.parametrize(("name", "flags"), EVERY, ids=[name for name, _ in EVERY])
def test_resources(name, flags, target):
    """No fused multiply-add, no spills, and registers for 768 threads of a multiprocessor."""
    used = resources(compiled(kernels.move if flags else kernels.fill, target, **flags))
    assert not used.inexact
    assert used.spilled_bytes == 0
    assert used.registers <= (80 if flags.get("scaled") else 64)
    assert used.fused <= 4 * used.roots  # those that make the square root exact


@pytest.mark.parametrize(("name", "flags"), EVERY, ids=[name for name, _ in EVERY])
def test_resources_on_amd(name, flags):
    used = resources(compiled(kernels.move if flags else kernels.fill, "gfx942", **flags))
    assert used.spilled_bytes == 0
    assert used.registers <= 128  # of 512, for four waves of a unit
    assert used.fused <= 6 * used.roots


def test_fused_multiply_add_would_be_noticed():
    made = compiled(kernels.move, "sm_80", **VARIANTS["SGHMC"], enable_fp_fusion=True)
    assert "fma.rn.f32" in resources(made).inexact


IN_THE_INTERPRETER = """
import torch
from csgmcmc import SGHMC
from csgmcmc.noise import fused, numba_kernels, triton_kernels
triton_kernels.try_out(torch.device("cpu"))
ends = []
for kernels in (triton_kernels, numba_kernels):
    fused.load_kernels = lambda _: kernels
    params = [torch.linspace(-1, 1, size) for size in (1, 70, 2100)]
    chain = SGHMC(params, lr=0.1, num_data=10, weight_decay=0.1, fused=True, seed=2**63)
    for _ in range(2):
        for param in params:
            param.grad = param.sin()
        chain.step()
    ends.append(params)
assert all(torch.equal(*pair) for pair in zip(*ends))
print("same bits")
"""


def test_the_interpreter_of_triton_has_the_bits_of_numba():
    """Triton's own reading of the kernels, in a process that begins with it."""
    result = subprocess.run(
        [sys.executable, "-c", IN_THE_INTERPRETER],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "same bits\n", result.stderr

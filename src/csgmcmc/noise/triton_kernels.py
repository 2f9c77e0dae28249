"""Normal numbers from counters, and the updates that use them, as Triton kernels for GPUs.

They compute what the kernels of `numba_kernels` do, operation by operation, with the same bits: so
Triton must not fuse multiplications and additions. All tensors of a group are one launch. Each
program makes 2048 consecutive numbers of a span. It reads from tables where they are:

- the layout, which depends on shapes alone: a row for each span, with the index of its tensor, its
  begin in the tensor, its length, first position, chain, number of the parameter, and its first
  program; and for each program the row of its span;
- the addresses of the tensors. Gradients may have other ones in each step: then the table is
  copied to the device anew, from pinned memory, so that the CPU does not wait.

Tables on the device are found by their content, so that they cannot be out of date. Seed and step
are not specialised: a kernel that is compiled once serves all steps.
"""

# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportArgumentType=false
# (triton may not be installed, and its types are those of a kernel's own language)

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from csgmcmc.noise import threefry
from csgmcmc.noise.backends import Coefficients, Key
from csgmcmc.noise.positions import Spans

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
"""Of each launch: 128 threads, and no fused multiply-add."""

BLOCKS = tl.constexpr(512)  # of Threefry in a program, which makes four numbers of each
COLUMNS = tl.constexpr(7)  # of the layout
PARITY = tl.constexpr(threefry.PARITY)
LANES, GROUP = tl.constexpr(threefry.LANES), tl.constexpr(threefry.GROUP)
ROOT_HALF, LN2 = tl.constexpr(float(threefry.ROOT_HALF)), tl.constexpr(float(threefry.LN2))
QUARTER_TURN = tl.constexpr(float(threefry.QUARTER_TURN))
L0, L1, L2, L3, L4, L5, L6, L7, L8 = (tl.constexpr(float(x)) for x in threefry.LOG)
S0, S1, S2, C0, C1, C2 = (tl.constexpr(float(x)) for x in threefry.SINE + threefry.COSINE)


@triton.jit
def _round(a, b, c, d, first: tl.constexpr, second: tl.constexpr):
    a, c = a + b, c + d
    b = (b << first) | (b >> (32 - first))
    d = (d << second) | (d >> (32 - second))
    return a, b ^ a, c, d ^ c


@triton.jit
def _threefry(a, b, c, d, k0, k1, k2, k3):
    """Four words from a counter and a key of four words each."""
    k4 = k0 ^ k1 ^ k2 ^ k3 ^ PARITY
    a, b, c, d = a + k0, b + k1, c + k2, d + k3
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = a + k1, b + k2, c + k3, d + (k4 + 1)
    a, b, c, d = _round(a, b, c, d, 6, 20)
    a, d, c, b = _round(a, d, c, b, 17, 11)
    a, b, c, d = _round(a, b, c, d, 25, 10)
    a, d, c, b = _round(a, d, c, b, 18, 20)
    a, b, c, d = a + k2, b + k3, c + k4, d + (k0 + 2)
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = a + k3, b + k4, c + k0, d + (k1 + 3)
    return _round(a, b, c, d, 6, 20)


@triton.jit
def _with_sign(x, word):
    """`x` or `-x`, by the first bit of a word."""
    bits = x.to(tl.uint32, bitcast=True) ^ (word & 0x80000000)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _two_normals(first, second):
    uniform = (first >> 1).to(tl.int32, bitcast=True).to(tl.float32) + 0.5
    bits = uniform.to(tl.int32, bitcast=True)
    exponent = ((bits >> 23) - 157).to(tl.float32)
    m = ((bits & 0x7FFFFF) | 0x3F000000).to(tl.float32, bitcast=True)
    low = m < ROOT_HALF
    exponent = tl.where(low, exponent - 1.0, exponent)
    m = tl.where(low, m + m - 1.0, m - 1.0)
    z = m * m
    p = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    radius = tl.sqrt_rn(-2.0 * (m + (p * m * z - 0.5 * z) + LN2 * exponent))
    from_middle = ((second >> 8) & 0x3FFFFF).to(tl.int32, bitcast=True) - 0x200000
    angle = (from_middle.to(tl.float32) + 0.5) * QUARTER_TURN
    z = angle * angle
    sine = ((S0 * z + S1) * z + S2) * z * angle + angle
    cosine = ((C0 * z + C1) * z + C2) * z * z - 0.5 * z + 1.0
    odd = (second & 0x40000000) != 0
    x = _with_sign(tl.where(odd, sine, cosine), second ^ (second << 1))
    return radius * x, radius * _with_sign(tl.where(odd, cosine, sine), second)


@triton.jit
def _normals(span, first_block, lane, seed, step):
    """The four normal numbers of each block."""
    block, seed, step = (first_block + lane).to(tl.uint64), seed.to(tl.uint64), step.to(tl.uint64)
    chain, parameter = tl.load(span + 4).to(tl.uint32), tl.load(span + 5).to(tl.uint32)
    low, high = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    c, d = step.to(tl.uint32), (step >> 32).to(tl.uint32)
    k0, k1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    a, b, c, d = _threefry(low, high, low * 0 + c, low * 0 + d, k0, k1, chain, parameter)
    n0, n1 = _two_normals(a, b)
    n2, n3 = _two_normals(c, d)
    return n0, n1, n2, n3


@triton.jit
def _locate(layout, row_of):
    """The span of this program, its first block, and which of its positions are in the span."""
    program = tl.program_id(0)
    span = layout + tl.load(row_of + program) * COLUMNS
    length, position = tl.load(span + 2), tl.load(span + 3)
    group = position // GROUP + (program - tl.load(span + 6)) * (BLOCKS // LANES)
    start = group * GROUP - position  # in the span; negative where the span begins inside a group
    first, end = tl.maximum(-start, 0), tl.minimum(length - start, BLOCKS * 4)
    return span, group * LANES, tl.load(span + 1) + start, first.to(tl.int32), end.to(tl.int32)


@triton.jit
def _pointer(addresses, span, start):
    return tl.load(addresses + tl.load(span)).to(tl.pointer_type(tl.float32)) + start


@triton.jit(do_not_specialize=["seed", "step"])
def fill(layout, row_of, addresses, seed: tl.uint64, step: tl.uint64):
    """Write the noise of a step."""
    span, first_block, start, first, end = _locate(layout, row_of)
    out, lane = _pointer(addresses, span, start), tl.arange(0, BLOCKS)
    n0, n1, n2, n3 = _normals(span, first_block, lane, seed, step)
    at = lane // LANES * GROUP + lane % LANES
    tl.store(out + at, n0, (at >= first) & (at < end))
    tl.store(out + at + 16, n1, (at + 16 >= first) & (at + 16 < end))
    tl.store(out + at + 32, n2, (at + 32 >= first) & (at + 32 < end))
    tl.store(out + at + 48, n3, (at + 48 >= first) & (at + 48 < end))


@triton.jit
def _move(
    p, g, v, s, n, at, first, end, rate, kept, std, decay,
    momentum: tl.constexpr, scaled: tl.constexpr,
):  # fmt: skip
    own = (at >= first) & (at < end)
    param, gradient = tl.load(p + at, own), tl.load(g + at, own)
    if momentum:
        scale = rate
        if scaled:
            scale = tl.load(s + at, own)
            rate = rate * scale
        velocity = kept * tl.load(v + at, own) - rate * (gradient + decay * param) + std * n
        tl.store(v + at, velocity, own)
        if scaled:
            velocity = scale * velocity
        tl.store(p + at, param + velocity, own)
    else:
        tl.store(p + at, param + (std * n - rate * (gradient + decay * param)), own)


@triton.jit(do_not_specialize=["seed", "step", "tensors"])
def move(
    layout, row_of, addresses, seed: tl.uint64, step: tl.uint64, tensors: tl.int32,
    rate: tl.float32, kept: tl.float32, std: tl.float32, decay: tl.float32,
    momentum: tl.constexpr, scaled: tl.constexpr, noise: tl.constexpr,
):  # fmt: skip
    """One step of SGHMC, without `momentum` of SGLD; `scaled`, of the weights divided by scales."""
    span, first_block, start, first, end = _locate(layout, row_of)
    p = _pointer(addresses, span, start)
    g = _pointer(addresses + tensors, span, start)
    v, s = p, p
    if momentum:
        v = _pointer(addresses + 2 * tensors, span, start)
    if scaled:
        s = _pointer(addresses + 3 * tensors, span, start)
    lane = tl.arange(0, BLOCKS)
    n0 = tl.zeros_like(lane).to(tl.float32)
    n1, n2, n3 = n0, n0, n0
    if noise:
        n0, n1, n2, n3 = _normals(span, first_block, lane, seed, step)
    at = lane // LANES * GROUP + lane % LANES
    _move(p, g, v, s, n0, at, first, end, rate, kept, std, decay, momentum, scaled)
    _move(p, g, v, s, n1, at + 16, first, end, rate, kept, std, decay, momentum, scaled)
    _move(p, g, v, s, n2, at + 32, first, end, rate, kept, std, decay, momentum, scaled)
    _move(p, g, v, s, n3, at + 48, first, end, rate, kept, std, decay, momentum, scaled)


def fill_all(
    key: Key, ids: Sequence[int], spans: Sequence[Spans], outputs: Sequence[Tensor], steps: int = 1
) -> None:
    """See `csgmcmc.noise.numba_kernels`."""
    for index in range(steps):
        parts = [one.view(steps, -1)[index] for one in outputs] if steps > 1 else outputs
        _launch(fill, Key(key.seed, key.chain, key.step + index), ids, spans, [parts])


def move_all(
    key: Key, ids: Sequence[int], spans: Sequence[Spans],
    columns: Sequence[Sequence[Tensor]], numbers: Coefficients,
) -> None:  # fmt: skip
    """See `csgmcmc.noise.numba_kernels`."""
    _, _, velocities, scales = columns
    flags = {"momentum": bool(velocities), "scaled": bool(scales), "noise": numbers.std > 0}
    _launch(move, key, ids, spans, columns, len(ids), *map(float, numbers), **flags)


def _launch(
    kernel: Any,
    key: Key,
    ids: Sequence[int],
    spans: Sequence[Spans],
    columns: Sequence[Sequence[Tensor]],
    *numbers: float,
    **flags: bool,
) -> None:
    """One launch for all tensors; the first of `columns` are those that `spans` describe."""
    device = columns[0][0].device
    on_gpu = device.type == "cuda"
    stream = torch.cuda.current_stream(device).cuda_stream if on_gpu else 0
    layout, row_of = _layout(key.chain, tuple(ids), tuple(spans), device, stream)
    if len(row_of):
        pointers = tuple(one.data_ptr() for column in columns for one in column)
        addresses = _addresses(pointers, device, stream)
        with torch.cuda.device(device) if on_gpu else nullcontext():
            tables = (layout, row_of, addresses)
            kernel[(len(row_of),)](*tables, key.seed, key.step, *numbers, **flags, **OPTIONS)


# Tables are copied on the stream of the launch, and one that is dropped is still there for it.


@lru_cache(maxsize=64)
def _layout(
    chain: int,
    ids: tuple[int, ...],
    spans: tuple[Spans, ...],
    device: torch.device,
    stream: int,  # noqa: ARG001  (a part of the key)
) -> tuple[Tensor, Tensor]:
    rows, row_of = [], []
    for index, (number, own) in enumerate(zip(ids, spans, strict=True)):
        for place, (offset, position) in enumerate(own.first.tolist() if own.length else []):
            program = len(row_of)
            row_of += [len(rows)] * -(-(position % GROUP.value + own.length) // (4 * BLOCKS.value))
            where = (index, place * own.length, own.length, position)
            rows.append((*where, chain + offset, number, program))
    return _on_device(rows, torch.int64, device), _on_device(row_of, torch.int32, device)


@lru_cache(maxsize=64)
def _addresses(
    pointers: tuple[int, ...],
    device: torch.device,
    stream: int,  # noqa: ARG001  (as above)
) -> Tensor:
    return _on_device(pointers, torch.int64, device)


def _on_device(numbers: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    pinned = device.type == "cuda"  # torch keeps pinned memory until a copy of it has ended
    table = torch.tensor(numbers, dtype=dtype, device="cpu", pin_memory=pinned)
    return table.to(device, non_blocking=True)


def try_out(device: torch.device) -> None:
    """Raise an error unless the kernels run on a device and have the bits of torch operations."""
    key, ids, size = Key(2**64 - 3, 3, 2**33 + 1), [5], 1000
    spans = [Spans(np.array([[0, 2**36 - 70]]), size)]
    expected = threefry.normals(key, ids, spans, device)[0]
    made, moved, velocity = (
        torch.zeros(size, dtype=torch.float32, device=device) for _ in range(3)
    )
    fill_all(key, ids, spans, [made])
    numbers = Coefficients(rate=0.0, kept=0.0, std=1.0, decay=0.0)
    move_all(key, ids, spans, [[moved], [made], [velocity], []], numbers)
    for found in (made, moved, velocity):
        if not torch.equal(found, expected):
            raise ArithmeticError("their numbers are not those of torch operations")

"""Normal numbers from counters, and the updates that use them, as numba kernels for the CPU.

Numba brings its own compiler. A kernel is compiled on its first call ever, which takes a few
seconds, and is then kept on disk until this file changes. All kernels are in it, and the constants
of `threefry` are compiled into them: if those change, this file must change too.

Tensors are passed by address, which costs a tenth of making arrays of them. The caller makes sure
that they are contiguous float32 tensors in memory. What the steps compute is explained in
`threefry`.
"""

# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportReturnType=false, reportIndexIssue=false, reportArgumentType=false
# (numba's types, as numba.uint32, are called as functions in a kernel)

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from llvmlite.ir import IRBuilder
from numba import carray, config, njit, types, uint32
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from torch import Tensor

from csgmcmc.noise.backends import Coefficients, Key
from csgmcmc.noise.positions import Spans
from csgmcmc.noise.threefry import (
    COSINE,
    GROUP,
    LANES,
    LN2,
    LOG,
    PARITY,
    QUARTER_TURN,
    ROOT_HALF,
    SINE,
)

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these kernels need numba's compiler")

CHUNK = 16 * GROUP
"""Numbers that are made at a time: they stay in the fastest cache until they are used."""

L0, L1, L2, L3, L4, L5, L6, L7, L8 = LOG
S0, S1, S2 = SINE
C0, C1, C2 = COSINE
HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)
MINUS_157, MINUS_HALF = np.uint32(2**32 - 157), np.uint32(2**32 - 0x200000)


def _kernel(function: Callable[..., Any]) -> Any:
    """Compile on the first call; keep the result on disk where there is a folder for it."""
    kernel = njit(function, nogil=True, error_model="numpy")
    with suppress(RuntimeError, OSError):  # there is no folder that can be written
        kernel._cache = _Cache(kernel.py_func)
    return kernel


class _Cache(FunctionCache):
    """Compiled kernels on disk; where they cannot be read or written, they are compiled anew.

    A full disk, a read-only folder or a damaged file does not stop a run.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with suppress(Exception):  # unpickling a damaged file may raise anything
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):
            super().save_overload(sig, data)


@intrinsic
def _floats(_: Any, address: Any) -> Any:
    """A pointer to float32 numbers from the address of the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(address), generate


def _on_words(build: Callable[..., Any]) -> Any:
    """An operation on two 32-bit words: numba's own widens them to 64 bits, at twice the cost."""

    @intrinsic
    def operation(_: Any, _first: Any, _second: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return build(builder, *args)

        return types.uint32(types.uint32, types.uint32), generate

    return operation


_add = _on_words(IRBuilder.add)
_and = _on_words(IRBuilder.and_)
_xor = _on_words(IRBuilder.xor)
_shift_left = _on_words(IRBuilder.shl)
_shift_right = _on_words(IRBuilder.lshr)


@njit(inline="always")
def _rotate(word, bits):
    return _xor(_shift_left(word, uint32(bits)), _shift_right(word, uint32(32 - bits)))


@njit(inline="always")
def _round(a, b, c, d, first, second):
    a, c = _add(a, b), _add(c, d)
    return a, _xor(_rotate(b, first), a), c, _xor(_rotate(d, second), c)


@njit(inline="always")
def threefry(a, b, c, d, k0, k1, k2, k3):
    """Four words from a counter and a key of four words each."""
    k4 = _xor(_xor(_xor(k0, k1), _xor(k2, k3)), uint32(PARITY))
    a, b, c, d = _add(a, k0), _add(b, k1), _add(c, k2), _add(d, k3)
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = _add(a, k1), _add(b, k2), _add(c, k3), _add(d, _add(k4, uint32(1)))
    a, b, c, d = _round(a, b, c, d, 6, 20)
    a, d, c, b = _round(a, d, c, b, 17, 11)
    a, b, c, d = _round(a, b, c, d, 25, 10)
    a, d, c, b = _round(a, d, c, b, 18, 20)
    a, b, c, d = _add(a, k2), _add(b, k3), _add(c, k4), _add(d, _add(k0, uint32(2)))
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = _add(a, k3), _add(b, k4), _add(c, k0), _add(d, _add(k1, uint32(3)))
    return _round(a, b, c, d, 6, 20)


@njit(inline="always")
def _two_normals(first, second):
    uniform = np.float32(np.float32(np.int32(_shift_right(first, uint32(1)))) + HALF)
    bits = uint32(uniform.view(np.uint32))
    exponent = np.float32(np.int32(_add(_shift_right(bits, uint32(23)), MINUS_157)))
    m = np.uint32(_xor(_and(bits, uint32(0x7FFFFF)), uint32(0x3F000000))).view(np.float32)
    low = m < ROOT_HALF
    exponent = exponent - ONE if low else exponent
    m = m + m - ONE if low else m - ONE
    z = m * m
    p = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    radius = np.sqrt(-TWO * (m + (p * m * z - HALF * z) + LN2 * exponent))
    place = _and(_shift_right(second, uint32(8)), uint32(0x3FFFFF))
    angle = (np.float32(np.int32(_add(place, MINUS_HALF))) + HALF) * QUARTER_TURN
    z = angle * angle
    sine = ((S0 * z + S1) * z + S2) * z * angle + angle
    cosine = ((C0 * z + C1) * z + C2) * z * z - HALF * z + ONE
    odd = _and(second, uint32(0x40000000)) != uint32(0)
    x, y = (sine, cosine) if odd else (cosine, sine)
    # In the quarters 1 and 2 the cosine is negative, in 2 and 3 the sine.
    x = _with_sign(x, _xor(second, _shift_left(second, uint32(1))))
    return radius * x, radius * _with_sign(y, second)


@njit(inline="always")
def _with_sign(x, word):
    """`x` or `-x`, by the first bit of a word."""
    bits = uint32(np.float32(x).view(np.uint32))
    return np.uint32(_xor(bits, _and(word, uint32(0x80000000)))).view(np.float32)


@njit(nogil=True, error_model="numpy", inline="always")
def _chunk(numbers, position, most, seed, chain, parameter, step):
    """The numbers from `position` on, at most `most` of them, as a part of `numbers`."""
    skipped = position % GROUP
    count = min(CHUNK - skipped, most)
    first = position // GROUP
    s0, s1, t0, t1 = uint32(seed), uint32(seed >> 32), uint32(step), uint32(step >> 32)
    own_chain, number = uint32(chain), uint32(parameter)
    for group in range((skipped + count + GROUP - 1) // GROUP):
        block, at = (first + group) * LANES, group * GROUP
        low, high = uint32(block), uint32(block >> 32)
        for lane in range(LANES):
            lowest = _add(low, uint32(lane))
            a, b, c, d = threefry(lowest, high, t0, t1, s0, s1, own_chain, number)
            numbers[at + lane], numbers[at + LANES + lane] = _two_normals(a, b)
            numbers[at + 2 * LANES + lane], numbers[at + 3 * LANES + lane] = _two_normals(c, d)
    return numbers[skipped : skipped + count]


@_kernel
def fill(out, first, length, seed, chain, parameter, first_step, steps):
    """Write the noise of a parameter in some steps to the address `out`.

    `first` and `length` are those of `csgmcmc.noise.positions.Spans`.
    """
    target = carray(_floats(out), steps * len(first) * length)
    numbers, done = np.empty(CHUNK, np.float32), 0
    for step in range(first_step, first_step + steps):
        for span in range(len(first)):
            own_chain, position, end = chain + first[span, 0], first[span, 1], done + length
            while done < end:
                noise = _chunk(numbers, position, end - done, seed, own_chain, parameter, step)
                for i in range(len(noise)):
                    target[done + i] = noise[i]
                position += len(noise)
                done += len(noise)


@_kernel
def move(
    params, gradients, velocities, scales, first, length, seed, chain, parameter, step,
    lr, momentum, noise_std, weight_decay,
):  # fmt: skip
    """One step of SGHMC, or of SGLD where the address `velocities` is 0, with their noise.

    Where the address `scales` is not 0, SGHMC moves the weights divided by their scales.
    """
    size = len(first) * length
    all_p, all_g = carray(_floats(params), size), carray(_floats(gradients), size)
    all_v, all_s = carray(_floats(velocities), size), carray(_floats(scales), size)
    rate, kept = np.float32(lr), np.float32(momentum)
    std, decay = np.float32(noise_std), np.float32(weight_decay)
    numbers, done = np.zeros(CHUNK, np.float32), 0
    for span in range(len(first)):
        own_chain, position, end = chain + first[span, 0], first[span, 1], done + length
        while done < end:
            if noise_std > 0:
                noise = _chunk(numbers, position, end - done, seed, own_chain, parameter, step)
            else:
                noise = numbers[: min(CHUNK, end - done)]
            here = slice(done, done + len(noise))
            p, g = all_p[here], all_g[here]
            if velocities == 0:
                for i in range(len(noise)):
                    p[i] += std * noise[i] - rate * (g[i] + decay * p[i])
            elif scales == 0:
                v = all_v[here]
                for i in range(len(noise)):
                    v[i] = kept * v[i] - rate * (g[i] + decay * p[i]) + std * noise[i]
                    p[i] += v[i]
            else:
                v, s = all_v[here], all_s[here]
                for i in range(len(noise)):
                    v[i] = kept * v[i] - rate * s[i] * (g[i] + decay * p[i]) + std * noise[i]
                    p[i] += s[i] * v[i]
            position += len(noise)
            done += len(noise)


def fill_all(
    key: Key, ids: Sequence[int], spans: Sequence[Spans], outputs: Sequence[Tensor], steps: int = 1
) -> None:
    """Write the noise of each parameter; with `steps`, also that of later steps behind it.

    Here as in `move_all`, tensors are contiguous, float32 and on one device, and `spans` are the
    positions of their numbers.
    """
    seed = _signed(key.seed)
    for parameter, positions, output in zip(ids, spans, outputs, strict=True):
        if output.numel():
            where = (output.data_ptr(), positions.first, positions.length)
            fill(*where, seed, key.chain, parameter, key.step, steps)


def move_all(
    key: Key, ids: Sequence[int], spans: Sequence[Spans],
    columns: Sequence[Sequence[Tensor]], numbers: Coefficients,
) -> None:  # fmt: skip
    """Move parameters p in place; `columns` are p, gradients g, velocities v and scales s.

    v <- kept * v - rate * s * (g + decay * p) + std * noise, then p <- p + s * v. Scales may be
    empty, and velocities with them: then p <- p - rate * (g + decay * p) + std * noise.
    """
    seed, floats = _signed(key.seed), list(map(float, numbers))  # an int would be compiled anew
    addresses = [[one.data_ptr() for one in column] or [0] * len(ids) for column in columns]
    for parameter, positions, *own in zip(ids, spans, *addresses, strict=True):
        if positions.total:
            where = (positions.first, positions.length)
            move(*own, *where, seed, key.chain, parameter, key.step, *floats)


def _signed(seed: int) -> int:
    """The 64 bits of a seed as a signed integer."""
    return seed - 2**64 if seed >= 2**63 else seed

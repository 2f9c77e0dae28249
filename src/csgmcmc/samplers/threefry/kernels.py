"""Normal numbers from counters, and the updates that use them, as numba kernels for the CPU.

Numba brings its own compiler. A kernel is compiled on its first call ever, which takes a few
seconds, and is then kept on disk. All kernels are in this file, because numba looks for changes of
the file alone.

Tensors are passed by address, which costs a tenth of making arrays of them. The caller makes sure
that they are contiguous float32 tensors in memory. What the steps compute is explained in
`tensors`.
"""

# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportReturnType=false, reportIndexIssue=false, reportArgumentType=false
# (numba's types, as numba.uint32, are called as functions in a kernel)

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, njit, types, uint32
from numba.extending import intrinsic

from csgmcmc.samplers.threefry.tensors import (
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

CHUNK = 16 * GROUP
"""Numbers that are made at a time: they stay in the fastest cache until they are used."""

L0, L1, L2, L3, L4, L5, L6, L7, L8 = LOG
S0, S1, S2 = SINE
C0, C1, C2 = COSINE
HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)


def _kernel(function: Callable[..., Any]) -> Any:
    """Compile on the first call; keep the result on disk where there is a folder for it."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return njit(function, **options)


@intrinsic
def _floats(_: Any, address: Any) -> Any:
    """A pointer to float32 numbers from the address of the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(address), generate


@njit(inline="always")
def _rotate(word: Any, bits: Any) -> Any:
    return uint32((word << uint32(bits)) | (word >> uint32(32 - bits)))


@njit(inline="always")
def _round(a: Any, b: Any, c: Any, d: Any, first: Any, second: Any) -> Any:
    a, c = uint32(a + b), uint32(c + d)
    return a, uint32(_rotate(b, first) ^ a), c, uint32(_rotate(d, second) ^ c)


@njit(inline="always")
def _threefry(a: Any, b: Any, c: Any, d: Any, k0: Any, k1: Any, k2: Any, k3: Any) -> Any:
    k4 = uint32(k0 ^ k1 ^ k2 ^ k3 ^ uint32(PARITY))
    a, b, c, d = uint32(a + k0), uint32(b + k1), uint32(c + k2), uint32(d + k3)
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = uint32(a + k1), uint32(b + k2), uint32(c + k3), uint32(d + k4 + uint32(1))
    a, b, c, d = _round(a, b, c, d, 6, 20)
    a, d, c, b = _round(a, d, c, b, 17, 11)
    a, b, c, d = _round(a, b, c, d, 25, 10)
    a, d, c, b = _round(a, d, c, b, 18, 20)
    a, b, c, d = uint32(a + k2), uint32(b + k3), uint32(c + k4), uint32(d + k0 + uint32(2))
    a, b, c, d = _round(a, b, c, d, 10, 26)
    a, d, c, b = _round(a, d, c, b, 11, 21)
    a, b, c, d = _round(a, b, c, d, 13, 27)
    a, d, c, b = _round(a, d, c, b, 23, 5)
    a, b, c, d = uint32(a + k3), uint32(b + k4), uint32(c + k0), uint32(d + k1 + uint32(3))
    return _round(a, b, c, d, 6, 20)


@njit(inline="always")
def _two_normals(first: Any, second: Any) -> Any:
    bits = np.float32(np.float32(np.int32(first >> uint32(1))) + HALF).view(np.int32)
    exponent = np.float32((bits >> np.int32(23)) - np.int32(157))
    m = np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F000000)).view(np.float32)
    low = m < ROOT_HALF
    exponent = exponent - ONE if low else exponent
    m = m + m - ONE if low else m - ONE
    z = m * m
    p = (((((((L0 * m + L1) * m + L2) * m + L3) * m + L4) * m + L5) * m + L6) * m + L7) * m + L8
    radius = np.sqrt(-TWO * (m + (p * m * z - HALF * z) + LN2 * exponent))
    quarter = second >> uint32(30)
    from_middle = np.int32((second >> uint32(8)) & uint32(0x3FFFFF)) - np.int32(0x200000)
    angle = (np.float32(from_middle) + HALF) * QUARTER_TURN
    z = angle * angle
    sine = ((S0 * z + S1) * z + S2) * z * angle + angle
    cosine = ((C0 * z + C1) * z + C2) * z * z - HALF * z + ONE
    odd = (quarter & uint32(1)) != uint32(0)
    x, y = (sine, cosine) if odd else (cosine, sine)
    x = -x if (quarter == uint32(1)) | (quarter == uint32(2)) else x
    y = -y if quarter >= uint32(2) else y
    return radius * x, radius * y


@njit(nogil=True, error_model="numpy", inline="always")
def _chunk(
    numbers: Any, position: Any, most: Any, seed: Any, chain: Any, parameter: Any, step: Any
) -> Any:
    """The numbers from `position` on, at most `most` of them, as a part of `numbers`."""
    skipped = position % GROUP
    count = min(CHUNK - skipped, most)
    first = position // GROUP
    for group in range((skipped + count + GROUP - 1) // GROUP):
        block, at = (first + group) * LANES, group * GROUP
        low, high = uint32(block), uint32(block >> 32)
        for lane in range(LANES):
            a, b, c, d = _threefry(
                uint32(low + uint32(lane)),
                high,
                uint32(step),
                uint32(step >> 32),
                uint32(seed),
                uint32(seed >> 32),
                uint32(chain),
                uint32(parameter),
            )
            numbers[at + lane], numbers[at + LANES + lane] = _two_normals(a, b)
            numbers[at + 2 * LANES + lane], numbers[at + 3 * LANES + lane] = _two_normals(c, d)
    return numbers[skipped : skipped + count]


@_kernel
def fill(
    out: Any,
    runs: Any,
    length: Any,
    seed: Any,
    chain: Any,
    parameter: Any,
    first_step: Any,
    steps: Any,
) -> None:
    """Write the noise of a parameter in some steps to the address `out`.

    `runs` and `length` are those of `csgmcmc.samplers.positions.Runs`.
    """
    target = carray(_floats(out), steps * len(runs) * length)
    numbers, done = np.empty(CHUNK, np.float32), 0
    for step in range(first_step, first_step + steps):
        for run in range(len(runs)):
            own_chain, position, end = chain + runs[run, 0], runs[run, 1], done + length
            while done < end:
                noise = _chunk(numbers, position, end - done, seed, own_chain, parameter, step)
                target[done : done + len(noise)] = noise
                position += len(noise)
                done += len(noise)


@_kernel
def move(
    params: Any,
    gradients: Any,
    velocities: Any,
    runs: Any,
    length: Any,
    seed: Any,
    chain: Any,
    parameter: Any,
    step: Any,
    lr: Any,
    momentum: Any,
    noise_std: Any,
    weight_decay: Any,
) -> None:
    """One step of SGHMC, or of SGLD where the address `velocities` is 0, with their noise."""
    size = len(runs) * length
    all_p, all_g = carray(_floats(params), size), carray(_floats(gradients), size)
    all_v = carray(_floats(velocities), size)
    rate, kept = np.float32(lr), np.float32(momentum)
    std, decay = np.float32(noise_std), np.float32(weight_decay)
    numbers, done = np.zeros(CHUNK, np.float32), 0
    for run in range(len(runs)):
        own_chain, position, end = chain + runs[run, 0], runs[run, 1], done + length
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
            else:
                v = all_v[here]
                for i in range(len(noise)):
                    v[i] = kept * v[i] - rate * (g[i] + decay * p[i]) + std * noise[i]
                    p[i] += v[i]
            position += len(noise)
            done += len(noise)


@njit
def words(counter: Any, key: Any) -> Any:
    """Four random words, for tests against published ones."""
    return _threefry(counter[0], counter[1], counter[2], counter[3], key[0], key[1], key[2], key[3])

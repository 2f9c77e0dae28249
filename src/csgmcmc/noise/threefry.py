"""Normal numbers from counters, as operations on tensors of any device."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LANES = 16
"""Blocks that are computed together: as many as the widest vector units hold."""

GROUP = 4 * LANES
"""Consecutive positions that share `LANES` blocks."""

PARITY = 0x1BD11BDA
"""Threefry's constant for the fifth word of a key."""

ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
"""Bits by which a round rotates its two pairs; they repeat after eight rounds."""

ROUNDS = 13  # one more than passes BigCrush (Salmon et al., table 2); also benchmarks/dieharder.py


def _singles(*coefficients: float) -> tuple[np.float32, ...]:
    return tuple(map(np.float32, coefficients))


# Minimax polynomials, highest power first: log(1 + m) = m - m^2 / 2 + m^3 * LOG(m) for m between
# sqrt(1/2) - 1 and sqrt(2) - 1; sine and cosine for angles up to pi / 4, in powers of the square.
LOG = _singles(
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
SINE = _singles(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = _singles(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
ROOT_HALF, LN2 = _singles(math.sqrt(0.5), math.log(2))
QUARTER_TURN = np.float32(math.pi / 2 * 2.0**-22)  # a quarter of a turn has 2**22 angles


def normals(
    spans: NDArray[np.int64], *, seed: int, step: int, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """Normal numbers of spans of consecutive positions, a flat float32 tensor for each span.

    Args:
        spans: of shape (spans, 4): the number of the parameter, the chain, the first position and
            the number of positions of each span.
        seed: at least 0 and below 2**64.
        step: at least 0 and below 2**64.
        device: where to make them. All spans are made at once, as a device starts calls slowly.
    """
    starts, lengths = spans[:, 2], spans[:, 3]
    first_groups, counts = starts // GROUP, -(-(starts % GROUP + lengths) // GROUP)
    begins = np.cumsum(counts) - counts  # of the groups of each span among all groups
    # The group i of a span is the group first_groups + i of its parameter.
    columns = np.stack([spans[:, 0], spans[:, 1], first_groups - begins], axis=1)
    total = int(counts.sum())
    table = torch.from_numpy(columns).to(device)
    repeats = torch.from_numpy(counts).to(device)
    parameter, chain, group = table.repeat_interleave(repeats, 0, output_size=total).T[..., None]
    blocks = (group + torch.arange(total, device=device)[:, None]) * LANES
    blocks = blocks + torch.arange(LANES, device=device)
    lower, upper = blocks.to(torch.int32), (blocks >> 32).to(torch.int32)
    counter = [lower, upper, _word(step), _word(step >> 32)]
    key = [_word(seed), _word(seed >> 32), chain.to(torch.int32), parameter.to(torch.int32)]
    a, b, c, d = threefry(*([word.to(device) for word in part] for part in (counter, key)))
    numbers = torch.cat([*two_normals(a, b), *two_normals(c, d)], dim=1).flatten()
    firsts = begins * GROUP + starts % GROUP
    return [
        numbers[first : first + length]
        for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True)
    ]


def threefry(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Four words of Threefry-4x32-13 for each counter. All words are int32 tensors."""
    keys = [*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ PARITY]
    words = [word + k for word, k in zip(counter, key, strict=True)]
    for number in range(ROUNDS):
        partners = (1, 3) if number % 2 == 0 else (3, 1)
        for into, partner, bits in zip((0, 2), partners, ROTATIONS[number % 8], strict=True):
            words[into] = words[into] + words[partner]
            words[partner] = _rotate(words[partner], bits) ^ words[into]
        if number % 4 == 3:
            turn = number // 4 + 1
            words = [word + keys[(turn + i) % 5] for i, word in enumerate(words)]
            words[3] = words[3] + turn
    return words


def two_normals(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent normal numbers from two random words."""
    # u = (31 bits + 1/2) / 2**31, split into m * 2**exponent with m between 1/2 and 1. All bits
    # count where u is small, so that the normal numbers reach 6.6 standard deviations.
    bits = (_shift_right(first, 1).to(torch.float32) + 0.5).view(torch.int32)
    exponent = ((bits >> 23) - 157).to(torch.float32)
    m = ((bits & 0x7FFFFF) | 0x3F000000).view(torch.float32)
    low = m < float(ROOT_HALF)
    exponent = torch.where(low, exponent - 1, exponent)
    m = torch.where(low, m + m - 1, m - 1)
    z = m * m
    logarithm = m + (_polynomial(LOG, m) * m * z - z * 0.5) + exponent * float(LN2)
    radius = _sqrt(logarithm * -2)
    # v: two bits choose the quarter of the turn, the next 22 the angle from its middle.
    quarter = _shift_right(second, 30)
    from_middle = (_shift_right(second, 8) & 0x3FFFFF) - 0x200000
    angle = (from_middle.to(torch.float32) + 0.5) * float(QUARTER_TURN)
    z = angle * angle
    sine = _polynomial(SINE, z) * z * angle + angle
    cosine = _polynomial(COSINE, z) * z * z - z * 0.5 + 1
    odd = (quarter & 1) != 0
    x, y = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    x = torch.where((quarter == 1) | (quarter == 2), -x, x)
    y = torch.where(quarter >= 2, -y, y)
    return radius * x, radius * y


def _polynomial(coefficients: Sequence[np.float32], x: Tensor) -> Tensor:
    value = x * float(coefficients[0]) + float(coefficients[1])
    for coefficient in coefficients[2:]:
        value = value * x + float(coefficient)
    return value


def _sqrt(x: Tensor) -> Tensor:
    """The square root, correctly rounded, as the kernels' is.

    torch's own may be off in the last bit, but in double precision it is close enough.
    """
    if x.device.type == "mps":  # has no double precision: the last bit may differ there
        return x.sqrt()
    return x.double().sqrt().float()


def _word(value: int) -> Tensor:
    """The lower 32 bits of an integer."""
    return torch.tensor(value & 0xFFFFFFFF, device="cpu").to(torch.int32)


def _shift_right(word: Tensor, bits: int) -> Tensor:
    """Shift in zeros, where torch's shift of signed integers repeats the sign."""
    return (word >> bits) & ((1 << (32 - bits)) - 1)


def _rotate(word: Tensor, bits: int) -> Tensor:
    return (word << bits) | _shift_right(word, 32 - bits)

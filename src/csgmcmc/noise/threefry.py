"""Normal numbers from counters, as operations on tensors of any device.

A device starts each operation slowly. So all parameters are computed at once, the two pairs of
words of a round are one tensor, and all that does not depend on the step stays on the device.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.noise.backends import Key
from csgmcmc.noise.positions import Spans

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


class Layout(NamedTuple):
    """What does not depend on the step, for G groups of positions in some spans.

    All words are int32 tensors. A first dimension of 2 separates the words 0 and 2 from 1 and 3, or
    the two words of such a pair.
    """

    counter: Tensor  # of each group's first block, of shape (2, 2, G, 1)
    lanes: Tensor  # what the blocks of a group add to words 0 and 2, of shape (2, 1, LANES)
    step: Tensor  # which of a pair of words the step is added to, of shape (2, 1, 1)
    keys: Tensor  # added before every fourth round, for each span; (rounds, 2, 2, spans)
    span_of: Tensor  # the span of each group
    rotations: Tensor  # bits to the left, bits to the right, and mask; (8, 3, 2, 1, 1)
    ranges: list[list[tuple[int, int]]]  # of each parameter: which numbers of all are its spans


def normals(
    key: Key, ids: Sequence[int], spans: Sequence[Spans], device: torch.device
) -> list[Tensor]:
    """The noise of parameters with these numbers and positions, flat float32 tensors."""
    layout = _layout(key.seed, key.chain, tuple(ids), tuple(spans), device)
    numbers = numbers_of(layout, *_words(key.step))
    parts = [[numbers[begin:end] for begin, end in ranges] for ranges in layout.ranges]
    return [own[0] if len(own) == 1 else torch.cat(own) if own else numbers[:0] for own in parts]


def numbers_of(layout: Layout, lower_step: int, upper_step: int) -> Tensor:
    """The numbers of all groups of a layout, one after another."""
    even = torch.add(layout.counter[0], layout.step, alpha=lower_step) + layout.lanes
    odd = torch.add(layout.counter[1], layout.step, alpha=upper_step)
    keys = layout.keys.index_select(3, layout.span_of)[..., None]
    x, y = two_normals(*threefry(even, odd, keys, layout.rotations))
    return torch.stack([x[0], y[0], x[1], y[1]], dim=1).flatten()


@lru_cache(maxsize=16)  # a quarter of a byte for each weight
def _layout(
    seed: int, chain: int, ids: tuple[int, ...], spans: tuple[Spans, ...], device: torch.device
) -> Layout:
    keys, blocks, ranges, begin = [], [np.empty(0, np.int64)], [], 0
    for number, own in zip(ids, spans, strict=True):
        ranges.append([])
        for offset, position in own.first.tolist():
            groups = np.arange(position // GROUP, -(-(position + own.length) // GROUP))
            blocks.append(groups * LANES)
            keys.append([*_words(seed), _signed(chain + offset), _signed(number)])
            at = begin + position % GROUP
            ranges[-1].append((at, at + own.length))
            begin += len(groups) * GROUP
    block, count = np.concatenate(blocks), [len(own) for own in blocks[1:]]
    counter = np.stack([block, 0 * block, block >> 32, 0 * block]).reshape(2, 2, -1, 1)
    span_of = np.repeat(np.arange(len(count)), count)
    words = np.array(keys, np.int64).reshape(-1, 4).T.astype(np.int32)
    return Layout(
        _constant(counter, device),
        _constant([[range(LANES)], [[0] * LANES]], device),
        _constant([[[0]], [[1]]], device),
        _constant(key_schedule(words), device),
        _constant(span_of, device),
        _constant(rotations(), device),
        ranges,
    )


def _constant(values: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(np.asarray(values).astype(np.int32)).to(device)


def key_schedule(keys: NDArray[np.int32]) -> NDArray[np.int32]:
    """What is added to the words before every fourth round; `keys` are four words, or columns."""
    k0, k1, k2, k3 = keys
    words = [k0, k1, k2, k3, k0 ^ k1 ^ k2 ^ k3 ^ np.int32(PARITY)]
    turns, order = range(-(-ROUNDS // 4)), (0, 2, 1, 3)
    added = [[words[(turn + i) % 5] + turn * (i == 3) for i in order] for turn in turns]
    return np.array(added).astype(np.int32).reshape(len(turns), 2, 2, *k0.shape)


def rotations() -> NDArray[np.int64]:
    """Bits to the left, bits to the right, and the mask of the latter, of each round."""
    left = np.array(ROTATIONS)
    return np.stack([left, 32 - left, (1 << left) - 1], axis=1)[..., None, None]


def threefry(even: Tensor, odd: Tensor, keys: Tensor, rotations: Tensor) -> tuple[Tensor, Tensor]:
    """Words 0 and 2, and words 1 and 3, of Threefry-4x32-13, from the same words of a counter.

    `keys` is a `key_schedule`.
    """
    for number in range(ROUNDS):
        if number % 4 == 0:
            even, odd = even + keys[number // 4, 0], odd + keys[number // 4, 1]
        crossed = number % 2 == 1  # word 0 goes with word 3, and word 2 with word 1
        partner = odd.flip(0) if crossed else odd
        left, right, mask = rotations[number % 8]
        even = even + partner
        partner = ((partner << left) | ((partner >> right) & mask)) ^ even
        odd = partner.flip(0) if crossed else partner
    return even, odd


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


def _words(value: int) -> tuple[int, int]:
    """The lower and the upper 32 bits of a number, as signed integers."""
    return _signed(value), _signed(value >> 32)


def _signed(word: int) -> int:
    return (word + 2**31) % 2**32 - 2**31


def _shift_right(word: Tensor, bits: int) -> Tensor:
    """Shift in zeros, where torch's shift of signed integers repeats the sign."""
    return (word >> bits) & ((1 << (32 - bits)) - 1)

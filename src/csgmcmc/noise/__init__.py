r"""Normal numbers from counters: Threefry-4x32-13 and Box-Muller, for any device.

Threefry (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) turns a key and a
counter of four 32-bit words each into four random words. Two words u and v give two normal numbers:

    r = sqrt(-2 log u),    r * cos(2 pi v)  and  r * sin(2 pi v).

Where a number of a tensor comes from:

    key      seed (64 bits), chain (32 bits), number of the parameter (32 bits)
    counter  block (64 bits), step (64 bits), the lower half of each first
    position p of the parameter, counted along its rows: the number p // 16 % 4 of the four of
             block p // 64 * 16 + p % 16

So 64 consecutive positions share 16 blocks, and each of a block's four numbers is 16 positions
after the one before it: vector units compute 16 blocks at a time, and store them in a row.

Different (seed, chain, parameter, step, position) are different keys, counters or numbers of a
block: nothing is hashed, so that nothing collides.

Logarithm, sine and cosine are polynomials. All operations are on integers and IEEE single
precision, in a fixed order and without fused multiply-add, so that all devices give the same bits.
`threefry` works on any device by torch operations. `numba_kernels` for the CPU and `triton_kernels`
for CUDA and ROCm are many times as fast, and need numba and Triton; `backends` chooses. Tests hold
them all to the same bits.
"""

from csgmcmc.noise.source import Noise

__all__ = ["Noise"]

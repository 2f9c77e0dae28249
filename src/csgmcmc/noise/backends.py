"""Which kernels serve a device: numba's for the CPU, Triton's for CUDA and ROCm, or none.

Where there are none, `threefry` makes the same numbers by torch operations.
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch

from csgmcmc.errors import warn


class Key(NamedTuple):
    """What the noise of a step depends on, besides parameter and position."""

    seed: int  # 64 bits
    chain: int
    step: int


class Coefficients(NamedTuple):
    """The numbers of an update; see `csgmcmc.noise.numba_kernels.move_all`."""

    rate: float
    kept: float
    std: float
    decay: float


@cache
def load_kernels(device: torch.device) -> Any:
    """The module with the kernels for a device, imported on first use; None where there is none.

    It has the functions `fill_all` and `move_all`, which `csgmcmc.noise.numba_kernels` documents.
    Kernels for a GPU are tested first. If they cannot be compiled, or give other bits, a warning
    says so, and torch operations are used instead.
    """
    modules = {"cpu": "csgmcmc.noise.numba_kernels", "cuda": "csgmcmc.noise.triton_kernels"}
    if device.type not in modules:
        return None
    kernels: Any = None
    with suppress(ImportError, OSError):  # not installed, or without its library
        kernels = import_module(modules[device.type])
    if kernels is not None and device.type == "cuda":
        try:
            kernels.try_out(device)
        except Exception as error:  # a compiler and a driver may raise anything
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            warn(
                f"the Triton kernels for the noise do not work on {device} ({reason}): torch "
                "operations make the same numbers, in about two hundred kernels a step"
            )
            return None
    return kernels


def refuse_capture(device: torch.device, step: int) -> None:
    """Raise a `RuntimeError` inside a CUDA graph, whose replays would all have this noise."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "sampler.step() cannot be captured in a CUDA graph: each replay would repeat the noise "
            f"of step {step}. Capture forward and backward only, and call sampler.step() after "
            "each replay"
        )

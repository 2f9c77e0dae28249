"""The device that experiments run on: `python -m paper run NAME --device cuda`.

Networks are made on the CPU, so that they start alike everywhere, and moved. Data go to where the
network is; exact references are computed on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_stack = [torch.device("cpu")]


def device() -> torch.device:
    """Where to run: the CPU, or what `on` says."""
    return _stack[-1]


@contextmanager
def on(name: str | None) -> Iterator[None]:
    """Run the block on a device of this machine; None changes nothing."""
    _stack.append(device() if name is None else find(name))
    try:
        yield
    finally:
        _stack.pop()


def find(name: str) -> torch.device:
    """The device of a name; a `ValueError` if this machine has none."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device must be one of this machine, got {name!r}: {reason}") from error

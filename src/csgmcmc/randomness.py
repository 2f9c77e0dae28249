"""The random state of everything except the sampler's noise: data order, augmentation, dropout.

These use the global generators of torch, numpy and Python, and the generators of the data loader. A
checkpoint contains the state of them all, so that a resumed run continues exactly.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from csgmcmc.arguments import plain_value

Generator = torch.Generator | np.random.Generator


def generators_of(loader: object) -> list[torch.Generator]:
    """The generators that a `DataLoader` and its samplers shuffle with."""
    batches = getattr(loader, "batch_sampler", None)
    owners = [loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in owners]
    found += getattr(loader, "generators", ())  # one for each chain
    unique = {id(generator): generator for generator in found if generator is not None}
    return list(unique.values())


def random_state(generators: Sequence[Generator], *, with_global: bool = True) -> dict[str, Any]:
    """The state of the global generators and of `generators`, as tensors and plain values."""
    states = [
        generator.get_state()
        if isinstance(generator, torch.Generator)
        else plain_value(generator.bit_generator.state)  # `weights_only=True` cannot load arrays
        for generator in generators
    ]
    own = {"generators": states}
    if not with_global:
        return own
    _, key, *rest = np.random.get_state()  # noqa: NPY002  (users' transforms draw from it)
    kind, module, devices = _accelerator()
    return {
        "torch": torch.get_rng_state(),
        kind: [module.get_rng_state(*device) for device in devices],
        "python": random.getstate(),
        "numpy": [torch.from_numpy(np.asarray(key, dtype=np.int64)), *rest],
        **own,
    }


def restore_random_state(state: dict[str, Any], generators: Sequence[Generator]) -> None:
    """Set all generators to the states in `state`."""
    if "torch" in state:
        torch.set_rng_state(state["torch"].cpu())  # `map_location` may have moved it
        kind, module, devices = _accelerator()
        for device, saved in zip(devices, state.get(kind, ()), strict=False):
            module.set_rng_state(saved.cpu(), *device)  # another machine may have fewer of them
        random.setstate(state["python"])
        key, *rest = state["numpy"]
        np.random.set_state(("MT19937", key.cpu().numpy().astype(np.uint32), *rest))  # noqa: NPY002
    for generator, saved in zip(generators, state["generators"], strict=True):
        if isinstance(generator, torch.Generator):
            generator.set_state(saved.cpu())
        else:
            generator.bit_generator.state = saved


@contextmanager
def preserved_random_state(generators: Sequence[Generator] = ()) -> Iterator[None]:
    """Restore the states of the global generators and of `generators` after the block."""
    before = random_state(generators)
    try:
        yield
    finally:
        restore_random_state(before, generators)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python; restore their states afterwards."""
    with preserved_random_state():
        _seed_all(seed)
        yield


def draw_others(number: int) -> None:
    """Make the global generators, which are copies of another process's, draw other numbers."""
    _seed_all(int(torch.randint(2**31, ())) + number)


def _seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (users' code draws from it)
    random.seed(seed)


def _accelerator() -> tuple[str, Any, list[tuple[int, ...]]]:
    """The type of accelerator in use, its module in torch, and the arguments for each device."""
    if not torch.accelerator.is_available():
        return "devices", None, []
    kind = torch.accelerator.current_accelerator().type  # pyright: ignore[reportOptionalMemberAccess]
    module: Any = torch.get_device_module(kind)
    if kind == "mps":  # of which there is one, without a number
        return kind, module, [()]
    used = module.is_initialized()  # asking for a state would initialise it
    return kind, module, [(index,) for index in range(module.device_count())] if used else []

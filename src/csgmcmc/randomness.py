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

from csgmcmc.arguments import check_items, shown

Generator = torch.Generator | np.random.Generator


def check_generators(generators: Sequence[object]) -> None:
    """Raise a `ValueError` for anything that is not a generator whose state can be saved."""
    words = "torch.Generator or numpy.random.Generator objects"
    for generator in check_items("generators", generators, f"a list of {words}"):
        if not isinstance(generator, (torch.Generator, np.random.Generator)):
            raise ValueError(f"generators must be {words}, got {shown(generator)}")


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
    own = {"generators": [_state_of(generator) for generator in generators]}
    if not with_global:
        return own
    _, key, *rest = np.random.get_state()  # noqa: NPY002  (users' transforms draw from it)
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "python": random.getstate(),
        "numpy": [torch.from_numpy(np.asarray(key, dtype=np.int64)), *rest],
        **own,
    }


def restore_random_state(state: dict[str, Any], generators: Sequence[Generator]) -> None:
    """Set all generators of `state` to where they were when it was taken."""
    if "torch" in state:
        torch.set_rng_state(state["torch"])
        for device, saved in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(saved, device)  # another machine may have fewer of them
        random.setstate(state["python"])
        key, *rest = state["numpy"]
        np.random.set_state(("MT19937", key.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    for generator, saved in zip(generators, state["generators"], strict=True):
        if isinstance(generator, torch.Generator):
            generator.set_state(saved)
        else:
            generator.bit_generator.state = _with_arrays(saved)


@contextmanager
def preserved_random_state(generators: Sequence[Generator] = ()) -> Iterator[None]:
    """Run the block, then set the global generators and `generators` back to their states."""
    before = random_state(generators)
    try:
        yield
    finally:
        restore_random_state(before, generators)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python; restore their states afterwards."""
    with preserved_random_state():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002  (users' code draws from it)
        random.seed(seed)
        yield


def reseed(generator: Generator, seed: int) -> None:
    """Let a generator begin anew with a seed."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    else:
        generator.bit_generator.state = type(generator.bit_generator)(seed).state


def draw_others(number: int) -> None:
    """Let the global generators, which are copies of another process's, draw other numbers."""
    seed = int(torch.randint(2**31, ())) + number
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _state_of(generator: Generator) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return _without_arrays(generator.bit_generator.state)


def _without_arrays(state: Any) -> Any:
    """A state of numpy with its arrays as lists, which `weights_only=True` can load."""
    if isinstance(state, dict):
        return {name: _without_arrays(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"array": state.dtype.str, "values": state.tolist()}
    return state


def _with_arrays(state: Any) -> Any:
    if isinstance(state, dict) and "array" in state:
        return np.array(state["values"], dtype=state["array"])
    if isinstance(state, dict):
        return {name: _with_arrays(value) for name, value in state.items()}
    return state

"""States that are loaded: whatever is not one of ours is refused in one sentence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_kind, shown
from csgmcmc.errors import CsgmcmcError, SettingsMismatchError
from csgmcmc.shards import local_shard
from csgmcmc.stepper.fingerprint import check_same
from csgmcmc.stepper.inputs import all_tensors


@contextmanager
def refuse_other_states() -> Iterator[None]:
    """Turn all that a state of another making may raise into a `ValueError` of one sentence.

    There is no list of what can be wrong with it: values of other types are found deep inside of
    torch, numpy and Python.
    """
    try:
        yield
    except (CsgmcmcError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if isinstance(error, KeyError):
            why = f"it has no {error}"
        else:
            why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(f"state is not what state_dict() has returned: {why}") from error


def check_position(state: Any, settings: dict[str, Any], steps: int) -> int:
    """Steps that had been taken in `state`, which has the same `settings`, of all `steps`."""
    check_kind("state", state, Mapping, "a dictionary")
    if "settings" not in state:
        raise SettingsMismatchError(
            "the checkpoint has no settings: it was made by csgmcmc 0.1 or by another program"
        )
    check_same(check_kind("settings", state["settings"], dict, "a dictionary"), settings)
    return check_count("taken", state["taken"], at_least=0, below=steps + 1)


def copy_weights(model: nn.Module, saved: Any) -> None:
    """Copy all tensors of a state into `model`; nothing is touched if one does not fit."""
    own = all_tensors(model)
    for name, value in own.items():
        other, shape = saved[name], local_shard(value).shape
        if not isinstance(other, Tensor) or other.shape != shape:  # another would be broadcast
            raise ValueError(
                f"{name} of the model must be a tensor of shape {tuple(shape)}, got {shown(other)}"
            )
    with torch.no_grad():
        for name, value in own.items():
            local_shard(value).copy_(saved[name])

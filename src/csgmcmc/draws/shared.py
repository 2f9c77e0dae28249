"""With `only=`: the tensors that all draws of a store have in common, in one file."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from csgmcmc.draws.tensors import checksum, for_disk, read_tensors, write_tensors
from csgmcmc.errors import StoreError

Only = Collection[str] | Callable[[str], bool]
"""Names of the tensors that each draw stores, or a predicate of a name."""


class SharedTensors:
    """The file, read and checked once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checksum: str | None = None
        """Of what was read or written last; None before."""
        self._tensors: dict[str, Tensor] = {}

    def tensors(self, *, again: bool = False) -> dict[str, Tensor]:
        """The tensors by name, empty without a file; read again only if asked for."""
        if again:
            self._tensors, self.checksum = {}, None
        if not self._tensors and self.path.exists():
            self._tensors = read_tensors(self.path)
            self.checksum = checksum(self._tensors)
        return self._tensors

    def damage(self, wanted: set[str]) -> str | None:
        """Read the file again: what is wrong with it, if draws need one of such checksums."""
        if not wanted:
            return None
        try:
            self.tensors(again=True)
        except StoreError as error:
            return str(error)
        damaged = wanted != {self.checksum}
        return f"{self.path}: checksum does not match, damaged" if damaged else None

    def split(
        self, tensors: dict[str, Tensor], only: Only, is_needed: Callable[[], bool]
    ) -> dict[str, Tensor]:
        """The tensors that a draw stores; the others are written here, or must equal these.

        `is_needed`: whether there are draws that need the file, so that no other may replace it.
        """
        wanted = only if callable(only) else set(only).__contains__
        kept = {name: tensor for name, tensor in tensors.items() if wanted(name)}
        if not kept:
            raise ValueError(f"only={only!r} keeps nothing of {', '.join(tensors)}")
        rest = {name: tensor for name, tensor in tensors.items() if name not in kept}
        if rest and not self.tensors():
            if is_needed():
                raise StoreError(f"{self.path} is missing: the draws in the store need it")
            # If another chain has written it meanwhile, that one stays and is compared with.
            write_tensors(self.path, for_disk(rest, dtype=None), overwrite=False)
        shared = self.tensors()
        for name, tensor in rest.items():
            if name not in shared or not torch.equal(shared[name], tensor.cpu()):
                raise StoreError(
                    f"{name} is not stored by only= and differs from the base of "
                    f"{self.path.parent}: store it in each draw, or use another store"
                )
        return kept


def keep_trainable(model: nn.Module) -> Callable[[str], bool]:
    """For `only=`: what training changes, that is trainable parameters and all buffers."""
    named = model.named_parameters(remove_duplicate=False)
    # The draws of a stack have the names of the single model.
    frozen = {name.removeprefix("inner.") for name, param in named if not param.requires_grad}
    return partial(_is_absent, frozen)


def _is_absent(names: set[str], name: str) -> bool:
    return name not in names

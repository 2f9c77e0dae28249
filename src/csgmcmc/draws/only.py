"""With `only=`: the tensors that all draws of a store have in common, in one file."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.draws.tensors import CheckedFiles, checksum, part_of, read_tensors, write_tensors
from csgmcmc.errors import StoreError
from csgmcmc.shards import do_first, do_together, gather_to_first, is_first, is_shard, local_shard

Only = Collection[str] | Callable[[str], bool]
"""Names of the tensors that each draw stores, or a predicate of a name."""


class CommonTensors:
    """The file, read and checked once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = path.with_name(f"{path.name}.index.json")  # in a sharded run of 0.2.0
        self.checksum: str | None = None  # of what was read last
        self._tensors: dict[str, Tensor] = {}

    def exists(self) -> bool:
        """Whether the file, or that of 0.2.0, is there."""
        return self.path.exists() or self._index.exists()

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, empty without a file."""
        if not self._tensors and self.path.exists():
            self._tensors = read_tensors(self.path)
            self.checksum = checksum(self._tensors)
        elif not self._tensors and self._index.exists():
            self._tensors, self.checksum = CheckedFiles().read_index(self._index)
        return self._tensors

    def split(
        self, tensors: dict[str, Tensor], only: Only, is_needed: Callable[[], bool], mesh: Any
    ) -> dict[str, Tensor]:
        """The tensors that a draw stores; the others are written here, or must equal these.

        All processes of the mesh call this. `is_needed`: whether there are draws that need it.
        """
        wanted = only if callable(only) else set(only).__contains__
        kept = {name: tensor for name, tensor in tensors.items() if wanted(name)}
        if not kept:
            raise ValueError(f"only={only!r} keeps nothing of {', '.join(tensors)}")
        rest = {name: tensor for name, tensor in tensors.items() if name not in kept}
        if do_first(mesh, lambda: bool(rest) and self._is_to_write(is_needed)):
            # If another chain has written it meanwhile, that one stays and is compared with.
            write = partial(write_tensors, self.path, rest, overwrite=False)
            gather_to_first(mesh, rest, lambda contents: write(contents=contents))
        do_together(mesh, lambda: self._compare(rest, mesh))
        return kept

    def _is_to_write(self, is_needed: Callable[[], bool]) -> bool:
        if self.tensors():
            return False
        if is_needed():
            raise StoreError(f"{self.path} is missing: the draws in the store need it")
        return True

    def _compare(self, rest: dict[str, Tensor], mesh: Any) -> None:
        """Raise a `StoreError` if a tensor, or the part of it held here, differs from the file."""
        # Of tensors that are not sharded, those of the first process are stored.
        held = {name: each for name, each in rest.items() if is_first(mesh) or is_shard(each)}
        stored = self.tensors() if held else {}
        for name, tensor in held.items():
            own = local_shard(tensor).cpu()
            if name not in stored or not torch.equal(part_of(stored, name, tensor), own):
                raise StoreError(
                    f"{name} is not stored by only= and differs from the base of "
                    f"{self.path.parent}: store it in each draw, or use another store"
                )


def keep_trainable(model: nn.Module) -> Callable[[str], bool]:
    """For `only=`: what training changes, that is trainable parameters and all buffers."""
    named = model.named_parameters(remove_duplicate=False)
    # The draws of a stack have the names of the single model.
    frozen = {name.removeprefix("inner.") for name, param in named if not param.requires_grad}
    return partial(_is_absent, frozen)  # which can be pickled


def _is_absent(names: set[str], name: str) -> bool:
    return name not in names

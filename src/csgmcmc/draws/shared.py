"""With `only=`: the tensors that all draws of a store have in common, in one file."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.draws.sharded import (
    ShardedTensors,
    Written,
    index_name,
    part_of,
    parts_of,
    write_shards,
)
from csgmcmc.draws.tensors import CheckedFiles, checksum, read_tensors, write_tensors
from csgmcmc.errors import StoreError
from csgmcmc.shards import do_together, local_shard, number_in

Tensors = Mapping[str, Tensor]

Only = Collection[str] | Callable[[str], bool]
"""Names of the tensors that each draw stores, or a predicate of a name."""


class SharedTensors:
    """The file, or the shards and their index, read and checked once."""

    def __init__(self, path: Path, files: CheckedFiles) -> None:
        self.path = path
        self.checksum: str | None = None
        """Of what was read or written last; None before."""
        self._index = path.with_name(index_name(path.stem))
        self._files = files
        self._tensors: Mapping[str, Tensor] = {}

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.path.exists() or self._index.exists()

    def tensors(self, *, again: bool = False) -> Mapping[str, Tensor]:
        """The tensors by name, empty without a file; read again only if asked for."""
        if again:
            self._tensors, self.checksum = {}, None
        if not self._tensors and self.path.exists():
            self._tensors = read_tensors(self.path)
            self.checksum = checksum(self._tensors)
        elif not self._tensors and self._index.exists():
            found = ShardedTensors(self._index, None, self._files)
            self._tensors, self.checksum = found, found.checksum
        return self._tensors

    def damage(self, wanted: set[str]) -> str | None:
        """Read all again: what is wrong with it, if draws need one of such checksums."""
        if not wanted:
            return None
        try:
            found = self.tensors(again=True)
            if isinstance(found, ShardedTensors):
                self._files.forget()
                found.check()
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
        kept, rest = _split(tensors, only)
        if self._is_to_write(rest, is_needed):
            # If another chain has written it meanwhile, that one stays and is compared with.
            write_tensors(self.path, rest, overwrite=False)
        self._compare(rest, rest)
        return kept

    def split_shards(
        self,
        tensors: dict[str, Tensor],
        only: Only,
        is_needed: Callable[[], bool],
        mesh: Any,
        chain_id: int,
    ) -> dict[str, Tensor]:
        """`split` of a sharded model, by all processes of its mesh."""
        kept, rest = _split(tensors, only)
        if do_together(mesh, lambda: self._is_to_write(rest, is_needed))[0]:
            # Each chain has names of its own: the first index that is written decides which count.
            stem = f"{self.path.stem}-{chain_id:04d}"
            written = write_shards(self.path.parent, stem, rest, mesh, None)
            commit = partial(self._commit, stem, written)
            do_together(mesh, commit if number_in(mesh) == 0 else bool)
        do_together(mesh, lambda: self._compare(rest, parts_of(rest, mesh)))
        return kept

    def _commit(self, stem: str, written: Written) -> None:
        """Write the index, unless another chain has; then that one stays and is compared with."""
        written.write_index(self._index, overwrite=False)
        needed = written.sizes if self._index.read_text() == written.text else ()
        for path in self._index.parent.glob(f"{stem}-*-of-*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _is_to_write(self, rest: Tensors, is_needed: Callable[[], bool]) -> bool:
        if not rest or self.tensors():
            return False
        if is_needed():
            raise StoreError(f"{self.path} is missing: the draws in the store need it")
        return True

    def _compare(self, rest: Tensors, names: Iterable[str]) -> None:
        shared = self.tensors()
        for name in names:
            held = local_shard(rest[name]).cpu()
            if name not in shared or not torch.equal(part_of(shared, name, rest[name]), held):
                raise StoreError(
                    f"{name} is not stored by only= and differs from the base of "
                    f"{self.path.parent}: store it in each draw, or use another store"
                )


def _split(tensors: Tensors, only: Only) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What a draw stores, and the rest."""
    wanted = only if callable(only) else set(only).__contains__
    kept = {name: tensor for name, tensor in tensors.items() if wanted(name)}
    if not kept:
        raise ValueError(f"only={only!r} keeps nothing of {', '.join(tensors)}")
    return kept, {name: tensor for name, tensor in tensors.items() if name not in kept}


def keep_trainable(model: nn.Module) -> Callable[[str], bool]:
    """For `only=`: what training changes, that is trainable parameters and all buffers."""
    named = model.named_parameters(remove_duplicate=False)
    # The draws of a stack have the names of the single model.
    frozen = {name.removeprefix("inner.") for name, param in named if not param.requires_grad}
    return partial(_is_absent, frozen)


def _is_absent(names: set[str], name: str) -> bool:
    return name not in names

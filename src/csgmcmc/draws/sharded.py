"""Tensors that many processes hold, each a part, in a file for each process and an index.

    NAME-00001-of-00002.safetensors   the parts that a process holds
    NAME.safetensors.index.json       which parts are where

These are the names of sharded models on the Hugging Face Hub. In the index, `weight_map` names the
file in which each tensor begins; `tensors` says dtype, shape and all parts of each, with their
offsets; `files` has size and checksum of each file. The files repeat the offsets in their metadata,
in the form of `torch.distributed.checkpoint`, whose readers of safetensors understand them.
"""

import json
import zlib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from csgmcmc.draws.tensors import DTYPES, NAMES, CheckedFiles, stored_dtype, write_tensors
from csgmcmc.errors import StoreError
from csgmcmc.files import atomic_write, file_size, reason_of
from csgmcmc.shards import (
    Box,
    box_of,
    do_together,
    gather_over,
    is_shard,
    local_shard,
    number_in,
    whole_box,
)


def index_name(name: str) -> str:
    """Name of the index."""
    return f"{name}.safetensors.index.json"


def shard_name(name: str, number: int, count: int) -> str:
    """Name of one of the files, which are counted from 1."""
    return f"{name}-{number:05d}-of-{count:05d}.safetensors"


class Written(NamedTuple):
    """What the processes of a mesh have written, the same in all of them.

    Attributes:
        sizes: bytes of each file.
        text: the text of the index, which is not on the disk yet.
    """

    sizes: dict[str, int]
    text: str

    @property
    def checksum(self) -> str:
        """CRC-32 of the index, which has the checksums of the files."""
        return _crc(self.text.encode())

    def write_index(self, file: Path, *, overwrite: bool = True) -> None:
        """Write the index; the first process does so, if it sees what the others have written."""
        for name, size in self.sizes.items():
            if file_size(file.parent / name) != size:
                raise StoreError(
                    f"{file.parent / name}, which another process has written, is not there for "
                    "the first one: all processes must see the same folder"
                )
        write = lambda aside: aside.write_bytes(self.text.encode())  # noqa: E731
        atomic_write(file, write, overwrite=overwrite)


def write_shards(
    folder: Path, name: str, tensors: Mapping[str, Tensor], mesh: Any, dtype: torch.dtype | None
) -> Written:
    """Write tensors whose parts the processes of `mesh` hold; all of them call this.

    Each process writes its own part and sends only names and sizes. What several of them hold, as
    they do where a model is sharded and replicated, one of them writes. Tensors that are no
    DTensors are those of the first process.
    """
    own = number_in(mesh)
    boxes = {name: box for name, box in parts_of(tensors, mesh).items() if box.size}
    parts = _divided(gather_over(mesh, (boxes, _ties(tensors, boxes))))
    writers = [number for number, part in enumerate(parts) if part]
    names = {n: shard_name(name, i, len(writers)) for i, n in enumerate(writers, start=1)}

    def write() -> dict[str, Any]:
        if own not in names:
            return {}
        kept = {name: local_shard(tensors[name]) for name in parts[own]}
        offsets = {name: {"saved_offsets": box.offsets} for name, box in parts[own].items()}
        file = folder / names[own]
        metadata = {"DCP_SHARDING_INFO": json.dumps(offsets)}
        checksum = write_tensors(file, kept, dtype, metadata=metadata)
        return {"bytes": file.stat().st_size, "checksum": checksum}

    found = do_together(mesh, write)
    files = {names[number]: found[number] for number in writers}
    described = {
        key: {
            "dtype": NAMES[stored_dtype(key, tensor, dtype)],
            "shape": tuple(tensor.shape),
            "parts": [(names[n], *parts[n][key]) for n in writers if key in parts[n]],
        }
        for key, tensor in tensors.items()
    }
    index = {
        "metadata": {"total_size": sum(file["bytes"] for file in files.values())},
        "weight_map": {
            key: entry["parts"][0][0] for key, entry in described.items() if entry["parts"]
        },
        "files": files,
        "tensors": described,
    }
    sizes = {name: file["bytes"] for name, file in files.items()}
    return Written(sizes, json.dumps(index, indent=1))


def parts_of(tensors: Mapping[str, Tensor], mesh: Any) -> dict[str, Box]:
    """Which part of each tensor this process may write, or compare with what was written."""
    is_first = number_in(mesh) == 0
    return {name: box_of(each) for name, each in tensors.items() if is_first or is_shard(each)}


def _ties(tensors: Mapping[str, Tensor], boxes: Mapping[str, Box]) -> dict[str, str]:
    """Of names of the same numbers, as tied weights have, all but the first, and that one."""
    firsts: dict[tuple[int, Box], str] = {}
    keys = {name: (local_shard(tensors[name]).data_ptr(), box) for name, box in boxes.items()}
    return {
        name: first for name, key in keys.items() if (first := firsts.setdefault(key, name)) != name
    }


def _divided(held: list[tuple[dict[str, Box], dict[str, str]]]) -> list[dict[str, Box]]:
    """What each process writes: of those that hold a part, the one that has least to write."""
    holders: dict[tuple[str, Box], list[int]] = {}
    for number, (boxes, ties) in enumerate(held):
        for name in boxes.keys() - ties.keys():
            holders.setdefault((name, boxes[name]), []).append(number)
    written: list[dict[str, Box]] = [{} for _ in held]
    loads = [0] * len(held)
    for (name, box), numbers in sorted(holders.items()):
        chosen = min(numbers, key=loads.__getitem__)
        loads[chosen] += box.size
        tied = [other for other, first in held[chosen][1].items() if first == name]
        written[chosen] |= dict.fromkeys([name, *tied], box)
    return written


class ShardedTensors(Mapping[str, Tensor]):
    """The tensors of an index; each is put together from its parts when it is asked for.

    Args:
        file: the index.
        checksum: CRC-32 of the index; None takes it as it is.
        files: reads the files, and compares their checksums.
    """

    def __init__(self, file: Path, checksum: str | None, files: CheckedFiles) -> None:
        self._file, self._files = file, files
        self._opened: dict[str, dict[str, Tensor]] = {}
        try:
            content = file.read_bytes()
            self.checksum = _crc(content)
            if self.checksum != (checksum or self.checksum):
                raise StoreError(f"{file}: checksum does not match, damaged")
            index = json.loads(content)
            self._tensors: dict[str, dict[str, Any]] = index["tensors"]
            self._checksums = {name: each["checksum"] for name, each in index["files"].items()}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            raise StoreError(f"{file}: cannot be read ({reason})") from error

    def __getitem__(self, name: str) -> Tensor:
        return self.part(name, whole_box(self._tensors[name]["shape"]))

    def __contains__(self, name: object) -> bool:
        return name in self._tensors  # without putting it together, as Mapping would

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a whole tensor."""
        return tuple(self._tensors[name]["shape"])

    def part(self, name: str, wanted: Box) -> Tensor:
        """A part of a tensor, read from the files that hold some of it."""
        entry = self._tensors[name]
        part = torch.empty(wanted.shape, dtype=DTYPES[entry["dtype"]])
        missing = wanted.size
        for file, *place in entry["parts"]:
            held = Box(*map(tuple, place))
            common = held.common_with(wanted)
            if not common.size:
                continue
            values = self._read(file)[name]
            if held == wanted:
                return values
            part[common.seen_from(wanted)] = values[common.seen_from(held)]
            missing -= common.size
        if missing:
            raise StoreError(f"{self._file}: {name} is not complete, {missing} numbers are missing")
        return part

    def check(self) -> None:
        """Read every file; `StoreError` if one is damaged."""
        for file in self._checksums:
            self._read(file)

    def _read(self, file: str) -> dict[str, Tensor]:
        if file not in self._opened:
            path = self._file.parent / file
            self._opened[file] = self._files.read(path, self._checksums[file])
        return self._opened[file]


def joined(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors of both; those that are put together when they are asked for stay apart."""
    if isinstance(tensors, dict) and isinstance(base, dict):
        return {**base, **tensors}
    return ChainMap(tensors, base)  # pyright: ignore[reportArgumentType]


def part_of(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The part of a stored tensor that this process holds of `like`, which must have its shape."""
    if isinstance(tensors, ChainMap):
        tensors = next((each for each in tensors.maps if name in each), {})
    lazy = isinstance(tensors, ShardedTensors)
    stored = None
    if name in tensors:
        stored = tensors.shape(name) if lazy else tuple(tensors[name].shape)
    if stored != tuple(like.shape):
        found = "is not there" if stored is None else f"has the shape {stored}"
        raise ValueError(f"{name} {found}, and should have the shape {tuple(like.shape)}")
    box = box_of(like)
    return tensors.part(name, box) if lazy else tensors[name][box.slices]


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"

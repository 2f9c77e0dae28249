"""Tensors in one safetensors file, written atomically: a length, a JSON header and the bytes.

The package of that name is not used: it cannot write one tensor at a time, and `safe_open` takes
three times as long to read a draw, which is longer than a small model's forward pass.
"""

import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csgmcmc.errors import StoreError
from csgmcmc.files import atomic_write, identity_of, reason_of
from csgmcmc.shards import (
    Named,
    do_first,
    do_together,
    gather_to_first,
    is_first,
    is_shard,
    local_shard,
    local_slices,
)

DTYPES = {  # by their names in the format
    "BOOL": torch.bool,
    **{f"I{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"F{bits}": getattr(torch, f"float{bits}") for bits in (16, 32, 64)},
    "BF16": torch.bfloat16,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
if hasattr(torch, "float8_e8m0fnu"):  # since torch 2.7
    DTYPES["F8_E8M0"] = torch.float8_e8m0fnu

NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_READ = 64 * 2**10
"""Files up to this size are read, which is faster than to map them.

A process has 65,530 mappings by default on Linux: those of larger files are enough for 4 GiB.
"""


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    *,
    contents: Named,
    overwrite: bool = True,
) -> str:
    """Write `tensors` to a temporary file, flush it, then rename it to `path`; their checksum.

    They may be DTensors: `contents`, from `gather_to_first`, gives the whole ones in the order of
    their names. These are copied to the CPU, converted to `dtype` and written one at a time.
    """
    stored = {name: _stored_dtype(name, tensor, dtype) for name, tensor in tensors.items()}
    aliases = _aliases(tensors)
    header: dict[str, Any] = {"__metadata__": {"aliases": json.dumps(aliases)}} if aliases else {}
    end = 0
    # As safetensors orders them, so that each begins at a multiple of the size of its numbers.
    for name in sorted(tensors.keys() - aliases.keys(), key=lambda n: (-stored[n].itemsize, n)):
        begin, end = end, end + tensors[name].numel() * stored[name].itemsize
        place = {"shape": list(tensors[name].shape), "data_offsets": [begin, end]}
        header[name] = {"dtype": NAMES[stored[name]], **place}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digests: list[str] = []

    def write(temporary: Path) -> None:
        def put(name: str, data: Any) -> None:
            if name in header:
                file.seek(8 + len(text) + header[name]["data_offsets"][0])
                file.write(data)

        with temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            digests.append(checksum(contents, dtype, put))

    atomic_write(path, write, overwrite=overwrite)
    return digests[0]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, memory-mapped if it is large: pages are read when they are used.

    Raises `StoreError` if it cannot be read.
    """
    try:
        content = _content(path)
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(bytes(content[8:start]))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor_at(content, start, entry) for name, entry in header.items()}
        for alias, name in json.loads(metadata.get("aliases", "{}")).items():
            tensors[alias] = tensors[name]
    except Exception as error:
        raise StoreError(f"{path}: cannot be read ({reason_of(error)})") from error
    return tensors


class CheckedFiles:
    """Reads files whose checksums are compared once, and again if they have changed since."""

    def __init__(self) -> None:
        self._trusted: dict[Path, tuple[int, ...] | None] = {}

    def read(self, path: Path, expected: str) -> dict[str, Tensor]:
        """The tensors of a file; `StoreError` if it is missing or damaged."""
        found = identity_of(path)
        tensors = read_tensors(path)
        if found is None or found != self._trusted.get(path):
            if checksum(tensors) != expected:
                raise StoreError(f"{path}: checksum does not match, damaged")
            self._trusted[path] = found
        return tensors

    def read_index(self, path: Path, expected: str | None = None) -> tuple[dict[str, Tensor], str]:
        """The tensors of a draw that csgmcmc 0.2.0 has sharded, and the checksum of its index.

        The index, NAME.safetensors.index.json, says which part of which tensor is in which file.
        """
        try:
            content = path.read_bytes()
            index, digest = json.loads(content), f"{zlib.crc32(content):08x}"
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: missing or damaged ({error})") from error
        if digest != (expected or digest):
            raise StoreError(f"{path}: checksum does not match, damaged")
        files = {
            name: self.read(path.with_name(name), entry["checksum"])
            for name, entry in index["files"].items()
        }
        whole: dict[str, Tensor] = {}
        for name, entry in index["tensors"].items():
            whole[name] = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
            for file, offsets, sizes in entry["parts"]:
                pairs = zip(offsets, sizes, strict=True)
                place = tuple(slice(offset, offset + size) for offset, size in pairs)
                whole[name][place] = files[file][name]
        return whole, digest


def _content(path: Path) -> memoryview:
    """The bytes of a file: changing them never changes the file, and no descriptor stays open."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= MAX_READ:
            return memoryview(bytearray(file.read()))
    # Python's mmap keeps a descriptor for each mapping: 1024 draws would be too many.
    return torch.from_file(str(path), False, size, dtype=torch.uint8, device="cpu").numpy().data


def _tensor_at(content: memoryview, start: int, entry: dict[str, Any]) -> Tensor:
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    count, offset = math.prod(shape), start + entry["data_offsets"][0]
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=offset).view(shape)


def part_of(tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The part of a stored tensor that this process holds of `like`, which must have its shape."""
    if name not in tensors or tensors[name].shape != like.shape:
        raise ValueError(f"{name} of shape {tuple(like.shape)} is missing, or has another shape")
    return tensors[name][local_slices(like)]


def _stored_dtype(name: str, tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a tensor in a file, or a `ValueError` if it cannot be in one."""
    if tensor.layout != torch.strided or tensor.dtype not in NAMES:
        raise ValueError(
            f"{name} is {tensor.dtype}, {tensor.layout}, which a DrawStore cannot hold: convert "
            "it, or register it with persistent=False"
        )
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def for_disk(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """On the CPU, contiguous, with floating point numbers converted to `dtype` if given."""
    found, tensor = _stored_dtype(name, tensor, dtype), tensor.cpu()
    ready = tensor.to(found).contiguous()
    # As doubles: torch has no `isfinite` for numbers of 8 bits.
    if found != tensor.dtype and ready.double().isfinite().ne(tensor.double().isfinite()).any():
        raise ValueError(f"{name} holds numbers too large for dtype={dtype}")
    return ready


def checksum(
    tensors: Mapping[str, Tensor] | Named,
    dtype: torch.dtype | None = None,
    put: Callable[[str, Any], object] = lambda *_: None,
) -> str:
    """CRC-32 of names, dtypes, shapes and values, as they are in a file; `put` gets the bytes."""
    total = 0
    for name, tensor in sorted(tensors.items()) if isinstance(tensors, Mapping) else tensors:
        ready = for_disk(name, tensor, dtype)
        del tensor  # before the next one is gathered
        total = zlib.crc32(f"{name} {ready.dtype} {tuple(ready.shape)};".encode(), total)
        data = ready.reshape(-1).view(torch.uint8).numpy().data if ready.numel() else b""
        total = zlib.crc32(data, total)
        put(name, data)
        del ready, data
    return f"{total:08x}"


def _aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Names of tensors that share memory (tied weights) with an earlier one, and its name."""
    seen: dict[tuple, str] = {}
    first = {
        name: seen.setdefault((local_shard(t).data_ptr(), t.shape, t.dtype, t.stride()), name)
        for name, t in tensors.items()
        if t.numel()
    }
    return {name: found for name, found in first.items() if found != name}


class CommonTensors:
    """With `only=`: the file of the tensors that all draws have in common, read once."""

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
        self, tensors: dict[str, Tensor], only: Callable[[str], bool], mesh: Any
    ) -> dict[str, Tensor]:
        """The tensors that a draw stores; the others are written here, or must equal these.

        All processes of the mesh call this.
        """
        kept = {name: tensor for name, tensor in tensors.items() if only(name)}
        if not kept:
            raise ValueError(f"only= keeps nothing of {', '.join(tensors)}")
        rest = {name: tensor for name, tensor in tensors.items() if name not in kept}
        if do_first(mesh, lambda: bool(rest) and not self.tensors()):
            # If another chain has written it meanwhile, that one stays and is compared with.
            write = partial(write_tensors, self.path, rest, overwrite=False)
            gather_to_first(mesh, rest, lambda contents: write(contents=contents))
        do_together(mesh, lambda: self._compare(rest, mesh))
        return kept

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

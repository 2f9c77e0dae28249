"""Tensors in one safetensors file, written atomically."""

import errno
import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from csgmcmc.errors import StoreError
from csgmcmc.files import EXHAUSTED, atomic_write, reason_of

DTYPES = {  # by their names in the safetensors format
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
if hasattr(torch, "float8_e8m0fnu"):  # since torch 2.7
    DTYPES["F8_E8M0"] = torch.float8_e8m0fnu


# A smaller file is read faster than it is mapped. And a process has 65,530 mappings by default on
# Linux: of larger files they are enough for 4 GiB of draws.
LARGEST_READ = 64 * 2**10


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, overwrite: bool = True) -> None:
    """Write `tensors` to a temporary file, flush it, then rename it to `path`."""
    unique, aliases = _without_aliases(tensors)
    metadata = {"aliases": json.dumps(aliases)} if aliases else None
    atomic_write(path, lambda aside: save_file(unique, aside, metadata), overwrite=overwrite)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, memory-mapped if it is large: pages are read when they are used.

    Raises `StoreError` if the file is missing or damaged. If the process has no more descriptors or
    memory, which says nothing about the file, the error is an `OSError` or a `MemoryError`.

    The safetensors format is a length, a JSON header and the bytes. It is parsed here because
    `safe_open` takes about 50 microseconds per tensor, longer than a small model's forward pass.
    """
    try:
        content = _content(path)
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(bytes(content[8:start]))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor_at(content, start, entry) for name, entry in header.items()}
        for alias, name in json.loads(metadata.get("aliases", "{}")).items():
            tensors[alias] = tensors[name]
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise StoreError(f"{path}: cannot be read ({reason_of(error)})") from error
    return tensors


def _content(path: Path) -> memoryview:
    """The bytes of a file: changing them never changes the file, and no descriptor stays open."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= LARGEST_READ:
            content = bytearray(size)
            if file.readinto(content) != size:
                raise ValueError("truncated while it was read")
            return memoryview(content)
    try:  # Python's mmap keeps a descriptor for each mapping: 1024 draws would be too many
        mapped = torch.from_file(str(path), False, size, dtype=torch.uint8, device="cpu")
    except RuntimeError as error:  # although the file could be opened, and has this size
        raise OSError(errno.ENOMEM, f"cannot be mapped into memory: {error}", str(path)) from error
    return mapped.numpy().data


def _tensor_at(content: memoryview, start: int, entry: dict[str, Any]) -> Tensor:
    dtype, shape = DTYPES[entry["dtype"]], entry["shape"]
    first, end = entry["data_offsets"]
    count = math.prod(shape)
    if end - first != count * dtype.itemsize:
        raise ValueError(f"{end - first} bytes for a tensor of shape {shape} and {dtype}")
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start + first).view(shape)


def for_disk(tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """On the CPU, contiguous, with floating point tensors converted to `dtype` if given."""
    ready: dict[str, Tensor] = {}
    done: dict[tuple, Tensor] = {}  # tied tensors stay tied
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES.values():
            kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
            raise ValueError(
                f"{name} is {kind}, which a DrawStore cannot hold: convert it, or register it with "
                "persistent=False"
            )
        key = (tensor.data_ptr(), tensor.shape, tensor.dtype, tensor.stride())
        if key not in done or not tensor.numel():
            narrow = dtype is not None and tensor.is_floating_point()
            done[key] = tensor.to("cpu", dtype if narrow else tensor.dtype).contiguous()
            if narrow and _is_finite(done[key]).ne(_is_finite(tensor).cpu()).any():
                raise ValueError(f"{name} holds numbers too large for dtype={dtype}")
        ready[name] = done[key]
    return ready


def _is_finite(tensor: Tensor) -> Tensor:
    """Where a tensor is finite; torch has no such function for numbers of 8 bits."""
    return (tensor.float() if tensor.element_size() == 1 else tensor).isfinite()


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 of names, dtypes, shapes and values."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode(), total)
        if tensor.numel():
            total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _without_aliases(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors that share memory (tied weights) are written once."""
    unique: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[int, torch.Size, torch.dtype], str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.dtype)
        if tensor.numel() and key in seen:
            aliases[name] = seen[key]
            continue
        seen[key] = name
        storage = tensor.untyped_storage()
        whole = storage.nbytes() == tensor.numel() * tensor.element_size()
        unique[name] = tensor if whole else tensor.clone()  # a view of part of a larger tensor
    return unique, aliases

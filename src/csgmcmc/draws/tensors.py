"""Tensors in one safetensors file, written atomically.

The format is a length, a JSON header and the bytes.
"""

import errno
import json
import math
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csgmcmc.errors import StoreError
from csgmcmc.files import EXHAUSTED, FileIdentity, atomic_write, identity_of, reason_of

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


NAMES = {dtype: name for name, dtype in DTYPES.items()}

# A smaller file is read faster than it is mapped. And a process has 65,530 mappings by default on
# Linux: of larger files they are enough for 4 GiB of draws.
LARGEST_READ = 64 * 2**10


OVERLAPPED = 2**20
"""Bytes of a tensor whose checksum takes longer than to start a thread."""


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    *,
    overwrite: bool = True,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write `tensors` to a temporary file, flush it, then rename it to `path`; their checksum.

    Floating point tensors are converted to `dtype` if it is given. Tensors are copied to the CPU,
    converted and written one at a time, which `safetensors.torch.save_file` cannot.
    """
    stored = {name: stored_dtype(name, tensor, dtype) for name, tensor in tensors.items()}
    aliases = _aliases(tensors)
    said = dict(metadata or {}) | ({"aliases": json.dumps(aliases)} if aliases else {})
    header: dict[str, Any] = {"__metadata__": said} if said else {}
    end = 0
    # As safetensors orders them, so that each begins at a multiple of the size of its numbers.
    for name in sorted(tensors.keys() - aliases.keys(), key=lambda n: (-stored[n].itemsize, n)):
        begin, end = end, end + tensors[name].numel() * stored[name].itemsize
        place = {"shape": list(tensors[name].shape), "data_offsets": [begin, end]}
        header[name] = {"dtype": NAMES[stored[name]], **place}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digests: list[int] = []

    def write(aside: Path) -> None:
        total = 0
        with aside.open("r+b") as file, ThreadPoolExecutor(1) as executor:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in sorted(tensors):
                tensor = for_disk(name, tensors[name], dtype)
                content = _bytes_of(tensor)
                begun, digest = _begin(name, tensor, total), None
                if tensor.nbytes >= OVERLAPPED:  # made while the disk writes
                    digest = executor.submit(zlib.crc32, content, begun)
                if name in header:
                    file.seek(8 + len(text) + header[name]["data_offsets"][0])
                    file.write(content)
                total = zlib.crc32(content, begun) if digest is None else digest.result()
        digests.append(total)

    atomic_write(path, write, overwrite=overwrite)
    return f"{digests[0]:08x}"


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, memory-mapped if it is large: pages are read when they are used.

    Raises `StoreError` if the file is missing or damaged. If the process has no more descriptors or
    memory, which says nothing about the file, the error is an `OSError` or a `MemoryError`.

    The header is parsed here because `safe_open` takes about 50 microseconds per tensor, longer
    than a small model's forward pass.
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


class CheckedFiles:
    """Reads files whose checksums are compared once, and again if they have changed since."""

    def __init__(self) -> None:
        self._trusted: dict[Path, FileIdentity] = {}

    def read(self, path: Path, expected: str) -> dict[str, Tensor]:
        """The tensors of a file; `StoreError` if it is missing or damaged."""
        found = _identity_if_readable(path)
        tensors = read_tensors(path)
        if found is None or found != self._trusted.get(path):
            if checksum(tensors) != expected:
                raise StoreError(f"{path}: checksum does not match, damaged")
            if found is not None:
                self._trusted[path] = found
        return tensors

    def forget(self, path: Path | None = None) -> None:
        """Compare the checksum of a file, or of all files, again."""
        if path is None:
            self._trusted.clear()
        else:
            self._trusted.pop(path, None)


def _identity_if_readable(path: Path) -> FileIdentity | None:
    """The identity of a file; None where even that is an error, which reading it will name."""
    try:
        return identity_of(path)
    except OSError:
        return None


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


def stored_dtype(name: str, tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a tensor in a file, or a `ValueError` if it cannot be in one."""
    if tensor.layout != torch.strided or tensor.dtype not in NAMES:
        kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
        raise ValueError(
            f"{name} is {kind}, which a DrawStore cannot hold: convert it, or register it with "
            "persistent=False"
        )
    return dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype


def for_disk(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """On the CPU, contiguous, with floating point numbers converted to `dtype` if given."""
    found = stored_dtype(name, tensor, dtype)
    ready = tensor.to("cpu", found).contiguous()
    if found != tensor.dtype and _is_finite(ready).ne(_is_finite(tensor).cpu()).any():
        raise ValueError(f"{name} holds numbers too large for dtype={dtype}")
    return ready


def _is_finite(tensor: Tensor) -> Tensor:
    """Where a tensor is finite; torch has no such function for numbers of 8 bits."""
    return (tensor.float() if tensor.element_size() == 1 else tensor).isfinite()


def checksum(tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> str:
    """CRC-32 of names, dtypes, shapes and values, as they are in a file."""
    total = 0
    for name in sorted(tensors):
        tensor = for_disk(name, tensors[name], dtype)
        total = zlib.crc32(_bytes_of(tensor), _begin(name, tensor, total))
    return f"{total:08x}"


def _begin(name: str, tensor: Tensor, total: int) -> int:
    """The checksum before a tensor's values."""
    return zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode(), total)


def _bytes_of(tensor: Tensor) -> Any:
    """The bytes of a contiguous tensor, not copied."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b""


def _aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Names of tensors that share memory (tied weights) with an earlier one, and its name."""
    aliases: dict[str, str] = {}
    seen: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.dtype, tensor.stride())
        first = seen.setdefault(key, name)
        if tensor.numel() and first != name:
            aliases[name] = first
    return aliases

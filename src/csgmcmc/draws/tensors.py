"""Tensors in a file: one safetensors file, written so that it is whole or not there."""

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, overwrite: bool = True) -> None:
    """Write `tensors` aside, flush them to the disk, and only then give them their name."""
    unique, aliases = _without_aliases(tensors)
    metadata = {"aliases": json.dumps(aliases)} if aliases else None
    write_aside(path, lambda aside: save_file(unique, aside, metadata), overwrite=overwrite)


def write_aside(path: Path, write: Callable[[Path], object], *, overwrite: bool = True) -> None:
    """Let `write` make a file beside `path`; flush it and give it its name, or leave nothing.

    Without `overwrite` a file that is there already, or comes meanwhile, stays.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        write(aside)
        flush(aside)
        if overwrite:
            aside.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(aside)
        flush(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until the file, or the folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call; it writes names in order
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, mapped: pages are read when they are used."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
    for alias, name in json.loads(metadata.get("aliases", "{}")).items():
        tensors[alias] = tensors[name]
    return tensors


def for_disk(tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """On the CPU, contiguous, and with floating point numbers narrowed to `dtype` if given."""
    ready: dict[str, Tensor] = {}
    done: dict[tuple, Tensor] = {}  # tied tensors stay tied
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.dtype, tensor.stride())
        if key not in done or not tensor.numel():
            narrow = dtype is not None and tensor.is_floating_point()
            done[key] = tensor.to("cpu", dtype if narrow else tensor.dtype).contiguous()
            if narrow and done[key].isfinite().ne(tensor.isfinite().cpu()).any():
                raise ValueError(f"{name} holds numbers too large for dtype={dtype}")
        ready[name] = done[key]
    return ready


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
    """Tensors that share their memory (tied weights) are written once."""
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
        unique[name] = tensor if whole else tensor.clone()  # a view of a part of something larger
    return unique, aliases

"""Reads draws of sharded models that csgmcmc 0.2.0 has written: a file per process, and an index.

    NAME-00001-of-00002.safetensors   the parts that a process held
    NAME.safetensors.index.json       which part of which tensor is where

Such a store has format 2. Draws that are added to it are single files, as in any other store.
"""

import json
import zlib
from pathlib import Path

import torch
from torch import Tensor

from csgmcmc.draws.tensors import DTYPES, CheckedFiles
from csgmcmc.errors import StoreError
from csgmcmc.files import reason_of


def read_index(
    file: Path, files: CheckedFiles, expected: str | None = None
) -> tuple[dict[str, Tensor], str]:
    """The whole tensors of an index, put together in memory, and the checksum of the index."""
    try:
        content = file.read_bytes()
        checksum = f"{zlib.crc32(content):08x}"
        if checksum != (expected or checksum):
            raise StoreError(f"{file}: checksum does not match, damaged")
        index = json.loads(content)
        read = {
            name: files.read(file.with_name(name), entry["checksum"])
            for name, entry in index["files"].items()
        }
        whole: dict[str, Tensor] = {}
        for name, entry in index["tensors"].items():
            whole[name] = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
            for part, offsets, sizes in entry["parts"]:
                pairs = zip(offsets, sizes, strict=True)
                place = tuple(slice(offset, offset + size) for offset, size in pairs)
                whole[name][place] = read[part][name]
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise StoreError(f"{file}: cannot be read ({reason})") from error
    return whole, checksum

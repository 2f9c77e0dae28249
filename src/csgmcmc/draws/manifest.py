"""The manifests of a store: which draws exist, compared with the files that are there.

A manifest has a header line with provenance, then one line per draw. A line is the CRC-32 of a JSON
object, a space, and the object. Lines are only ever appended. A line that was torn by a crash, or
changed later, does not match its CRC: it is reported and skipped, and the rest stays usable. Lines
of another kind, as versions before 0.3.0 have written for log-likelihoods, are ignored.
"""

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from csgmcmc.errors import StoreError
from csgmcmc.files import atomic_write, file_sizes, is_locked, parts_of

FORMAT = 2
"""The newest format of a store that can be read; new stores are of format 1."""

Key = tuple[int, int]
"""Chain and step of a draw."""

Record = dict[str, Any]
"""A line of a manifest."""


class Manifest:
    """The manifest of one chain."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[list[Record], list[str]]:
        """All lines, and a sentence for each that cannot be used; none without a file."""
        content = self.path.read_bytes() if self.path.exists() else b""
        good: list[bytes] = []
        problems: list[str] = []
        lines = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            text = line[9:]
            if line[:9] == b"%08x " % zlib.crc32(text):
                good.append(text)
            elif line:
                torn = "torn" if number == len(lines) else "torn or changed"
                problems.append(f"{self.path.name}, line {number}: {torn}, skipped")
        return json.loads(f"[{b','.join(good).decode()}]"), problems  # one call: much faster

    def append(self, record: Record) -> None:
        """Append a line, by the only writer; returns once it is on disk."""
        line = encoded(record)
        with open(self.path, "ab+") as file:
            if file.tell():  # do not append to a torn line
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def encoded(record: Record) -> bytes:
    """A record as a line."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Manifests:
    """The lines of all chains of a store."""

    def __init__(self, folder: Path) -> None:
        self.kept: dict[Key, Record] = {}  # the draws whose files are whole
        self.headers: dict[int, Record] = {}  # provenance of each chain
        self._folder = folder

    def of_chain(self, chain_id: int) -> Manifest:
        """The manifest of a chain."""
        return Manifest(self._folder / "chains" / f"{chain_id:04d}.manifest")

    def read_all(self) -> list[str]:
        """Read every manifest; a sentence for each line or file with damage."""
        folder = self._folder / "chains"
        names = sorted(os.listdir(folder)) if folder.exists() else []
        stems = [name.removesuffix(".manifest") for name in names if name.endswith(".manifest")]
        return self.read(int(stem) for stem in stems if stem.isdecimal())

    def read(self, chain_ids: Iterable[int]) -> list[str]:
        """Read the manifests of some chains; a sentence for each line or file with damage.

        The files are listed after that, never before: the newest one may have no line yet.
        """
        found: dict[int, list[Record]] = {}
        problems: list[str] = []
        for chain_id in chain_ids:
            found[chain_id], torn = self.of_chain(chain_id).read()
            problems += torn
        sizes = file_sizes(self._folder / "draws")
        # A new dictionary, because readers may be iterating over this one.
        kept = {key: record for key, record in self.kept.items() if key[0] not in found}
        for chain_id, records in found.items():
            kept |= self._enter(chain_id, records, sizes, problems)
        self.kept = kept
        return problems

    def _enter(
        self, chain_id: int, records: list[Record], sizes: dict[str, int], problems: list[str]
    ) -> dict[Key, Record]:
        """Note the header of a chain; returns the draws whose files are whole."""
        self.headers.pop(chain_id, None)
        kept: dict[Key, Record] = {}
        for record in records:
            if record.get("chain", chain_id) != chain_id:
                path = self.of_chain(chain_id).path
                raise StoreError(f"{path} is the manifest of chain {record['chain']}: rename it")
            if "provenance" in record:
                self.headers[chain_id] = record
            elif "draw" in record:
                kept[chain_id, record["step"]] = record
                for name, size in files_of(record).items():
                    if sizes.get(name) != size:
                        found = f"{sizes[name]} of {size} bytes" if name in sizes else "missing"
                        problems.append(f"draws/{name}: {found}")
                        kept.pop((chain_id, record["step"]), None)
        return kept


def files_of(record: Record) -> dict[str, int]:
    """Names and sizes of the files of a draw: one, or those of a sharded draw of 0.2.0."""
    return {record["draw"]: record["bytes"], **record.get("shards", {})}


def read_dtype(folder: Path) -> torch.dtype | None:
    """The dtype of draws in `store.json`; None if it has none or is not there.

    Raises `StoreError` if it is damaged, or of a newer version.
    """
    file = folder / "store.json"
    try:
        found = json.loads(file.read_bytes())
        if found["format"] > FORMAT:
            raise StoreError(f"{file} says format {found['format']}, newer: upgrade csgmcmc")
        name = found.get("dtype")
        return None if name is None else getattr(torch, name.removeprefix("torch."))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error


def settle_dtype(folder: Path, dtype: torch.dtype | None) -> torch.dtype | None:
    """Write format and dtype of a new store into `store.json`, unless it is there; its dtype."""
    if not (folder / "store.json").exists():
        text = json.dumps({"format": 1, "dtype": dtype and str(dtype)}) + "\n"
        atomic_write(folder / "store.json", lambda temporary: temporary.write_text(text))
    return read_dtype(folder)


def lock_file(folder: Path, chain_id: int) -> Path:
    """The file that the process which writes a chain holds a lock on."""
    return folder / "chains" / f"{chain_id:04d}.lock"


def remove_leftover_parts(folder: Path, chain_id: int) -> None:
    """Remove temporary files that killed processes have left; called with the chain's lock held.

    No other process writes those of the chain. Those that all chains share may be in writing by a
    process that holds the lock of another chain: they are listed first, so that it holds it by now.
    """
    shared = [*parts_of(folder, "store.json"), *parts_of(folder, "base")]
    others = set((folder / "chains").glob("*.lock")) - {lock_file(folder, chain_id)}
    if shared and any(map(is_locked, others)):
        shared = []
    for path in (*parts_of(folder / "draws", f"{chain_id:04d}-"), *shared):
        path.unlink(missing_ok=True)

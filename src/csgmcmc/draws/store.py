"""Draws on disk: append-only, atomic, memory-mapped.

    store.json                     format and dtype
    base.safetensors               with `only`: the tensors that are the same in all draws
    chains/0000.manifest           which draws the chain has
    chains/0000.lock               locked by the process that writes the chain
    draws/0000-000000123.safetensors

A draw is written to a temporary file, flushed and renamed; then its line in the chain's manifest is
flushed, which commits it. A file without a line is not a draw. Each chain has its own manifest, so
that chains never wait for each other.

The tensors of a model that is sharded over processes are gathered one at a time, and the first
process writes such a file.
"""

import json
import os
import platform
import threading
import warnings
from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from csgmcmc.arguments import check_count, check_items, check_kind, plain_value
from csgmcmc.devices import check_dtype
from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.manifest import (
    Key,
    Manifests,
    Record,
    files_of,
    lock_file,
    read_dtype,
    remove_leftover_parts,
    settle_dtype,
)
from csgmcmc.draws.tensors import CheckedFiles, CommonTensors, checksum, write_tensors
from csgmcmc.errors import DrawConflictError, StoreError, StoreWarning
from csgmcmc.files import check_path, flush, is_locked, make_folder, readable_io_errors, take_lock
from csgmcmc.shards import Named, do_first, gather_to_first, mesh_of


class DrawStore(Draws):
    """A folder of draws.

    A pickle or a deep copy of it opens the same folder again, without its locks. So does a forked
    process: it reads, and writes only chains that its parent does not. Threads may share a store.

    Args:
        path: the folder; created by the first append.
        only: names of the tensors that each draw stores, or a predicate of a name. The others are
            stored once, from the first draw, and must not change: for fine-tuning and adapters. By
            default each draw stores all tensors.
        dtype: store floating point tensors in this narrower dtype. By default that of the store,
            or that of each tensor in a new store.
        provenance: settings to record with each chain that this object writes, e.g. config and
            seed. Package versions are added.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        only: Collection[str] | Callable[[str], bool] | None = None,
        dtype: torch.dtype | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if dtype is not None:
            check_dtype("dtype", dtype)
        if only is not None and not callable(only):
            names = check_items("only", only, "names of tensors, or a function of a name")
            only = set(names).__contains__
        self.path = check_path("path", path)
        self.provenance = _plain_provenance(provenance)
        self._place = f"('{self.path}')"
        self._only = only
        self._files = CheckedFiles()
        self._base = CommonTensors(self.path / "base.safetensors")
        self._manifests = Manifests(self.path)
        self._locks: dict[int, FileLock] = {}
        self._mutex = threading.RLock()  # for writers in several threads
        with readable_io_errors(self.path, "reading the store"):
            self._dtype = dtype or read_dtype(self.path)
            self.problems: list[str] = self._manifests.read_all()
            """One sentence per damaged file."""
            needs_base = any(record["base"] for record in self._kept.values())
            if needs_base and not self._base.exists():
                self.problems.append(f"{self._base.path.name}: missing, draws cannot be read")
        if self.problems:
            more = ["..."] if len(self.problems) > 5 else []
            words = f"{self.path}: {'; '.join(self.problems[:5] + more)}"
            warnings.warn(words, StoreWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"only": self._only, "dtype": self._dtype, "provenance": self.provenance}
        return partial(type(self), self.path.absolute(), **options), ()

    # Reading

    @property
    def _kept(self) -> dict[Key, Record]:
        return self._manifests.kept

    def _draw(self, key: Key) -> Draw:
        record = self._kept[key]
        load = partial(self._load, record)
        return Draw(*key, record["cycle"], record["stage"], load)

    def _load(self, record: Record) -> dict[str, Tensor]:
        file, digest = self._file(record["draw"]), record["checksum"]
        if "shards" in record:  # written by 0.2.0
            tensors, _ = self._files.read_index(file, digest)
        else:
            tensors = self._files.read(file, digest)
        if not record["base"]:
            return tensors
        base = self._base.tensors()
        if self._base.checksum != record["base"]:
            raise StoreError(f"{self._base.path}: missing or damaged, draws are incomplete")
        return {**base, **tensors}

    def _file(self, name: str) -> Path:
        return self.path / "draws" / name

    def verify(self) -> list[str]:
        """Read every draw, and return one sentence for each file that is damaged."""
        self._files, self._base = CheckedFiles(), CommonTensors(self._base.path)
        damages: dict[str, None] = {}
        for draw in self:
            try:
                draw.tensors()
            except StoreError as error:
                damages[str(error)] = None
        return list(damages)

    def headers(self) -> dict[int, dict[str, Any]]:
        """Provenance of each chain, by chain_id."""
        return dict(self._manifests.headers)

    def size_on_disk(self) -> int:
        """Bytes of all draws, without `base.safetensors`."""
        return sum(sum(files_of(record).values()) for record in self._kept.values())

    _size = size_on_disk

    # Locks

    def is_being_written(self, chain_id: int) -> bool:
        """Whether some process writes a chain now."""
        return is_locked(lock_file(self.path, check_count("chain_id", chain_id, at_least=0)))

    def lock_chain(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Become the only writer of a chain, until `close`; `append` does so by itself.

        Raises `LockedError` if another process, or another store object, holds the lock.
        `provenance` is recorded for this chain, besides that of the store, unless it has draws of a
        run of as many steps.
        """
        chain_id = check_count("chain_id", chain_id, at_least=0)
        made = _plain_provenance(provenance)
        with self._mutex, readable_io_errors(self.path, f"locking chain {chain_id}"):
            if not self._holds(chain_id):
                for folder in ("chains", "draws"):
                    make_folder(self.path / folder)
                what = f"chain {chain_id} of {self.path}"
                self._locks[chain_id] = take_lock(lock_file(self.path, chain_id), what)
                try:
                    self._catch_up(chain_id)
                except BaseException:
                    self.close([chain_id])
                    raise
            if provenance is not None:
                self._write_header(chain_id, made)

    def _holds(self, chain_id: int) -> bool:
        return chain_id in self._locks and self._locks[chain_id].is_locked  # not in a forked child

    def _catch_up(self, chain_id: int) -> None:
        """Read what others have written before this process has taken the lock."""
        if (found := settle_dtype(self.path, self._dtype)) != self._dtype:
            raise StoreError(f"{self.path} keeps draws in dtype={found}, not dtype={self._dtype}")
        remove_leftover_parts(self.path, chain_id)
        self._manifests.read([chain_id])

    def close(self, chain_ids: Collection[int] | None = None) -> None:
        """Release the locks of some chains, by default of all; the next append takes them again."""
        with self._mutex:
            chosen = self._locks.keys() if chain_ids is None else set(chain_ids)
            for chain_id in self._locks.keys() & chosen:
                self._locks.pop(chain_id).release()

    def delete_chain(self, chain_id: int) -> None:
        """Delete all draws of a chain; `LockedError` if another process writes it."""
        self.lock_chain(chain_id)
        with self._mutex, readable_io_errors(self.path, f"deleting chain {chain_id}"):
            self._manifests.of_chain(chain_id).path.unlink(missing_ok=True)  # that is the deletion
            flush(self.path / "chains")
            self._manifests.read([chain_id])
            for path in (self.path / "draws").glob(f"{chain_id:04d}-*"):
                path.unlink(missing_ok=True)
            if not any((self.path / "chains").glob("*.manifest")):  # no chain needs the base
                for path in self.path.glob("base.safetensors*"):
                    path.unlink(missing_ok=True)
                self._base = CommonTensors(self._base.path)

    # Writing

    def _append(self, draw: Draw) -> None:
        """All processes that hold a part of a sharded draw call this; the first one writes it."""
        chain_id, step = draw.chain_id, draw.step
        tensors = draw.tensors()
        mesh = mesh_of(tensors.values())

        def prepare() -> Record | None:
            self.lock_chain(chain_id)
            return self._kept.get((chain_id, step))

        def keep(contents: Named) -> Record | None:
            if held is None:
                return self._write(draw, tensors, contents)
            return held if checksum(contents, self._dtype) == held["checksum"] else None

        action = f"writing the draw of chain {chain_id}, step {step}"
        with self._mutex, readable_io_errors(self.path, action):
            held = do_first(mesh, prepare)
            if self._only is not None:
                tensors = self._base.split(tensors, self._only, mesh)
            record = gather_to_first(mesh, tensors, keep)
            if record is None:
                raise DrawConflictError(chain_id, step)
            self._kept[chain_id, step] = record

    def _write(self, draw: Draw, tensors: dict[str, Tensor], contents: Named) -> Record:
        """Write the file of a draw, then the line that commits it."""
        self._write_header(draw.chain_id)
        name = f"{draw.chain_id:04d}-{draw.step:09d}.safetensors"
        digest = write_tensors(self._file(name), tensors, self._dtype, contents=contents)
        record = {
            "draw": name,
            "chain": draw.chain_id,
            "step": draw.step,
            "cycle": draw.cycle,
            "stage": draw.stage,
            "log_likelihood": None,  # versions before 0.3.0 read it
            "base": self._base.checksum if self._only is not None else None,
            "bytes": self._file(name).stat().st_size,
            "checksum": digest,
        }
        self._manifests.of_chain(draw.chain_id).append(record)
        return record

    def _write_header(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Record what makes the chain, in place of a run that was stopped before its first draw."""
        header = self._manifests.headers.get(chain_id)
        made = {**self.provenance, **(provenance or {})}
        if header is not None:
            before = header["provenance"]
            is_longer = made.get("total_steps", 0) > before.get("total_steps", 0)  # was extended
            if provenance is None or before == made or (self.of_chain(chain_id) and not is_longer):
                return
        packages = {name: version(name) for name in ("csgmcmc", "torch", "numpy")}
        versions = {"python": platform.python_version(), **packages}
        header = {"chain": chain_id, "provenance": made, "versions": versions}
        self._manifests.of_chain(chain_id).append(header)
        flush(self.path / "chains")
        self._manifests.headers[chain_id] = header


def _plain_provenance(provenance: dict[str, Any] | None) -> dict[str, Any]:
    """Provenance as plain values, as it is read again; a `ValueError` if JSON cannot hold it."""
    found = {} if provenance is None else check_kind("provenance", provenance, dict, "a dictionary")
    try:
        return json.loads(json.dumps(plain_value(found)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"provenance must be plain values, that JSON can hold: {error}") from error

"""Draws on disk: append-only, atomic, memory-mapped.

    store.json                     format and dtype
    base.safetensors               with `only`: the tensors that are the same in all draws
    chains/0000.manifest           a header line with provenance, then one line per draw, and one
                                   per log-likelihood that was set later
    chains/0000.lock               locked by the process that writes the chain
    draws/0000-000000123.safetensors
    draws/0000-000000123-00001-of-00002.safetensors
                                   of a model that is sharded over processes: one file of each, and
                                   0000-000000123.safetensors.index.json

A draw is written to a temporary file, flushed and renamed; then its line in the chain's manifest is
flushed, which commits it. A file without a line is not a draw. Each chain has its own manifest, so
that chains never wait for each other.
"""

import os
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_count, check_items, check_kind
from csgmcmc.devices import check_dtype
from csgmcmc.draws import folder as contents
from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.lock import Lock, is_locked
from csgmcmc.draws.ordered import Key
from csgmcmc.draws.records import Records
from csgmcmc.draws.sharded import (
    ShardedTensors,
    index_name,
    joined,
    part_of,
    parts_of,
    write_shards,
)
from csgmcmc.draws.shared import Only, SharedTensors
from csgmcmc.draws.tensors import CheckedFiles, checksum, for_disk, write_tensors
from csgmcmc.errors import DrawConflictError, StoreError, StoreWarning
from csgmcmc.files import (
    check_path,
    flush,
    make_folder,
    readable_io_errors,
)
from csgmcmc.shards import do_together, local_shard, mesh_of, number_in


class DrawStore(Draws):
    """A folder of draws.

    A pickle or a deep copy of it opens the same folder again, without its locks. So does a forked
    process: it reads, and writes only chains that its parent does not. Threads may share a store.

    Args:
        path: the folder; created by the first append.
        only: names of the tensors that each draw stores, or a predicate of a name. The others are
            stored once, from the first draw, and must not change: for fine-tuning and adapters. By
            default each draw stores all tensors.
        dtype: store floating point tensors in this narrower dtype.
        provenance: settings to record with each chain that this object writes, e.g. config and
            seed. Package versions are added.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        only: Only | None = None,
        dtype: torch.dtype | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> None:
        if dtype is not None:
            check_dtype("dtype", dtype)
        if only is not None and not callable(only):
            words = "names of tensors, or a function of a name"
            for name in (only := check_items("only", only, words)):
                check_kind("only", name, str, words)
        self.path = check_path("path", path)
        self.provenance = contents.checked_provenance(provenance)
        self._only, self._dtype = only, dtype
        self._files = CheckedFiles()
        self._base = SharedTensors(self.path / "base.safetensors", self._files)
        self._records = Records(self.path)
        self._kept = self._records.kept
        self._locks: dict[int, Lock] = {}
        self._cleaned: set[int] = set()  # chains of which no temporary file is left
        self._continued: set[int] = set()  # chains to which a draw was added
        self._mutex = threading.RLock()  # for writers in several threads
        self._flushed_later: set[int] = set()
        self._dtype_on_disk: str | None = None
        self.problems: list[str] = []
        """One sentence per damaged or leftover file."""

        with readable_io_errors(self.path, "reading the store", writing=False):
            if self.path.exists() and not self.path.is_dir():
                raise StoreError(f"{self.path} is not a folder, so it cannot be a draw store")
            self._dtype_on_disk = contents.read_dtype(self.path)
            self.problems += self._records.read()
            if self._needs_base() and not self._base.exists():
                self.problems.append(f"{self._base.path.name}: missing, draws cannot be read")
        if self.problems:
            listed = "; ".join(self.problems[:5])
            more = f"; and {len(self.problems) - 5} more" if len(self.problems) > 5 else ""
            warnings.warn(f"{self.path}: {listed}{more}", StoreWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"only": self._only, "dtype": self._dtype, "provenance": self.provenance}
        return partial(type(self), self.path.absolute(), **options), ()

    def _draw(self, key: Key) -> Draw:
        record = self._kept[key]
        log_likelihood = self._records.log_likelihoods.get(key, record["log_likelihood"])
        load = partial(self._load, record)
        return Draw(*key, record["cycle"], record["stage"], log_likelihood, load)

    def _load(self, record: dict[str, Any]) -> Mapping[str, Tensor]:
        tensors = self._read_draw(record)
        if not record["base"]:
            return tensors
        base = self._base.tensors()
        if self._base.checksum != record["base"]:
            raise StoreError(
                f"{self._base.path}: missing or damaged, draw {record['draw']} is incomplete"
            )
        return joined(tensors, base)

    def _read_draw(self, record: dict[str, Any]) -> Mapping[str, Tensor]:
        """What the draw's own files hold; `StoreError` if they are damaged."""
        file = self._file(record["draw"])
        if "shards" in record:
            return ShardedTensors(file, record["checksum"], self._files)
        return self._files.read(file, record["checksum"])

    def _damage(self, record: dict[str, Any]) -> str | None:
        """Read all of a draw's files: what is wrong with them, or None."""
        self._forget(record)
        try:
            tensors = self._read_draw(record)
            if isinstance(tensors, ShardedTensors):
                tensors.check()
        except StoreError as error:
            return str(error)
        return None

    def _forget(self, record: dict[str, Any]) -> None:
        """Compare the checksums of a draw's files again when they are next read."""
        for name in contents.files_of(record):
            self._files.forget(self._file(name))

    def _file(self, name: str) -> Path:
        return self.path / "draws" / name

    def verify(self) -> list[str]:
        """Read every draw, and return one sentence for each that is damaged."""
        damages = [self._damage(record) for record in self._kept.values()]
        bases = {record["base"] for record in self._kept.values()} - {None}
        damages.append(self._base.damage(bases))
        return [damage for damage in damages if damage is not None]

    def headers(self) -> dict[int, dict[str, Any]]:
        """Provenance of each chain, by chain_id."""
        return dict(self._records.headers)

    def size_on_disk(self) -> int:
        """Bytes of all draws, without `base.safetensors`."""
        return sum(sum(contents.files_of(record).values()) for record in self._kept.values())

    _size = size_on_disk

    def _place(self) -> str:
        return f"('{self.path}')"

    def is_being_written(self, chain_id: int) -> bool:
        """Whether some process writes a chain now."""
        return is_locked(
            contents.lock_file(self.path, check_count("chain_id", chain_id, at_least=0))
        )

    def lock_chain(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Become the only writer of a chain, until `close`; `append` does so by itself.

        Raises `LockedError` if another process, or another store object, holds the lock.
        `provenance` is recorded for this chain, besides that of the store, unless it has draws.
        """
        chain_id = check_count("chain_id", chain_id, at_least=0)
        made = contents.checked_provenance(provenance)
        with self._mutex, readable_io_errors(self.path, f"locking chain {chain_id}"):
            if not self._holds(chain_id):
                self._lock(chain_id)
                if self._dtype_on_disk != contents.name_of(self._dtype):
                    self.close([chain_id])
                    raise StoreError(
                        f"{self.path} keeps draws in dtype={self._dtype_on_disk}, and was opened "
                        f"with dtype={contents.name_of(self._dtype)}: open it with the same"
                    )
            if provenance is not None:
                self._write_header(chain_id, made)

    def _holds(self, chain_id: int) -> bool:
        """Whether this process holds the lock; a forked child has only the parent's entry of it."""
        return chain_id in self._locks and self._locks[chain_id].is_held

    def _lock(self, chain_id: int) -> None:
        """`lock_chain` without the check of the dtype, which matters to draws only."""
        with readable_io_errors(self.path, f"locking chain {chain_id}"):
            self._dtype_on_disk = contents.read_dtype(self.path)  # or an error, before all else
            for folder in ("chains", "draws"):
                make_folder(self.path / folder)
            named = f"chain {chain_id} of {self.path}"
            self._locks[chain_id] = Lock(contents.lock_file(self.path, chain_id), named)
            try:
                self._create()
                if chain_id not in self._cleaned:
                    contents.remove_leftover_parts(self.path, chain_id)
                    self._cleaned.add(chain_id)
                for record in self._records.read_on(chain_id):  # of another process
                    self._forget(record)
                self._check_own(chain_id)
            except BaseException:
                self.close([chain_id])
                raise

    def _check_own(self, chain_id: int) -> None:
        if chain_id in self._records.foreign:
            raise StoreError(f"{self.path} cannot be written: {self._records.foreign[chain_id]}")

    @contextmanager
    def locked(self, chain_ids: Collection[int]) -> Iterator[None]:
        """Hold the locks of several chains, to set log-likelihoods of their draws.

        Those are written at once, and flushed to the disk together at the end of the block: a crash
        of the machine may lose those of the block, which can be computed again, but no draw.
        """
        chain_ids = contents.checked_chain_ids(chain_ids)
        with self._mutex:
            to_lock = [chain_id for chain_id in chain_ids if not self._holds(chain_id)]
            to_flush = set(chain_ids) - self._flushed_later  # others are flushed by an outer block
            self._flushed_later |= to_flush
        try:
            for chain_id in to_lock:
                with self._mutex:
                    self._lock(chain_id)
            yield
        finally:
            self._flushed_later -= to_flush
            try:
                for chain_id in to_flush:
                    with readable_io_errors(self.path, f"flushing chain {chain_id}"):
                        self._records.manifest(chain_id).flush()
            finally:
                self.close(to_lock)

    def close(self, chain_ids: Collection[int] | None = None) -> None:
        """Release the locks of some chains, by default of all; the next append takes them again."""
        with self._mutex:
            chosen: Collection[int] = self._locks
            if chain_ids is not None:
                chosen = self._locks.keys() & set(contents.checked_chain_ids(chain_ids))
            for chain_id in list(chosen):
                self._locks.pop(chain_id).release()

    def _create(self) -> None:
        if not (self.path / "store.json").exists():
            contents.write_header(self.path, 1, contents.name_of(self._dtype))
            self._dtype_on_disk = contents.read_dtype(self.path)

    def _write_header(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Say what makes the chain, before its first draw.

        What a run has said that was stopped before its first draw is no longer true.
        """
        header = self._records.headers.get(chain_id)
        if header is not None and (provenance is None or self._kept.has_chain(chain_id)):
            return
        made = {**self.provenance, **(provenance or {})}
        if header is not None and header.get("provenance") == made:
            return
        header = {"chain": chain_id, "provenance": made, "versions": contents.versions()}
        self._records.manifest(chain_id).append(header)
        flush(self.path / "chains")
        self._records.headers[chain_id] = header

    def _append(self, draw: Draw) -> None:
        chain_id, step = draw.chain_id, draw.step
        action = f"writing the draw of chain {chain_id}, step {step}"
        tensors = draw.tensors()
        mesh = mesh_of(tensors.values())
        with self._mutex, readable_io_errors(self.path, action):
            if mesh is not None:
                self._append_shards(draw, tensors, mesh)
                return
            self.lock_chain(chain_id)
            if self._only is not None:
                tensors = self._base.split(tensors, self._only, self._needs_base)
            held = self._kept.get((chain_id, step))
            if held is not None:
                if not self._holds_numbers(held, tensors):
                    raise DrawConflictError(chain_id, step)
                return
            self._write_header(chain_id)
            name = contents.draw_name(chain_id, step)
            digest = write_tensors(self._file(name), tensors, self._dtype)
            self._enter_draw(draw, name, digest)

    def _append_shards(self, draw: Draw, tensors: dict[str, Tensor], mesh: Any) -> None:
        """`_append` by all processes that hold a part of the draw: each writes its own.

        The first of them holds the lock. It writes the line, which commits the draw, when the files
        of all are on the disk, and the others wait for that.
        """
        chain_id, step = draw.chain_id, draw.step
        is_first = number_in(mesh) == 0

        def prepare() -> dict[str, Any] | None:
            if not is_first:
                return None
            self.lock_chain(chain_id)
            contents.write_header(self.path, contents.SHARDED_FORMAT, self._dtype_on_disk)
            return self._kept.get((chain_id, step))

        held = do_together(mesh, prepare)[0]
        if self._only is not None:
            tensors = self._base.split_shards(tensors, self._only, self._needs_base, mesh, chain_id)
        if held is not None:
            own = {name: tensors[name] for name in parts_of(tensors, mesh)}
            if not all(do_together(mesh, lambda: self._holds_numbers(held, own))):
                raise DrawConflictError(chain_id, step)
            return
        stem = contents.draw_stem(chain_id, step)
        written = write_shards(self.path / "draws", stem, tensors, mesh, self._dtype)
        name = index_name(stem)

        def commit() -> dict[str, Any] | None:
            if not is_first:
                return None
            written.write_index(self._file(name))
            self._write_header(chain_id)
            return self._enter_draw(draw, name, written.checksum, shards=written.sizes)

        record = do_together(mesh, commit)[0]
        assert record is not None  # noqa: S101  (the first process has made it)
        self._kept[chain_id, step] = record

    def _holds_numbers(self, held: dict[str, Any], tensors: dict[str, Tensor]) -> bool:
        """Whether a draw that is stored has the numbers that this process holds of `tensors`."""
        if "shards" not in held and mesh_of(tensors.values()) is None:
            return held["checksum"] == checksum(tensors, self._dtype)
        stored = self._read_draw(held)
        return stored.keys() >= tensors.keys() and all(
            torch.equal(
                part_of(stored, name, tensor), for_disk(name, local_shard(tensor), self._dtype)
            )
            for name, tensor in tensors.items()
        )

    def _needs_base(self) -> bool:
        """Whether there are draws that cannot be read without the base."""
        return any(record["base"] for record in self._kept.values())

    def _enter_draw(self, draw: Draw, name: str, digest: str, **more: Any) -> dict[str, Any]:
        """Write the line of a draw whose files are on the disk."""
        record = {
            "draw": name,
            "chain": draw.chain_id,
            "step": draw.step,
            "cycle": draw.cycle,
            "stage": draw.stage,
            "log_likelihood": draw.log_likelihood,
            "base": self._base.checksum if self._only is not None else None,
            "bytes": self._file(name).stat().st_size,
            "checksum": digest,
            **more,
        }
        self._records.manifest(draw.chain_id).append(record)
        self._kept[draw.chain_id, draw.step] = record
        if draw.chain_id not in self._continued:  # a killed run may have left files of this draw
            contents.remove_other_files(self.path / "draws", record)
            self._continued.add(draw.chain_id)
        return record

    def _set_log_likelihood(self, key: Key, value: float) -> None:
        chain_id, step = key
        action = f"setting the log-likelihood of chain {chain_id}, step {step}"
        line = {"likelihood_of": step, "chain": chain_id, "log_likelihood": value}
        with self._mutex, self.locked([chain_id]), readable_io_errors(self.path, action):
            self._records.manifest(chain_id).append(line, flushed=False)  # by `locked`
            self._records.log_likelihoods[key] = value

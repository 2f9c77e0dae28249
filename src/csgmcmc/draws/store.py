"""Draws on disk: append-only, atomic, memory-mapped.

    store.json                     format and dtype
    base.safetensors               with `only`: the tensors that are the same in all draws
    chains/0000.manifest           a header line with provenance, then one line per draw, and one
                                   per log-likelihood that was set later
    chains/0000.lock               locked by the process that writes the chain
    draws/0000-000000123.safetensors

A draw is written to a temporary file, flushed and renamed; then its line in the chain's manifest is
flushed, which commits it. A file without a line is not a draw. Each chain has its own manifest, so
that chains never wait for each other.
"""

import json
import os
import threading
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_count, check_items, check_kind, shown
from csgmcmc.devices import check_dtype
from csgmcmc.draws import folder as contents
from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.lock import Lock, is_locked
from csgmcmc.draws.manifest import Lines, Manifest
from csgmcmc.draws.ordered import ByChainAndStep, Key
from csgmcmc.draws.shared import Only, SharedTensors
from csgmcmc.draws.tensors import checksum, for_disk, read_tensors, write_tensors
from csgmcmc.errors import DrawConflictError, StoreError, StoreWarning
from csgmcmc.files import (
    FileIdentity,
    atomic_write,
    check_path,
    file_size,
    file_sizes,
    flush,
    make_folder,
    readable_io_errors,
)


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
        self._base = SharedTensors(self.path / "base.safetensors")
        self._kept: ByChainAndStep[dict[str, Any]] = ByChainAndStep()
        self._log_likelihoods: dict[Key, float] = {}
        self._headers: dict[int, dict[str, Any]] = {}
        self._manifests: dict[int, Manifest] = {}
        self._foreign: dict[int, str] = {}  # why a chain's manifest is not that of the chain
        self._locks: dict[int, Lock] = {}
        self._cleaned: set[int] = set()  # chains of which no temporary file is left
        self._mutex = threading.RLock()  # for writers in several threads
        self._flushed_later: set[int] = set()
        self._trusted: dict[str, FileIdentity | None] = {}  # files whose content was checked
        self._dtype_on_disk: str | None = None
        self.problems: list[str] = []
        """One sentence per damaged or leftover file."""

        with readable_io_errors(self.path, "reading the store", writing=False):
            if self.path.exists() and not self.path.is_dir():
                raise StoreError(f"{self.path} is not a folder, so it cannot be a draw store")
            self._dtype_on_disk = contents.read_dtype(self.path)
            self._read()
        if self.problems:
            listed = "; ".join(self.problems[:5])
            more = f"; and {len(self.problems) - 5} more" if len(self.problems) > 5 else ""
            warnings.warn(f"{self.path}: {listed}{more}", StoreWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"only": self._only, "dtype": self._dtype, "provenance": self.provenance}
        return partial(type(self), self.path.absolute(), **options), ()

    def _read(self) -> None:
        """Read the manifests, then list the files: never the other way round.

        While a chain is being written, its newest file may have no line yet.
        """
        records: list[dict[str, Any]] = []
        chain_ids, strays = contents.chains_with_manifest(self.path)
        for chain_id in chain_ids:
            lines = self._manifest(chain_id).read_new()
            records += self._enter(chain_id, lines)
            self.problems += lines.problems
        self.problems += [*self._foreign.values(), *strays]
        sizes = file_sizes(self.path / "draws")
        whole = {
            (record["chain"], record["step"]): record
            for record in records
            if sizes.get(record["draw"]) == record["bytes"]
        }
        self._kept.update(whole)
        if len(whole) < len(records):
            self.problems += contents.problems_of_files(records, sizes)
        if any(record["base"] for record in records) and not self._base.path.exists():
            self.problems.append(f"{self._base.path.name}: missing, draws cannot be read")
        for name in self._leftover(sizes.keys() - {record["draw"] for record in records}):
            self.problems.append(f"draws/{name}: not in a manifest, ignored")

    def _leftover(self, without_line: set[str]) -> list[str]:
        """Of files that had no line, those that nobody is about to give one, or has meanwhile."""
        chains: dict[int | None, set[str]] = {}
        for name in without_line:
            chains.setdefault(contents.chain_of(name), set()).add(name)
        for chain_id, of_chain in chains.items():
            if chain_id is not None and self.is_being_written(chain_id):
                without_line = without_line - of_chain
            elif chain_id is not None:
                self._read_on(chain_id)
        unnamed = {name for name in without_line if contents.UNNAMED_PART.fullmatch(name)}
        if unnamed and contents.is_any_locked(self.path):
            without_line = without_line - unnamed
        leftover = without_line - {record["draw"] for record in self._kept.values()}
        return sorted(name for name in leftover if (self.path / "draws" / name).exists())

    def _read_on(self, chain_id: int) -> None:
        """Enter what was added to a chain's manifest since it was last read or written."""
        for record in self._enter(chain_id, self._manifest(chain_id).read_new()):
            if file_size(self.path / "draws" / record["draw"]) == record["bytes"]:
                self._kept[chain_id, record["step"]] = record
                self._trusted.pop(record["draw"], None)

    def _enter(self, chain_id: int, lines: Lines) -> list[dict[str, Any]]:
        """Read a manifest's header and log-likelihoods; return the lines of draws."""
        if lines.replaced:
            self._kept.forget_chain(chain_id)
            for key in [key for key in self._log_likelihoods if key[0] == chain_id]:
                del self._log_likelihoods[key]
            self._headers.pop(chain_id, None)
            self._foreign.pop(chain_id, None)
        name = f"chains/{contents.manifest_name(chain_id)}"
        chains = [line.get("chain", chain_id) for line in lines.records]
        if others := [one for one in chains if one != chain_id]:
            self._kept.forget_chain(chain_id)
            self._foreign[chain_id] = f"{name}: holds lines of chain {shown(others[0])}, ignored"
        if chain_id in self._foreign:  # its log-likelihoods would be those of other draws
            return []
        records: list[dict[str, Any]] = []
        for line in lines.records:
            if "draw" in line and contents.is_line_of_draw(line, chain_id):
                records.append(line)
            elif "likelihood_of" in line and contents.is_line_of_likelihood(line):
                self._log_likelihoods[chain_id, line["likelihood_of"]] = line["log_likelihood"]
            elif contents.is_header(line):
                self._headers[chain_id] = line
            else:
                raise StoreError(f"{self.path}/{name}: has a line that no version has written")
        return records

    def _draw(self, key: Key) -> Draw:
        record = self._kept[key]
        log_likelihood = self._log_likelihoods.get(key, record["log_likelihood"])
        load = partial(self._load, record)
        return Draw(*key, record["cycle"], record["stage"], log_likelihood, load)

    def _load(self, record: dict[str, Any]) -> dict[str, Tensor]:
        name = record["draw"]
        file = self.path / "draws" / name
        found = contents.identity_if_readable(file)
        is_checked = found is not None and found == self._trusted.get(name)  # and unchanged since
        if not is_checked and (problem := self._damage(record)):
            raise StoreError(problem)
        base = self._base.tensors() if record["base"] else {}
        if self._base.checksum != record["base"] and record["base"]:
            raise StoreError(f"{self._base.path}: missing or damaged, draw {name} is incomplete")
        return {**base, **read_tensors(file)}

    def _damage(self, record: dict[str, Any]) -> str | None:
        """Read all of a draw's file: what is wrong with it, or None."""
        file = self.path / "draws" / record["draw"]
        found = contents.identity_if_readable(file)
        try:
            tensors = read_tensors(file)
        except StoreError as error:
            return str(error)
        if checksum(tensors) != record["checksum"]:
            return f"{file}: checksum does not match, damaged"
        self._trusted[record["draw"]] = found
        return None

    def verify(self) -> list[str]:
        """Read every draw, and return one sentence for each that is damaged."""
        damages = [self._damage(record) for record in self._kept.values()]
        bases = {record["base"] for record in self._kept.values()} - {None}
        damages.append(self._base.damage(bases))
        return [damage for damage in damages if damage is not None]

    def headers(self) -> dict[int, dict[str, Any]]:
        """Provenance of each chain, by chain_id."""
        return dict(self._headers)

    def size_on_disk(self) -> int:
        """Bytes of all draws, without `base.safetensors`."""
        return sum(record["bytes"] for record in self._kept.values())

    _size = size_on_disk

    def _place(self) -> str:
        return f"('{self.path}')"

    def is_being_written(self, chain_id: int) -> bool:
        """Whether some process writes a chain now."""
        return is_locked(self._lock_file(check_count("chain_id", chain_id, at_least=0)))

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
            self._locks[chain_id] = Lock(self._lock_file(chain_id), named)
            try:
                self._create()
                if chain_id not in self._cleaned:
                    contents.remove_leftover_parts(self.path, chain_id)
                    self._cleaned.add(chain_id)
                self._read_on(chain_id)  # another process may have written this chain
                self._check_own(chain_id)
            except BaseException:
                self.close([chain_id])
                raise

    def _check_own(self, chain_id: int) -> None:
        if chain_id in self._foreign:
            raise StoreError(f"{self.path} cannot be written: {self._foreign[chain_id]}")

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
                        self._manifest(chain_id).flush()
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
        file = self.path / "store.json"
        if not file.exists():
            text = json.dumps({"format": contents.FORMAT, "dtype": contents.name_of(self._dtype)})
            atomic_write(file, lambda temporary: temporary.write_text(text + "\n"))
            self._dtype_on_disk = contents.read_dtype(self.path)

    def _write_header(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Say what makes the chain, before its first draw.

        What a run has said that was stopped before its first draw is no longer true.
        """
        header = self._headers.get(chain_id)
        if header is not None and (provenance is None or self._kept.has_chain(chain_id)):
            return
        made = {**self.provenance, **(provenance or {})}
        if header is not None and header.get("provenance") == made:
            return
        header = {"chain": chain_id, "provenance": made, "versions": contents.versions()}
        self._manifest(chain_id).append(header)
        flush(self.path / "chains")
        self._headers[chain_id] = header

    def _manifest(self, chain_id: int) -> Manifest:
        if chain_id not in self._manifests:
            path = self.path / "chains" / contents.manifest_name(chain_id)
            self._manifests[chain_id] = Manifest(path)
        return self._manifests[chain_id]

    def _lock_file(self, chain_id: int) -> Path:
        return self.path / "chains" / f"{chain_id:04d}.lock"

    def _append(self, draw: Draw) -> None:
        chain_id, step = draw.chain_id, draw.step
        action = f"writing the draw of chain {chain_id}, step {step}"
        with self._mutex, readable_io_errors(self.path, action):
            self.lock_chain(chain_id)
            tensors = draw.tensors()
            if self._only is not None:
                needed = partial(any, (record["base"] for record in self._kept.values()))
                tensors = self._base.split(tensors, self._only, needed)
            kept = for_disk(tensors, self._dtype)
            held = self._kept.get((chain_id, step))
            if held is not None:
                if held["checksum"] != checksum(kept):
                    raise DrawConflictError(chain_id, step)
                return
            self._write_header(chain_id)
            name = contents.draw_name(chain_id, step)
            file = self.path / "draws" / name
            with ThreadPoolExecutor(1) as executor:  # while the disk writes
                digest = executor.submit(checksum, kept)
                write_tensors(file, kept)
            record = {
                "draw": name,
                "chain": chain_id,
                "step": step,
                "cycle": draw.cycle,
                "stage": draw.stage,
                "log_likelihood": draw.log_likelihood,
                "base": self._base.checksum if self._only is not None else None,
                "bytes": file.stat().st_size,
                "checksum": digest.result(),
            }
            self._manifest(chain_id).append(record)
            self._kept[chain_id, step] = record

    def _set_log_likelihood(self, key: Key, value: float) -> None:
        chain_id, step = key
        action = f"setting the log-likelihood of chain {chain_id}, step {step}"
        line = {"likelihood_of": step, "chain": chain_id, "log_likelihood": value}
        with self._mutex, self.locked([chain_id]), readable_io_errors(self.path, action):
            self._manifest(chain_id).append(line, flushed=False)  # by `locked`
            self._log_likelihoods[key] = value

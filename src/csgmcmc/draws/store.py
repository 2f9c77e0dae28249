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
import platform
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from csgmcmc.arguments import check_items, check_kind
from csgmcmc.devices import check_dtype
from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.lock import acquire_lock, is_locked
from csgmcmc.draws.manifest import Lines, Manifest
from csgmcmc.draws.ordered import ByChainAndStep, Key
from csgmcmc.draws.shared import Only, SharedTensors
from csgmcmc.draws.tensors import checksum, for_disk, read_tensors, write_tensors
from csgmcmc.errors import DrawConflictError, StoreError, StoreWarning
from csgmcmc.files import (
    atomic_write,
    check_path,
    file_size,
    file_sizes,
    flush,
    readable_io_errors,
)

FORMAT = 1


class DrawStore(Draws):
    """A folder of draws.

    A pickle or a deep copy of it opens the same folder again, without its locks.

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
        self.path, self.provenance = check_path("path", path), _plain(provenance)
        if self.path.is_file():
            raise ValueError(f"path must be a folder, got the file {self.path}")
        self._only, self._dtype = only, dtype
        self._base = SharedTensors(self.path / "base.safetensors")
        self._kept: ByChainAndStep[dict[str, Any]] = ByChainAndStep()
        self._log_likelihoods: dict[Key, float] = {}
        self._headers: dict[int, dict[str, Any]] = {}
        self._manifests: dict[int, Manifest] = {}
        self._locks: dict[int, FileLock] = {}
        self._flushed_later: set[int] = set()
        self._trusted: set[str] = set()
        self._dtype_on_disk: str | None = None
        self.problems: list[str] = []
        """One sentence per damaged or leftover file."""

        if (self.path / "store.json").exists():
            self._check_format()
        self._read()
        if self.problems:
            listed = "; ".join(self.problems[:5])
            more = f"; and {len(self.problems) - 5} more" if len(self.problems) > 5 else ""
            warnings.warn(f"{self.path}: {listed}{more}", StoreWarning, stacklevel=2)

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"only": self._only, "dtype": self._dtype, "provenance": self.provenance}
        return partial(type(self), self.path.absolute(), **options), ()

    def _check_format(self) -> None:
        try:
            found = json.loads((self.path / "store.json").read_text())
        except json.JSONDecodeError as error:
            raise StoreError(f"{self.path}/store.json is damaged: {error}") from error
        if found["format"] > FORMAT:
            raise StoreError(
                f"{self.path} has format {found['format']}, newer than this version of csgmcmc "
                f"reads ({FORMAT}): upgrade csgmcmc"
            )
        self._dtype_on_disk = found.get("dtype")

    def _read(self) -> None:
        """Read the manifests, then list the files: never the other way round.

        While a chain is being written, its newest file may have no line yet.
        """
        records: list[dict[str, Any]] = []
        for path in sorted((self.path / "chains").glob("*.manifest")):
            lines = self._manifest(int(path.stem)).read_new()
            records += self._enter(int(path.stem), lines)
            self.problems += lines.problems
        sizes = file_sizes(self.path / "draws")
        whole = {
            (record["chain"], record["step"]): record
            for record in records
            if sizes.get(record["draw"]) == record["bytes"]
        }
        self._kept.update(whole)
        if len(whole) < len(records):
            self.problems += _problems_of_files(records, sizes)
        if any(record["base"] for record in records) and not self._base.path.exists():
            self.problems.append(f"{self._base.path.name}: missing, draws cannot be read")
        for name in self._leftover(sizes.keys() - {record["draw"] for record in records}):
            self.problems.append(f"draws/{name}: not in a manifest, ignored")

    def _leftover(self, without_line: set[str]) -> list[str]:
        """Of files that had no line, those that nobody is about to give one, or has meanwhile."""
        for chain_id in self._manifests if without_line else ():
            of_chain = {name for name in without_line if name.startswith(f"{chain_id:04d}-")}
            if of_chain and is_locked(self._lock_file(chain_id)):
                without_line = without_line - of_chain
            elif of_chain:
                self._read_on(chain_id)
        return sorted(without_line - {record["draw"] for record in self._kept.values()})

    def _read_on(self, chain_id: int) -> None:
        """Enter what was added to a chain's manifest since it was last read or written."""
        for record in self._enter(chain_id, self._manifest(chain_id).read_new()):
            if file_size(self.path / "draws" / record["draw"]) == record["bytes"]:
                self._kept[chain_id, record["step"]] = record
                self._trusted.discard(record["draw"])

    def _enter(self, chain_id: int, lines: Lines) -> list[dict[str, Any]]:
        """Read a manifest's header and log-likelihoods; return the lines of draws."""
        if lines.replaced:
            self._kept.forget_chain(chain_id)
            for key in [key for key in self._log_likelihoods if key[0] == chain_id]:
                del self._log_likelihoods[key]
            self._headers.pop(chain_id, None)
        records: list[dict[str, Any]] = []
        for line in lines.records:
            if "draw" in line:
                records.append(line)
            elif "likelihood_of" in line:
                self._log_likelihoods[chain_id, line["likelihood_of"]] = line["log_likelihood"]
            else:
                self._headers[chain_id] = line
        return records

    def _draw(self, key: Key) -> Draw:
        record = self._kept[key]
        log_likelihood = self._log_likelihoods.get(key, record["log_likelihood"])
        load = partial(self._load, record)
        return Draw(*key, record["cycle"], record["stage"], log_likelihood, load)

    def _load(self, record: dict[str, Any]) -> dict[str, Tensor]:
        name = record["draw"]
        if name not in self._trusted and (problem := self._damage(record)):
            raise StoreError(problem)
        base = self._base.tensors() if record["base"] else {}
        if self._base.checksum != record["base"] and record["base"]:
            raise StoreError(f"{self._base.path}: missing or damaged, draw {name} is incomplete")
        return {**base, **read_tensors(self.path / "draws" / name)}

    def _damage(self, record: dict[str, Any]) -> str | None:
        """Read all of a draw's file: what is wrong with it, or None."""
        file = self.path / "draws" / record["draw"]
        try:
            tensors = read_tensors(file)
        except StoreError as error:
            return str(error)
        if checksum(tensors) != record["checksum"]:
            return f"{file}: checksum does not match, damaged"
        self._trusted.add(record["draw"])
        return None

    def _needs_base(self) -> bool:
        return any(record["base"] for record in self._kept.values())

    def verify(self) -> list[str]:
        """Read every draw, and return one sentence for each that is damaged."""
        damages = [self._damage(record) for record in self._kept.values()]
        bases = {record["base"] for record in self._kept.values()} - {None}
        if bases:
            try:
                self._base.tensors(again=True)
                if bases != {self._base.checksum}:
                    damages.append(f"{self._base.path}: checksum does not match, damaged")
            except StoreError as error:
                damages.append(str(error))
        return [damage for damage in damages if damage is not None]

    def headers(self) -> dict[int, dict[str, Any]]:
        """Provenance of each chain, by chain_id."""
        return dict(self._headers)

    def size_on_disk(self) -> int:
        """Bytes of all draws, without `base.safetensors`."""
        return sum(record["bytes"] for record in self._kept.values())

    def lock_chain(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """Become the only writer of a chain, until `close`; `append` does so by itself.

        Raises `LockedError` if another process, or another store object, holds the lock.
        `provenance` is recorded for this chain, in addition to that of the store.
        """
        if chain_id in self._locks:
            return
        if (self.path / "store.json").exists():
            self._check_format()
            if self._dtype_on_disk != _named(self._dtype):
                raise StoreError(
                    f"{self.path} keeps draws in dtype={self._dtype_on_disk}, and was opened with "
                    f"dtype={_named(self._dtype)}: open it with the same"
                )
        self._lock(chain_id, provenance)

    def _lock(self, chain_id: int, provenance: dict[str, Any] | None = None) -> None:
        """`lock_chain` without the check of the dtype, which matters to draws only."""
        with readable_io_errors(self.path, f"locking chain {chain_id}"):
            self._create()
            what = f"chain {chain_id} of {self.path}"
            self._locks[chain_id] = acquire_lock(self._lock_file(chain_id), what)
            self._read_on(chain_id)  # another process may have written this chain
            if chain_id not in self._headers:
                made = {**self.provenance, **(provenance or {})}
                header = {"chain": chain_id, "provenance": made, "versions": versions()}
                self._manifest(chain_id).append(header)
                flush(self.path / "chains")
                self._headers[chain_id] = header

    @contextmanager
    def locked(self, chain_ids: Collection[int]) -> Iterator[None]:
        """Hold the locks of several chains, to set log-likelihoods of their draws.

        Those are written at once, and flushed to the disk together at the end of the block: a crash
        of the machine may lose those of the block, which can be computed again, but no draw.
        """
        to_lock = [chain_id for chain_id in chain_ids if chain_id not in self._locks]
        to_flush = set(chain_ids) - self._flushed_later  # others are flushed by an outer block
        self._flushed_later |= to_flush
        try:
            for chain_id in to_lock:
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
        for chain_id in list(self._locks if chain_ids is None else self._locks.keys() & chain_ids):
            self._locks.pop(chain_id).release()

    def _create(self) -> None:
        for folder in ("chains", "draws"):
            (self.path / folder).mkdir(parents=True, exist_ok=True)
        file = self.path / "store.json"
        if not file.exists():
            text = json.dumps({"format": FORMAT, "dtype": _named(self._dtype)})
            atomic_write(file, lambda temporary: temporary.write_text(text + "\n"))

    def _manifest(self, chain_id: int) -> Manifest:
        if chain_id not in self._manifests:
            path = self.path / "chains" / f"{chain_id:04d}.manifest"
            self._manifests[chain_id] = Manifest(path)
        return self._manifests[chain_id]

    def _lock_file(self, chain_id: int) -> Path:
        return self.path / "chains" / f"{chain_id:04d}.lock"

    def _append(self, draw: Draw) -> None:
        chain_id, step = draw.chain_id, draw.step
        self.lock_chain(chain_id)
        with readable_io_errors(self.path, f"writing the draw of chain {chain_id}, step {step}"):
            tensors = draw.tensors()
            if self._only is not None:
                tensors = self._base.split(tensors, self._only, self._needs_base)
            kept = for_disk(tensors, self._dtype)
            held = self._kept.get((chain_id, step))
            if held is not None:
                if held["checksum"] != checksum(kept):
                    raise DrawConflictError(chain_id, step)
                return
            name = f"{chain_id:04d}-{step:09d}.safetensors"
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
        line = {"likelihood_of": step, "log_likelihood": value}
        with self.locked([chain_id]), readable_io_errors(self.path, action):
            self._manifest(chain_id).append(line, flushed=False)  # by `locked`
        self._log_likelihoods[key] = value


def _plain(provenance: dict[str, Any] | None) -> dict[str, Any]:
    """Settings to record, or a `ValueError` if JSON cannot hold them."""
    found = {} if provenance is None else check_kind("provenance", provenance, dict, "a dictionary")
    try:
        json.dumps(found)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"provenance cannot be written as JSON: {error}") from error
    return found


def _named(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that write draws."""
    packages = {name: version(name) for name in ("csgmcmc", "torch", "numpy", "safetensors")}
    return {"python": platform.python_version(), **packages}


def _problems_of_files(records: list[dict[str, Any]], sizes: dict[str, int]) -> list[str]:
    problems: list[str] = []
    for record in records:
        name, size, expected = record["draw"], sizes.get(record["draw"]), record["bytes"]
        if size is None:
            problems.append(f"draws/{name}: missing")
        elif size != expected:
            what = "truncated" if size < expected else "too long"
            problems.append(f"draws/{name}: {what} ({size} of {expected} bytes)")
    return problems

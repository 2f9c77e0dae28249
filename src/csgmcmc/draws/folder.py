"""What is in the folder of a store: its format, its manifests, and what does not belong there."""

import json
import os
import platform
import re
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch

from csgmcmc.arguments import check_count, check_items, check_kind, plain_value, shown
from csgmcmc.draws.lock import is_locked
from csgmcmc.draws.sharded import index_name, shard_name
from csgmcmc.errors import StoreError
from csgmcmc.files import atomic_write, parts_of
from csgmcmc.schedules import Stage

FORMAT = 2
"""The newest format of a store that can be read."""

SHARDED_FORMAT = 2
"""The format of a store that has sharded draws; all others are of format 1."""

UNNAMED_PART = re.compile(r"\.tmp\w{6}")
"""Name of a file that safetensors writes before it renames it."""

STAGES = get_args(Stage)

FIELDS = {"draw", "chain", "step", "cycle", "stage", "log_likelihood", "base", "bytes", "checksum"}
"""What a line of a manifest says of a draw."""


def read_dtype(folder: Path) -> str | None:
    """The dtype of draws that `store.json` names; None if it names none, or is not there."""
    return read_header(folder)[1]


def write_header(folder: Path, number: int, dtype: str | None) -> None:
    """Say format and dtype of the store in `store.json`, unless its format is as new."""
    if read_header(folder)[0] < number:
        text = json.dumps({"format": number, "dtype": dtype}) + "\n"
        atomic_write(folder / "store.json", lambda temporary: temporary.write_text(text))


def read_header(folder: Path) -> tuple[int, str | None]:
    """Format and dtype that `store.json` names; 0 and None if it is not there.

    Raises `StoreError` if it is damaged, or of a newer version.
    """
    file = folder / "store.json"
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return 0, None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error
    said = found if isinstance(found, dict) else {}
    number, dtype = said.get("format"), said.get("dtype")
    if type(number) is not int or number < 1 or not isinstance(dtype, (str, type(None))):
        raise StoreError(f"{file} is damaged: it does not say the format and dtype of the store")
    if number > FORMAT:
        raise StoreError(
            f"{file} says format {shown(number)}, newer than this version of csgmcmc reads "
            f"({FORMAT}): upgrade csgmcmc, or, if no newer version wrote it, it is damaged"
        )
    return number, dtype


def chains_with_manifest(folder: Path) -> tuple[list[int], list[str]]:
    """Numbers of the chains that have a manifest, and a sentence for each other such file."""
    chain_ids: list[int] = []
    problems: list[str] = []
    try:
        names = sorted(os.listdir(folder / "chains"))
    except FileNotFoundError:
        return chain_ids, problems
    for name in names:
        number, dot, kind = name.partition(".")
        if dot and kind == "manifest" and number.isdecimal() and name == manifest_name(int(number)):
            chain_ids.append(int(number))
        elif name.endswith(".manifest"):
            problems.append(f"chains/{name}: not the manifest of a chain, ignored")
    return chain_ids, problems


def manifest_name(chain_id: int) -> str:
    """Name of the manifest of a chain, in the folder of chains."""
    return f"{chain_id:04d}.manifest"


def lock_file(folder: Path, chain_id: int) -> Path:
    """The file that the process which writes a chain holds a lock on."""
    return folder / "chains" / f"{chain_id:04d}.lock"


def draw_stem(chain_id: int, step: int) -> str:
    """How the names of all files of a draw begin, in the folder of draws."""
    return f"{chain_id:04d}-{step:09d}"


def draw_name(chain_id: int, step: int) -> str:
    """Name of the file of a draw that is one file."""
    return f"{draw_stem(chain_id, step)}.safetensors"


def chain_of(name: str) -> int | None:
    """Number of the chain that a file in the folder of draws is of, by its name."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else None


def is_line_of_draw(line: dict[str, Any], chain_id: int) -> bool:
    """Whether a line says all of a draw, and names the files that such a draw has."""
    return (
        line.keys() >= FIELDS
        and all(_is_count(line[name]) for name in ("step", "cycle", "bytes"))
        and _names_its_files(line, chain_id)
        and line["stage"] in STAGES
        and _is_score(line["log_likelihood"])
        and isinstance(line["checksum"], str)
        and isinstance(line["base"], (str, type(None)))
    )


def _names_its_files(line: dict[str, Any], chain_id: int) -> bool:
    if "shards" not in line:
        return line["draw"] == draw_name(chain_id, line["step"])
    shards = line["shards"]
    if type(shards) is not dict or not all(map(_is_count, shards.values())):
        return False
    name, count = draw_stem(chain_id, line["step"]), len(shards)
    names = {shard_name(name, number, count) for number in range(1, count + 1)}
    return line["draw"] == index_name(name) and shards.keys() == names


def files_of(record: dict[str, Any]) -> dict[str, int]:
    """Names and sizes of the files of a draw: one, or an index and its shards."""
    return {record["draw"]: record["bytes"], **record.get("shards", {})}


def are_whole(record: dict[str, Any], size_of: Callable[[str], int | None]) -> bool:
    """Whether all files of a draw are there, with their sizes."""
    return all(size_of(name) == size for name, size in files_of(record).items())


def is_line_of_likelihood(line: dict[str, Any]) -> bool:
    """Whether a line says which draw has which log-likelihood."""
    return _is_count(line["likelihood_of"]) and _is_score(line.get("log_likelihood", ""))


def is_header(line: dict[str, Any]) -> bool:
    """Whether a line says what makes a chain, and with which versions."""
    return isinstance(line.get("provenance"), dict) and isinstance(line.get("versions"), dict)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_score(value: Any) -> bool:
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def problems_of_files(records: Iterable[dict[str, Any]], sizes: dict[str, int]) -> list[str]:
    """A sentence for each file of a draw that is missing or has another size."""
    problems: list[str] = []
    for name, expected in (pair for record in records for pair in files_of(record).items()):
        size = sizes.get(name)
        if size is None:
            problems.append(f"draws/{name}: missing")
        elif size != expected:
            what = "truncated" if size < expected else "too long"
            problems.append(f"draws/{name}: {what} ({size} of {expected} bytes)")
    return problems


def remove_other_files(folder: Path, record: dict[str, Any]) -> None:
    """Remove files of a draw that its line does not name: another number of processes left them."""
    stem = draw_stem(record["chain"], record["step"])
    ends = (".safetensors", ".safetensors.index.json", "-*-of-*.safetensors")
    for path in [path for end in ends for path in folder.glob(stem + end)]:
        if path.name not in files_of(record):
            path.unlink(missing_ok=True)


def remove_leftover_parts(folder: Path, chain_id: int) -> None:
    """Remove temporary files that killed processes have left; called with the chain's lock held.

    Those of the chain are nobody's. Those that all chains share may be in writing by a process that
    holds the lock of another chain: they are listed first, so that their writers hold it already.
    """
    named = [*parts_of(folder, "store.json"), *parts_of(folder, "base")]
    shared = [*named, *unnamed_parts(folder / "draws"), *unnamed_parts(folder)]
    for path in parts_of(folder / "draws", f"{chain_id:04d}-"):
        path.unlink(missing_ok=True)
    if not shared:
        return
    if not is_any_locked(folder, besides=chain_id):
        for path in shared:
            path.unlink(missing_ok=True)


def unnamed_parts(folder: Path) -> list[Path]:
    """Temporary files of safetensors in a folder, whose names do not say what they are of."""
    return [folder / name for name in os.listdir(folder) if UNNAMED_PART.fullmatch(name)]


def is_any_locked(folder: Path, besides: int | None = None) -> bool:
    """Whether some process writes a chain, other than `besides`."""
    own = None if besides is None else lock_file(folder, besides)
    locks = (folder / "chains").glob("*.lock")
    return any(is_locked(path) for path in locks if path != own)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that write draws."""
    packages = {name: version(name) for name in ("csgmcmc", "torch", "numpy", "safetensors")}
    return {"python": platform.python_version(), **packages}


def checked_chain_ids(chain_ids: Iterable[int]) -> list[int]:
    """Numbers of chains, or a `ValueError`."""
    listed = check_items("chain_ids", chain_ids, "numbers of chains")
    return [check_count("each of chain_ids", chain_id, at_least=0) for chain_id in listed]


def checked_provenance(provenance: dict[str, Any] | None) -> dict[str, Any]:
    """The same as plain values, as they are read again; a `ValueError` if JSON cannot hold them."""
    found = {} if provenance is None else check_kind("provenance", provenance, dict, "a dictionary")
    try:
        return json.loads(json.dumps(plain_value(found)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"provenance must be plain values, that JSON can hold: {error}") from error


def name_of(dtype: torch.dtype | None) -> str | None:
    """How a dtype is written in a store."""
    return None if dtype is None else str(dtype)

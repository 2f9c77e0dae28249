"""Official files, fetched once into a folder of the user's."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

CACHE = "CSGMCMC_DATA"
"""Environment variable that names the folder of fetched files."""


def cache_folder() -> Path:
    """Where fetched files are kept: `$CSGMCMC_DATA`, or `~/.cache/csgmcmc`."""
    named = os.environ.get(CACHE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "csgmcmc"


def fetch(
    url: str,
    path: Path,
    md5: str | None = None,
    check: Callable[[bytes], object] | None = None,
) -> Path:
    """Download `url` to `path`, as a whole or not at all, unless it is there already.

    Args:
        url: where the file is.
        path: where it is put.
        md5: checksum of the file.
        check: for a file with no known checksum: called with what came, before it is kept; raises
            a ValueError if that is some other file, as a proxy's page.

    Raises:
        ConnectionError: there is no network, or the server does not have the file.
        ValueError: what came is not the file.
    """
    if path.exists():
        return path
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (our own https urls)
            content = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise ConnectionError(
            f"{url} cannot be downloaded ({getattr(error, 'reason', error)}): "
            f"name a folder that has {path.name} with --data"
        ) from error
    if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{url} gave another file than the official one: its checksum differs")
    if check is not None:
        check(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")  # jobs in two processes may fetch
    fresh.write_bytes(content)
    fresh.replace(path)
    return path

"""Files that are whole or not there, and errors of the file system in one sentence."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors

from csgmcmc.arguments import shown
from csgmcmc.errors import StoreError


def check_path(name: str, value: Any) -> Path:
    """A path of a file or folder, or a `ValueError`."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise ValueError(f"{name} must be a path, got {shown(value)}")
    try:
        if b"\0" not in os.fsencode(value):
            return Path(value)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be a path, got {shown(value)}: {error}") from error
    raise ValueError(f"{name} must be a path, and none holds a zero, got {shown(value)}")


def atomic_write(path: Path, write: Callable[[Path], object], *, overwrite: bool = True) -> None:
    """Let `write` make a temporary file beside `path`; flush it, then rename it to `path`.

    Without `overwrite`, a file that is already there, or appears meanwhile, stays.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        write(temporary)
        flush(temporary)
        if overwrite:
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
        flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call; it writes names in order
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int | None:
    """Size of a file, None if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def file_sizes(folder: Path) -> dict[str, int]:
    """Sizes of the files of a folder by name, empty without it; files that vanish are skipped."""
    sizes: dict[str, int] = {}
    with contextlib.ExitStack() as opened, contextlib.suppress(FileNotFoundError):
        where: Path | int = folder
        if os.scandir in os.supports_fd:  # spares the way from the root to the folder, each time
            where = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, where)
        for entry in opened.enter_context(os.scandir(where)):
            try:
                sizes[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue
    return sizes


@contextlib.contextmanager
def readable_io_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an error of the file system into a `StoreError` of one sentence."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        reason = str(error)
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in reason:
            reason = "the disk is full"
        elif code in (errno.EROFS, errno.EACCES, errno.EPERM) or "Read-only" in reason:
            reason = "it is read-only for this user"
        message = f"{path}: {action} failed: {reason}. All draws kept before are safe."
        raise StoreError(message) from error

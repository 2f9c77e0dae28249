"""Atomic writes, locks, and readable errors of the file system."""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from csgmcmc.arguments import check_kind
from csgmcmc.errors import LockedError, StoreError

PART = re.compile(r"\.\d+(\.\d+)?\.part$")
"""How the name of a temporary file ends: number of its process, and a random one."""

# A reader that asks whether a file is locked holds the lock for a moment: wait that long.
LOCK_SECONDS = 1.0


def check_path(name: str, value: Any) -> Path:
    """A path of a file or folder, or a `ValueError`."""
    return Path(check_kind(name, value, (str, os.PathLike), "a path"))


def atomic_write(path: Path, write: Callable[[Path], object], *, overwrite: bool = True) -> None:
    """Let `write` fill a temporary file beside `path`; flush it, then rename it to `path`.

    Without `overwrite`, a file that is already there, or appears meanwhile, stays.
    """
    # Other threads may write the same file, and processes of other machines with the same number.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.randbits(32)}.part")
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


def make_folder(path: Path) -> None:
    """Create a folder and its parents, and flush their names.

    Without that, a loss of power may lose the folder and all files in it.
    """
    if path.is_dir():
        return
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # a folder that this user may write but not list
        flush(path.parent)


def parts_of(folder: Path, prefix: str) -> list[Path]:
    """Temporary files of `atomic_write` in a folder, whose names begin with `prefix`."""
    return [folder / n for n in os.listdir(folder) if n.startswith(prefix) and PART.search(n)]


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call; it writes names in order
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity_of(path: Path) -> tuple[int, ...] | None:
    """A key that changes with the file, without reading it; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def file_sizes(folder: Path) -> dict[str, int]:
    """Sizes of the files of a folder by name, empty without it; files that vanish are skipped."""
    sizes: dict[str, int] = {}
    if folder.exists():
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                sizes[entry.name] = entry.stat().st_size
    return sizes


@contextlib.contextmanager
def readable_io_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an `OSError` into a `StoreError` of one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {action} failed: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """An error in a few words; torch's file writer raises other types than `OSError`."""
    code = getattr(error, "errno", None)
    is_full = code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
    return "the disk is full" if is_full else str(error)


def take_lock(path: Path, what: str) -> FileLock:
    """Lock a file for this process, until it releases the lock or ends, however it ends.

    The copy of a forked child holds no lock. `what` names what is locked in the error: "chain 0".
    """
    # Any thread may release it: a lock of one thread would stay locked then.
    lock = FileLock(path, timeout=LOCK_SECONDS, poll_interval=0.03, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(
            f"{what} is being written by another process: give each chain a chain_id of its own, "
            "or wait until that run has ended"
        ) from error
    return lock


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock on `path` now."""
    try:
        if path.exists():
            with FileLock(path, timeout=0):
                pass
    except OSError as error:  # one of a read-only disk, which has no writers, or a timeout
        return isinstance(error, Timeout)
    return False

"""Files that are whole or not there, and errors of the file system in one sentence."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from csgmcmc.arguments import shown
from csgmcmc.errors import StoreError

PART = re.compile(r"\.\d+(\.\d+)?\.part$")
"""How the name of a temporary file ends: number of its process, and a random one."""

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that are about the process, and say nothing about the file."""


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
    # Other threads may write the same file, and processes of other machines with the same number.
    own = f"{os.getpid()}.{secrets.randbits(32)}"
    temporary = path.with_name(f"{path.name}.{own}.part")
    try:
        mode = create_anew(temporary)
        write(temporary)
        if stat.S_IMODE(temporary.stat().st_mode) != mode:  # that of safetensors is 0600
            temporary.chmod(mode)
        flush(temporary)
        if overwrite:
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(temporary)
        flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def create_anew(path: Path) -> int:
    """Make an empty file in place of any file or link; returns its mode, which the umask sets."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless they are there; their names are then on the disk.

    Without its name, all that was flushed inside of it may be gone after a loss of power.
    """
    if path.is_dir():
        return
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # a folder that this user may write but not list
        flush(path.parent)


def parts_of(folder: Path, prefix: str = "") -> list[Path]:
    """Temporary files of `atomic_write` in a folder, whose names begin with `prefix`."""
    names = [name for name in os.listdir(folder) if name.startswith(prefix) and PART.search(name)]
    return [folder / name for name in names]


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
    found = identity_of(path)
    return None if found is None else found.size


class FileIdentity(NamedTuple):
    """What tells whether a file is still the same, without reading it."""

    file: tuple[int, int]
    size: int
    changed_at: int


def identity(status: os.stat_result) -> FileIdentity:
    """The identity of the file that `status` is of."""
    return FileIdentity((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


def identity_of(path: Path) -> FileIdentity | None:
    """The identity of a file, None if there is none."""
    try:
        return identity(path.stat())
    except FileNotFoundError:
        return None


def readable_size(size: float) -> str:
    """A number of bytes in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"


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
def readable_io_errors(path: Path, action: str, *, writing: bool = True) -> Iterator[None]:
    """Turn an error of the file system into a `StoreError` of one sentence."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        safe = " All draws kept before are safe." if writing else ""
        raise StoreError(f"{path}: {action} failed: {reason_of(error)}.{safe}") from error


def reason_of(error: Exception) -> str:
    """What an error of the file system means, in a few words."""
    code, reason = getattr(error, "errno", None), str(error)
    name = getattr(error, "filename", None)
    if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in reason:
        return "the disk is full"
    if code == errno.EROFS or "Read-only" in reason:
        return "it is read-only"
    if code in (errno.EACCES, errno.EPERM):
        of_what = f" for {name}" if isinstance(name, (str, Path)) else ""
        return f"this user has no permission{of_what}"
    if code == errno.ELOOP:
        return f"{name} is a symbolic link, which is not followed for writing"
    return reason

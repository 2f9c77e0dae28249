"""What a store says when it, or the disk below it, cannot do what was asked."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors


class StoreError(RuntimeError):
    """The store cannot be used as asked; what was kept in it is untouched."""


class StoreWarning(UserWarning):
    """Something in a store is damaged and passed over; the rest is usable."""


@contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Turn an error of the file system into one sentence."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        reason = str(error)
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in reason:
            reason = "the disk is full"
        elif code in (errno.EROFS, errno.EACCES, errno.EPERM) or "Read-only" in reason:
            reason = "it is read-only for this user"
        message = f"{path}: {doing} failed: {reason}. All draws kept before are safe."
        raise StoreError(message) from error

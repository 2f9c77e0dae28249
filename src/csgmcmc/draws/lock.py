"""One writer per chain: a file lock that ends with the process that holds it, however it ends."""

from pathlib import Path

from filelock import FileLock, Timeout

from csgmcmc.errors import LockedError

# A reader that asks whether a chain is locked holds the lock for a moment: wait that long.
TIMEOUT_SECONDS = 0.3


def acquire_lock(path: Path, what: str) -> FileLock:
    """Lock `path` until the lock is released, or the process ends; `what` is for the error."""
    lock = FileLock(path, timeout=TIMEOUT_SECONDS, poll_interval=TIMEOUT_SECONDS / 10)
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
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a read-only disk has no writers
        return False

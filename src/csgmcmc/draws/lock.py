"""One writer a chain: a claim that ends with the process that holds it, however it ends."""

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from csgmcmc.errors import LockedError

# A reader that asks whether a chain has a writer holds the lock for a moment: wait that long.
PATIENCE = 0.3


def claim(path: Path, what: str) -> FileLock:
    """Take the lock on `path`; it is held until released, or until the process ends."""
    lock = FileLock(path, timeout=PATIENCE, poll_interval=PATIENCE / 10)
    try:
        lock.acquire()
    except Timeout as error:
        raise LockedError(
            f"{what} is being written by another process: give each chain a number of its own, or "
            "wait until that run has ended"
        ) from error
    return lock


def is_claimed(path: Path) -> bool:
    """Whether some process holds the claim on `path` now."""
    if not path.exists():
        return False
    with suppress(OSError):  # on a disk that is read-only there are no writers
        try:
            with FileLock(path, timeout=0):
                return False
        except Timeout:
            return True
    return False

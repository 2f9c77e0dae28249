"""One writer a chain: a claim that ends with the process that holds it, however it ends."""

import fcntl
import os
import time
import weakref
from pathlib import Path

# A reader that asks whether a chain has a writer holds the lock for a moment: wait that long.
PATIENCE = 0.3


class ClaimedError(RuntimeError):
    """Another process, or another store object, is writing this chain."""


class Claim:
    """A lock on `path`, held until `release`, or the end of this object or of the process."""

    def __init__(self, path: Path, what: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self.release = weakref.finalize(self, os.close, descriptor)
        deadline = time.monotonic() + PATIENCE
        while not _lock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                holder = os.read(descriptor, 100).decode() or "unknown"
                self.release()
                raise ClaimedError(
                    f"{what} is being written by another process (id {holder}): give each chain a "
                    "number of its own, or wait until that run has ended"
                )
            time.sleep(PATIENCE / 10)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())


def is_claimed(path: Path) -> bool:
    """Whether some process holds the claim on `path` now."""
    if not path.exists():
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""One writer per chain: a file lock that ends with the process that holds it, however it ends."""

import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from csgmcmc.errors import LockedError

# A reader that asks whether a chain is locked holds the lock for a moment: wait that long.
TIMEOUT_SECONDS = 1.0


class Lock:
    """A lock of this process. A child that is forked from it has a copy, which holds nothing.

    `what` says what is locked, for the error: "chain 0 of runs/mine".
    """

    def __init__(self, path: Path, what: str) -> None:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        # Any thread may release it: a lock of one thread would stay locked then.
        options = {"timeout": TIMEOUT_SECONDS, "poll_interval": 0.03, "thread_local": False}
        self._lock = FileLock(path, **options)
        self._process_id = os.getpid()
        try:
            self._lock.acquire()
        except Timeout as error:
            raise LockedError(
                f"{what} is being written by another process: give each chain a chain_id of its "
                "own, or wait until that run has ended"
            ) from error

    @property
    def is_held(self) -> bool:
        """Whether this process holds it."""
        return self._process_id == os.getpid()

    def release(self) -> None:
        """Let others lock it."""
        if self.is_held:
            self._lock.release()


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock on `path` now."""
    if path.is_symlink() or not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # a read-only disk has no writers
        return False

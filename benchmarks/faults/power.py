"""Runs that lose power, on a simulated disk: only what was flushed is certain to be on it."""

import os
import random
import shutil
import signal
from pathlib import Path

from benchmarks.faults.runs import Life, Points, Result, kill_this_process, points_of_a_run
from benchmarks.faults.stops import check_killed, resume_and_compare, spread, uninterrupted


class Disk(Points):
    """Loses power at a point. Of what was not flushed until then, any part may be on the disk.

    The names in a folder are those of its last flush, or those of now. A file has the content of
    its last flush, and may have any part of what was written since.
    """

    def __init__(self, folder: Path, at: int, seed: int) -> None:
        super().__init__(folder, at, self._lose_power)
        self._choices = random.Random(seed)
        self._contents: dict[int, bytes] = {}  # of files, by inode, when they were flushed
        self._names: dict[int, dict[str, int]] = {os.stat(folder).st_ino: {}}  # in folders

    def _done(self, name: str, path: str, is_new: bool) -> None:
        inode = os.stat(path).st_ino if os.path.exists(path) else -1
        if name == "fsync" and os.path.isdir(path):
            self._names[inode] = _entries(path)
        elif name == "fsync":
            self._contents[inode] = Path(path).read_bytes()
        elif is_new:  # the number may have been that of another file before
            self._contents.pop(inode, None)
            self._names.pop(inode, None)

    def _lose_power(self) -> None:
        left = Path(f"{self.folder}.left")
        now = {
            os.stat(each).st_ino: each
            for each in [Path(self.folder), *Path(self.folder).rglob("*")]
        }
        self._leave(os.stat(self.folder).st_ino, left, now)
        kill_this_process()

    def _leave(self, inode: int, path: Path, now: dict[int, Path]) -> None:
        """Write what is left of a file or folder to `path`."""
        current = now.get(inode)
        if inode in self._names or (current is not None and current.is_dir()):
            path.mkdir()
            names = self._names.get(inode, {})
            if current is not None and self._choices.random() < 0.5:
                names = _entries(current)
            for name, each in names.items():
                self._leave(each, path / name, now)
            return
        flushed = self._contents.get(inode, b"")
        written = b"" if current is None else current.read_bytes()
        more = max(len(written) - len(flushed), 0) if written.startswith(flushed) else 0
        path.write_bytes(flushed + written[len(flushed) :][: self._choices.randint(0, more)])


def _entries(folder: Path | str) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def lose_power(folder: Path, count: int, seed: int) -> Result:
    """Stop a run before or after a call of the file system, and keep what its disk has then."""
    result = Result("power loss, simulated: what was not flushed is there in part")
    choices = random.Random(seed)
    right, _ = uninterrupted(folder / "whole")
    (folder / "counted").mkdir()
    points = spread(points_of_a_run(folder / "counted" / "run"), count, choices)
    for number, point in enumerate(points):
        disk = folder / f"disk-{number}"
        disk.mkdir()
        end = Life(disk / "run", Disk(disk, point, seed + number).install).wait()
        if end.code == -signal.SIGKILL:
            shutil.rmtree(disk)
            Path(f"{disk}.left").rename(disk)
        check_killed(disk / "run", end, right, result)
        resume_and_compare(disk / "run", right, result)
        shutil.rmtree(disk)
    return result

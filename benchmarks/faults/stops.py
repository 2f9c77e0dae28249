"""Runs that are stopped, by a kill or by a full disk, and go on."""

import errno
import os
import random
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.runs import (
    REFUSED,
    Bits,
    Ending,
    Life,
    Points,
    Result,
    bits_of,
    bits_of_draws,
    kill_this_process,
    points_of_a_run,
)
from csgmcmc import DrawStore

FULL = "the disk is full"


def uninterrupted(path: Path) -> tuple[Bits, float]:
    """The right bits, and the seconds that a run takes."""
    start = time.monotonic()
    end = Life(path).wait()
    assert end.code == 0, end.error
    return bits_of(path), time.monotonic() - start


def compare_stored(path: Path, end: Ending, right: Bits, result: Result) -> None:
    """After a fault: each draw that was reported is there, and each that is there is right."""
    with warnings.catch_warnings(action="ignore"):  # a kill may leave a file without a line
        try:
            found = bits_of_draws(DrawStore(path)) if path.exists() else {}
        except Exception as error:
            return result.fail("raw", f"after {end}: {error!r}")
    result.draws += len(found)
    for step in set(end.reported) - found.keys():
        result.fail("lost", f"step {step} after {end}")
    for step in found:
        if found[step] != right.draws[step]:
            result.fail("wrong", f"step {step} after {end}")
    return None


def resume_and_compare(path: Path, right: Bits, result: Result) -> None:
    """Go on to the end: all bits are those of an uninterrupted run."""
    end = Life(path).wait()
    if end.code != 0:
        return result.fail("raw", f"resuming failed with {end.code}: {end.error}")
    found = bits_of(path)
    result.draws += len(found.draws)
    for step in right.draws.keys() - found.draws.keys():
        result.fail("lost", f"step {step} of the resumed run")
    if {**right.draws, **found.draws} != right.draws or found.end != right.end:
        result.fail("wrong", f"{path.name}: the resumed run has other bits")
    return None


# Kills


def check_killed(path: Path, end: Ending, right: Bits, result: Result) -> bool:
    """Look at what a kill has left; False if the run was through before."""
    if end.code == 0:
        return False
    result.tried += 1
    if end.code != -signal.SIGKILL:
        result.fail("raw", f"a run ended with {end.code}: {end.error}")
    compare_stored(path, end, right, result)
    return True


def kill_at_random_moments(folder: Path, count: int, seed: int) -> Result:
    """Kill a run up to four times, at any moment, then let it go on to the end."""
    result = Result("SIGKILL at a random moment")
    moments = random.Random(seed)
    right, seconds = uninterrupted(folder / "whole")
    while result.tried < count:
        path = folder / f"run-{result.tried}"
        for _ in range(min(4, count - result.tried)):
            life = Life(path)
            time.sleep(moments.uniform(0, 0.7 * seconds))
            life.kill()
            if not check_killed(path, life.wait(), right, result):
                break
        resume_and_compare(path, right, result)
        shutil.rmtree(path)
    return result


def spread(names: list[str], count: int, choices: random.Random) -> list[int]:
    """Indices of points, as equally many of each name as possible."""
    by_name: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        by_name.setdefault(name, []).append(index)
    groups = [choices.sample(group, len(group)) for group in by_name.values()]
    choices.shuffle(groups)
    found: list[int] = []
    while len(found) < min(count, len(names)):
        found += [group.pop() for group in groups if group]
    return found[:count]


def kill_at_calls(folder: Path, count: int, seed: int) -> Result:
    """Kill a run before or after a call of the file system, and again while it resumes."""
    result = Result("SIGKILL before or after an open, fsync, rename, link, unlink or mkdir")
    choices = random.Random(seed)
    right, _ = uninterrupted(folder / "whole")
    points = spread(points_of_a_run(folder / "counted"), count, choices)
    while result.tried < count:
        path = folder / f"run-{result.tried}"
        for point in (points.pop(0), choices.randrange(60))[: count - result.tried]:
            life = Life(path, Points(path, point, kill_this_process).install)
            if not check_killed(path, life.wait(), right, result):
                break
        resume_and_compare(path, right, result)
        shutil.rmtree(path)
    return result


# Full disks


def check_refused(end: Ending, result: Result, where: str) -> None:
    """A full disk is one sentence that says so."""
    result.tried += 1
    if end.code == REFUSED and FULL in end.error and "\n" not in end.error:
        result.named += 1
    else:
        result.fail("raw", f"a full disk, {where}, ended with {end.code}: {end.error}")


def fail_calls(folder: Path, count: int, seed: int) -> Result:
    """Let the system refuse a call for want of space, then let the run go on."""
    result = Result("ENOSPC from an open, fsync, rename, link or mkdir")
    right, _ = uninterrupted(folder / "whole")
    names = points_of_a_run(folder / "counted")
    # Logs are for plots: without them the run goes on, which is not what is tried here.
    needs_space = [
        index
        for index, name in enumerate(names)
        if name.startswith("before") and "logs" not in name and needs_room(name)
    ]
    chosen = spread([names[i] for i in needs_space], count, random.Random(seed))

    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in chosen:
        path = folder / f"run-{number}"
        end = Life(path, Points(path, needs_space[number], refuse).install).wait()
        check_refused(end, result, names[needs_space[number]])
        compare_stored(path, end, right, result)
        resume_and_compare(path, right, result)
        shutil.rmtree(path)
    return result


def needs_room(name: str) -> bool:
    return name.split()[1] in ("creating", "fsync", "replace", "link", "mkdir")


def fill_disks(folder: Path, count: int, seed: int) -> Result:
    """Run on a disk in memory that is too small, then make it larger and let the run go on."""
    result = Result("a disk that fills up (tmpfs)")
    choices = random.Random(seed)
    right, _ = uninterrupted(folder / "whole")
    disk = folder / "disk"
    disk.mkdir()
    with mounted(disk, "64m") as is_mounted:
        if not is_mounted:
            return result  # this user may not
        Life(disk / "run").wait()
        used = os.statvfs(disk)
        blocks, block = used.f_blocks - used.f_bfree, used.f_bsize
    sizes = [choices.randrange(1, blocks) for _ in range(count)]
    while result.tried < count:
        size = sizes.pop(0) if sizes else choices.randrange(1, blocks // 2)
        with mounted(disk, str(block * size)):
            end = Life(disk / "run").wait()
            if end.code == 0:  # the log alone had no space, or there was enough
                continue
            check_refused(end, result, f"{size} blocks of {blocks}")
            compare_stored(disk / "run", end, right, result)
            mount("-o", "remount,size=64m", str(disk))
            resume_and_compare(disk / "run", right, result)
    return result


@contextmanager
def mounted(disk: Path, size: str) -> Iterator[bool]:
    is_mounted = mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk))
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run([shutil.which("umount") or "umount", str(disk)], check=True)


def mount(*words: str) -> bool:
    command = [shutil.which("mount") or "mount", *words]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False

"""Stores that are damaged, and stores that are read while they are written."""

import json
import os
import random
import shutil
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.faults.runs import Result, as_bytes, bits_of_draws, make_chain
from csgmcmc import DrawStore
from csgmcmc.draws import Draw
from csgmcmc.errors import CsgmcmcError, LockedError

# Damage

STOPPED_AT = 45  # of 60 steps: there are draws, two checkpoints, and steps left to take

FILES = {  # kinds of files, which are damaged equally often
    "draws": "draws/*.safetensors",
    "manifests": "chains/*.manifest",
    "base": "base.safetensors",
    "store.json": "store.json",
    "checkpoints": "checkpoints/*.pt",
}


class StoppedError(Exception):
    pass


def stopped_run(path: Path) -> None:
    """A run that has not ended."""

    def stop(info: Any) -> None:
        if info.tick.step == STOPPED_AT:
            raise StoppedError

    with suppress(StoppedError):
        make_chain(path, callbacks=stop).run()


def truncate(content: bytes, choices: random.Random) -> bytes:
    return content[: choices.randrange(len(content))]


def flip_a_bit(content: bytes, choices: random.Random) -> bytes:
    changed = bytearray(content)
    bit = choices.randrange(8 * len(content))
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damage(
    folder: Path, count: int, seed: int, fault: str, change: Callable[[bytes, random.Random], bytes]
) -> Result:
    """Change one file of a store, read all draws, and let the run go on."""
    result, choices = Result(fault), random.Random(seed)
    with warnings.catch_warnings(action="ignore"):
        stopped_run(folder / "stopped")
        shutil.copytree(folder / "stopped", folder / "whole")
        make_chain(folder / "whole").run(resume=True)
    right = bits_of_draws(DrawStore(folder / "whole"))
    files = {kind: sorted((folder / "stopped").glob(which)) for kind, which in FILES.items()}
    for number in range(count):
        file = choices.choice(files[list(FILES)[number % len(FILES)]])
        path = folder / "damaged"
        shutil.copytree(folder / "stopped", path)
        damaged = path / file.relative_to(folder / "stopped")
        damaged.write_bytes(change(file.read_bytes(), choices))
        _look(path, damaged, right, result)
        shutil.rmtree(path)
    return result


def _look(path: Path, damaged: Path, right: dict[int, Any], result: Result) -> None:
    """Read a damaged store, and let its run go on: the damage is named, or it does no harm."""
    result.tried += 1
    what = f"{damaged.relative_to(path)}, {result.fault} {result.tried}"
    said: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            expected = {step for step in right if step < STOPPED_AT}
            missing = _read(path, expected, right, said, result, what)
            make_chain(path).run(resume=True)
            missing |= _read(path, set(right), right, said, result, what)
        except CsgmcmcError as error:
            said.append(str(error))
            missing = set()
        except Exception:
            return result.fail("raw", f"{what}: {traceback.format_exc()}")
    text = "\n".join([*said, *(str(each.message) for each in warned)])
    if damaged.name in text or (damaged.suffix == ".manifest" and "not in a manifest" in text):
        result.named += 1
    elif missing or said:
        result.fail("lost", f"{what}: {sorted(missing)}, and only this is said: {text}")
    return None


def _read(
    path: Path,
    expected: set[int],
    right: dict[int, Any],
    said: list[str],
    result: Result,
    what: str,
) -> set[int]:
    """Read all draws: none is wrong. Returns the steps whose draws are missing or damaged."""
    found: set[int] = set()
    for draw in (store := DrawStore(path)):
        try:
            bits = bits_of_draws([draw])[draw.step]
        except CsgmcmcError as error:
            said.append(str(error))
            continue
        found.add(draw.step)
        result.draws += 1
        if bits != right.get(draw.step):
            result.fail("wrong", f"{what}: step {draw.step}")
    said += store.verify()
    return expected - found


# Readers beside a writer

SMALL, LARGE = 100, 20_000  # numbers of a draw that is read, and of one that is mapped
OFTEN = 10  # one in so many draws is large, and one in so many opens asks for the lock


def open_while_written(folder: Path, count: int, seed: int) -> Result:
    """Two processes open and read a store again and again, while a third one appends to it."""
    path, stop = folder / "store", folder / "stop"
    writer = _fork(lambda: _append_until(path, stop), folder / "writer.json")
    halves = [(count + 1) // 2, count // 2]
    readers = [
        _fork(
            lambda half=half, own=own: _open_often(path, half, seed + own), folder / f"{own}.json"
        )
        for own, half in enumerate(halves)
    ]
    total = Result("a store is opened while another process appends to it")
    for found in [reader() for reader in readers]:
        for name in found.keys() - {"fault"}:
            setattr(total, name, getattr(total, name) + found[name])
    stop.touch()
    total.fault += f" ({writer()['appended']} draws)"
    return total


def _fork(work: Callable[[], dict[str, Any]], answer: Path) -> Callable[[], dict[str, Any]]:
    """Do something in another process; what is returned waits for what it returns."""
    pid = os.fork()
    if pid == 0:
        try:
            answer.write_text(json.dumps(work()))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def wait() -> dict[str, Any]:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == 0, f"a process of this trial ended with {code}"
        return json.loads(answer.read_text())

    return wait


def _tensors(step: int) -> dict[str, torch.Tensor]:
    size = SMALL if step % OFTEN else LARGE
    return {"w": torch.arange(size) + float(step), "step": torch.tensor(step)}


def _append_until(path: Path, stop: Path) -> dict[str, Any]:
    store, step = DrawStore(path), 0
    while not stop.exists():
        store.append(_tensors(step), step=step, cycle=step // OFTEN)
        step += 1
        time.sleep(0.005)  # a run takes steps between its draws
    store.close()
    return {"appended": step}


def _open_often(path: Path, count: int, seed: int) -> dict[str, Any]:
    result, choices, seen = Result(""), random.Random(seed), 0
    while result.tried < count:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                store = DrawStore(path)
                _look_beside_writer(store, seen, choices, result)
            except Exception:
                result.fail("raw", traceback.format_exc())
                continue
        seen = len(store)
        result.tried += seen > 0
        for each in warned:
            result.fail("wrong", f"a false alarm: {each.message}")
    return vars(result)


def _look_beside_writer(
    store: DrawStore, seen: int, choices: random.Random, result: Result
) -> None:
    steps = [draw.step for draw in store]
    if steps != list(range(max(len(steps), seen))):
        result.fail("lost", f"{seen} draws were there, and now {steps}")
    chosen: list[Draw] = [*store[-3:], *choices.choices(store, k=3 if steps else 0)]
    for draw in chosen:
        result.draws += 1
        if as_bytes(draw.tensors()) != as_bytes(_tensors(draw.step)):
            result.fail("wrong", f"step {draw.step} has other bits")
        if draw.cycle != draw.step // OFTEN:
            result.fail("wrong", f"step {draw.step} has another cycle")
    if steps and result.tried % OFTEN == 0:
        try:
            DrawStore(store.path).lock_chain(0)
            result.fail("wrong", "a second process may write the chain")
        except LockedError:
            result.named += 1

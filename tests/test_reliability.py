"""Tries a few of the faults that `make faults` tries many times, and checks the trials themselves.

Trials that fork are in a process of their own, because this one has threads.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import reads
from csgmcmc import DrawStore
from csgmcmc.draws.tensors import CheckedFiles, read_tensors

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the trials need Linux")


def python(*words: str, folder: Path) -> str:
    """What a process prints; it fails if the process does."""
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)}
    command = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(
        command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def try_all(counts: dict[str, int], folder: Path, seed: int) -> None:
    options = [f"--{name}={count}" for name, count in counts.items()]
    out = folder / "faults.json"
    python("-m", "benchmarks.faults", *options, f"--seed={seed}", f"--out={out}", folder=folder)
    for one in json.loads(out.read_text())["results"]:
        assert one["lost"] == one["wrong"] == one["raw"] == 0, one["examples"]
        name = one["trial"]
        assert one["tried"] == counts[name] or (name == "full-disks" and one["tried"] == 0)


def test_a_few_faults_lose_nothing(tmp_path):
    counts = {"kills": 1, "kills-at-calls": 2, "power-losses": 2, "full-disks": 0}
    more = {"refused-calls": 1, "opens": 10, "truncations": 5, "flips": 5}
    try_all({**counts, **more}, tmp_path, seed=1)


@pytest.mark.slow
def test_many_faults_lose_nothing(tmp_path):
    counts = {"kills": 15, "kills-at-calls": 20, "power-losses": 20, "full-disks": 8}
    more = {"refused-calls": 8, "opens": 300, "truncations": 50, "flips": 50}
    try_all({**counts, **more}, tmp_path, seed=2)


# The trials notice


def test_a_store_that_checks_nothing_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(CheckedFiles, "read", lambda _, path, __: read_tensors(path))
    monkeypatch.setattr(reads, "FILES", {"draws": "draws/*.safetensors"})
    assert damage(tmp_path, 2).wrong > 0


def test_a_store_that_says_nothing_is_found_out(tmp_path, monkeypatch):
    silent = property(lambda _: [], lambda *_: None)
    monkeypatch.setattr(DrawStore, "problems", silent, raising=False)
    monkeypatch.setattr(reads, "FILES", {"manifests": "chains/*.manifest"})
    assert damage(tmp_path, 2).lost > 0


def damage(folder: Path, count: int) -> Any:
    """Change one byte: of the numbers of a draw, or of a draw's line in a manifest."""

    def change(content: bytes, _: Any) -> bytes:
        at = -3 if content[8:9] == b"{" else content.index(b'"draw"')
        changed = bytearray(content)
        changed[at] ^= 1
        return bytes(changed)

    return reads.damage(folder, count, seed=0, fault="", change=change)


BROKEN = """
import sys
from pathlib import Path
from benchmarks.faults.__main__ import prepare
from benchmarks.faults.runs import Life, Points, Result, kill_this_process
from benchmarks.faults.stops import check_killed, resume_and_compare, uninterrupted
from csgmcmc import DrawStore
from csgmcmc.loop import Stepper

append, state = DrawStore._append, Stepper.state_dict

def append_later(self, draw):
    for waiting in self.__dict__.pop("waiting", []):
        append(self, waiting)
    tensors = {name: tensor.clone() for name, tensor in draw.tensors().items()}
    object.__setattr__(draw, "_load", lambda: tensors)
    self.waiting = [draw]

def forget_momentum(self):
    found = state(self)
    return {**found, "sampler": {**found["sampler"], "state": {}}}

prepare()
folder = Path(sys.argv[1])
right, _ = uninterrupted(folder / "whole")
for kind, name, broken in [
    (DrawStore, "_append", append_later), (Stepper, "state_dict", forget_momentum)
]:
    whole, path, result = getattr(kind, name), folder / name, Result(name)
    setattr(kind, name, broken)
    life = Life(path, Points(path, 150, kill_this_process).install)
    check_killed(path, life.wait(), right, result)
    setattr(kind, name, whole)
    resume_and_compare(path, right, result)
    print(result.lost, result.wrong, result.raw)
"""


@pytest.mark.slow
def test_draws_that_are_stored_late_and_states_that_are_not_whole_are_found_out(tmp_path):
    late, forgotten = python("-c", BROKEN, str(tmp_path), folder=tmp_path).splitlines()
    assert late.split()[0] != "0"  # reported, and not on the disk when the process was killed
    assert forgotten != "0 0 0"  # other bits, or an error because of them

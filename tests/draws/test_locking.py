"""One writer for each chain, which finds what others have written before."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from csgmcmc.draws import DrawStore, keep_trainable
from csgmcmc.draws import manifest as manifest_module
from csgmcmc.errors import DrawConflictError, LockedError
from tests.draws.support import draw_file, fill

WRITER = """
import sys, torch
from csgmcmc import Tick, stack
from csgmcmc.draws import DrawStore
path, chain = sys.argv[1], int(sys.argv[2])
store = DrawStore(path)
for step in range(50):
    weights = {"w": torch.full((1000,), chain + step / 100)}
    store.append(weights, step=step, chain_id=chain)
if len(sys.argv) > 3:
    print("ready", flush=True); sys.stdin.read()
"""


def test_several_processes_write_their_chains_at_once(tmp_path):
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(chain)])
        for chain in range(4)
    ]
    assert [process.wait(timeout=400) for process in processes] == [0] * 4
    store = DrawStore(tmp_path)
    assert len(store) == 200
    assert store.verify() == []
    assert store[150].tensors()["w"][0] == 3.0


def test_a_chain_has_one_writer_and_a_killed_one_lets_go(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), "2", "wait"],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    store = DrawStore(tmp_path)
    with pytest.raises(LockedError, match=r"chain 2 .* by another process"):
        store.append({"w": torch.zeros(1000)}, step=99, chain_id=2)
    store.append({"w": torch.zeros(1000)}, step=99, chain_id=3)
    process.kill()
    process.communicate()
    store.append({"w": torch.zeros(1000)}, step=99, chain_id=2)
    assert len(DrawStore(tmp_path)) == 52


def test_two_stores_in_one_process_cannot_write_one_chain(tmp_path):
    first, second = DrawStore(tmp_path), DrawStore(tmp_path)
    first.append({"w": torch.zeros(1)}, step=1)
    with pytest.raises(LockedError):
        second.append({"w": torch.zeros(1)}, step=2)
    first.close()
    second.append({"w": torch.zeros(1)}, step=2)


def test_a_pickled_store_keeps_its_options_and_not_its_locks(tmp_path, monkeypatch):
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    monkeypatch.chdir(tmp_path)
    store = DrawStore("store", only=keep_trainable(model), dtype=torch.bfloat16)
    store.append(model, step=1)
    pickled = pickle.dumps(store)
    monkeypatch.chdir("/")
    other = pickle.loads(pickled)
    assert [draw.step for draw in other] == [1]
    with pytest.raises(LockedError):
        other.append(model, step=2)
    store.close()
    other.append(model, step=2)
    other.close()
    assert other[1].tensors()["1.weight"].dtype == torch.bfloat16
    assert draw_file(other.path, 2).stat().st_size == draw_file(other.path, 1).stat().st_size


def test_a_store_that_was_opened_earlier_sees_what_was_written_since(tmp_path):
    first, second = DrawStore(tmp_path), DrawStore(tmp_path)
    first.append({"w": torch.zeros(2)}, step=1)
    first.close()
    with pytest.raises(DrawConflictError):
        second.append({"w": torch.ones(2)}, step=1)
    second.append({"w": torch.ones(2)}, step=2)
    second.close()
    assert [draw.tensors()["w"][0] for draw in DrawStore(tmp_path)] == [0, 1]


def test_a_lock_reads_what_another_has_written_since(tmp_path):
    first = fill(tmp_path, count=6)
    second = DrawStore(tmp_path)
    second.append({"w": torch.full((100,), 8.0)}, step=8)
    second.append({"w": torch.full((100,), 7.0)}, step=7)
    second.close()
    first.lock_chain(0)
    assert [draw.step for draw in first] == [0, 1, 2, 3, 4, 5, 7, 8]


def test_new_lines_without_their_files_are_not_draws(tmp_path):
    first = fill(tmp_path, count=2)
    second = DrawStore(tmp_path)
    for step in (2, 3):
        second.append({"w": torch.full((100,), float(step))}, step=step)
    second.close()
    os.truncate(draw_file(tmp_path, 2), 50)
    draw_file(tmp_path, 3).unlink()
    first.lock_chain(0)
    assert [draw.step for draw in first] == [0, 1]


def test_a_store_that_was_made_anew_is_read_anew(tmp_path):
    """What the first object knows of the old draws must not keep it from writing new ones."""
    first = fill(tmp_path / "store", count=3)
    shutil.rmtree(tmp_path / "store")
    second = DrawStore(tmp_path / "store")
    second.append({"w": torch.full((100,), 2.0)}, step=2)
    second.close()
    first.append({"w": torch.ones(100)}, step=0)
    first.close()
    for store in (first, DrawStore(tmp_path / "store")):
        assert [draw.step for draw in store] == [0, 2]
        assert store.verify() == []


def test_a_draw_that_is_written_while_the_store_is_opened_is_no_damage(tmp_path, monkeypatch):
    fill(tmp_path, count=2)
    sizes = manifest_module.file_sizes

    def written_first(folder: Path) -> dict[str, int]:
        """The manifests were read; now another process writes and ends, then files are listed."""
        writer = DrawStore(tmp_path)
        writer.append({"w": torch.ones(100)}, step=7)
        writer.close()
        return sizes(folder)

    with monkeypatch.context() as patch:
        patch.setattr(
            manifest_module, "file_sizes", lambda path: patch.undo() or written_first(path)
        )
        store = DrawStore(tmp_path)
    assert store.problems == []
    assert [draw.step for draw in store] == [0, 1]


def test_a_file_without_a_line_is_neither_a_draw_nor_damage_and_is_replaced(tmp_path):
    fill(tmp_path, count=2)
    draw_file(tmp_path, 9).write_bytes(b"a crash came before the line")
    store = DrawStore(tmp_path)
    assert store.problems == []
    assert [draw.step for draw in store] == [0, 1]
    store.append({"w": torch.ones(100)}, step=9)
    assert DrawStore(tmp_path)[2].tensors()["w"].tolist() == [1.0] * 100


def test_opening_takes_no_lock(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(manifest_module, "is_locked", lambda _: pytest.fail("takes a lock"))
    assert len(DrawStore(tmp_path)) == 5

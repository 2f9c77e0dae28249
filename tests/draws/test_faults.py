"""Processes, threads, users and other programs around one store: one sentence, or no harm."""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc import files
from csgmcmc.draws import DrawStore, MemoryDraws, keep_trainable
from csgmcmc.draws.manifest import Manifest
from csgmcmc.errors import CsgmcmcError, LockedError, StoreError
from csgmcmc.files import PART, is_locked
from tests.draws.support import draw_file, fill


def modes(folder: Path) -> set[str]:
    return {oct(stat.S_IMODE(p.stat().st_mode)) for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("mask", "mode"), [(0o022, "0o644"), (0o027, "0o640"), (0o002, "0o664")])
def test_the_umask_decides_who_may_read(tmp_path, mask, mode):
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    before = os.umask(mask)
    try:
        with_base = DrawStore(tmp_path, only=keep_trainable(model))
        with_base.append(model, step=0)
        with_base.close()
    finally:
        os.umask(before)
    lock = tmp_path / "chains" / "0000.lock"
    assert draw_file(tmp_path, 0).exists()
    assert (tmp_path / "base.safetensors").exists()
    lock.unlink()  # which filelock makes
    assert modes(tmp_path) == {mode}


@pytest.mark.parametrize("shared", [True, False], ids=["one object", "an object each"])
def test_threads_begin_one_new_store(tmp_path, monkeypatch, shared):
    errors, flush = [], files.flush
    # A slow disk, so that all of them write the files of the store at the same time.
    monkeypatch.setattr(files, "flush", lambda path: time.sleep(0.02) or flush(path))
    # They look at each other's locks, and on a busy machine a look may take long.
    monkeypatch.setattr("csgmcmc.files.LOCK_SECONDS", 60.0)
    one, start = DrawStore(tmp_path / "store"), threading.Barrier(4)

    def write(chain_id: int) -> None:
        try:
            start.wait()
            store = one if shared else DrawStore(tmp_path / "store")
            for step in range(5):
                store.append(
                    {"w": torch.full((9,), chain_id + 0.1 * step)}, step=step, chain_id=chain_id
                )
            store.close([chain_id])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(chain_id,)) for chain_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store = DrawStore(tmp_path / "store")
    assert [(draw.chain_id, draw.step) for draw in store] == [
        (c, s) for c in range(4) for s in range(5)
    ]
    assert store.verify() == []


def test_a_lock_that_one_thread_took_is_released_by_another(tmp_path):
    store = DrawStore(tmp_path)
    thread = threading.Thread(target=store.lock_chain, args=(0,))
    thread.start()
    thread.join()
    assert is_locked(tmp_path / "chains" / "0000.lock")
    store.close()
    assert not is_locked(tmp_path / "chains" / "0000.lock")


FORKED = """
import os, sys, torch
from csgmcmc import DrawStore
from csgmcmc.files import is_locked
from csgmcmc.draws.manifest import Manifest
from csgmcmc.errors import LockedError
store = DrawStore(sys.argv[1])
store.append({"w": torch.zeros(3)}, step=0)
child = os.fork()
if child == 0:
    try:
        store.append({"w": torch.ones(3)}, step=1)
    except LockedError:
        assert len(store) == 1 and store[0].tensors()["w"].tolist() == [0, 0, 0]
        store.append({"w": torch.ones(3)}, step=1, chain_id=1)  # a chain of its own
        store.close()
        os._exit(7)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert is_locked(store.path / "chains" / "0000.lock")
store.append({"w": torch.full((3,), 2.0)}, step=1)
store.close()
again = DrawStore(store.path)
found = [(draw.chain_id, draw.step, draw.tensors()["w"][0].item()) for draw in again]
assert found == [(0, 0, 0.0), (0, 1, 2.0), (1, 1, 1.0)], found
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_write_the_chain_of_its_parent(tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path)], check=True)


def test_the_next_writer_removes_what_a_killed_one_has_left(tmp_path):
    fill(tmp_path, count=2)
    fill(tmp_path, count=2, chain=1)
    parts = [
        tmp_path / "draws" / "0000-000000009.safetensors.123.part",
        tmp_path / "draws" / "0000-000000009.safetensors.123.456.part",
        tmp_path / "base.safetensors.99999.1.part",
    ]
    kept = [
        tmp_path / "draws" / "0001-000000009.safetensors.123.part",  # of another chain
        tmp_path / "draws" / "0000-notes.part",
        tmp_path / "my.part",
        tmp_path / "run.json.99999.1.part",  # which a run writes without the lock of a chain
    ]
    for path in (*parts, *kept):
        path.write_bytes(b"torn")
    store = DrawStore(tmp_path)
    assert all(path.exists() for path in (*parts, *kept))  # readers remove nothing
    store.append({"w": torch.ones(100)}, step=7)
    store.close()
    assert not any(path.exists() for path in parts)
    assert all(path.exists() for path in kept)
    store.lock_chain(1)
    store.close()
    assert not kept[0].exists()
    assert all(path.exists() for path in kept[1:])


def test_what_all_chains_share_is_left_to_a_writer_of_another_chain(tmp_path):
    other = fill(tmp_path, count=2, chain=1)
    other.lock_chain(1)
    parts = [tmp_path / f"{name}.99999.1.part" for name in ("base.safetensors", "store.json")]
    for part in parts:
        part.write_bytes(b"in writing")
    fill(tmp_path, count=2)
    assert all(part.exists() for part in parts)
    other.close()
    fill(tmp_path, count=1, chain=2)
    assert not any(part.exists() for part in parts)


CONTENTS = [
    b"",
    b"[]",
    b"5",
    b"null",
    b'"format"',
    b"\xff",
    b'{"gormat":1}',
    b'{"format":"1"}',
    b'{"format":null}',
    b'{"format":1,"dtype":[]}',
    b'{"format":1,"dtype":7}',
    b"\x00" * 100,
]


@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_any_content_of_the_store_file_is_said(tmp_path, content):
    store = fill(tmp_path, count=1)
    (tmp_path / "store.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.json is damaged"):
        DrawStore(tmp_path)
    with pytest.raises(StoreError, match=r"store\.json is damaged"):
        store.append({"w": torch.ones(100)}, step=5)


def test_every_flipped_bit_of_the_store_file_opens_or_is_said(tmp_path):
    fill(tmp_path, count=1)
    file = tmp_path / "store.json"
    content = file.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        with suppress(CsgmcmcError):
            assert len(DrawStore(tmp_path)) == 1


def test_other_files_beside_the_manifests_are_ignored(tmp_path):
    fill(tmp_path, count=2)
    manifest = tmp_path / "chains" / "0000.manifest"
    for name in ("notes.manifest", "0000 (copy).manifest", "00000.manifest", "-1.manifest"):
        shutil.copy(manifest, tmp_path / "chains" / name)
    assert len(DrawStore(tmp_path)) == 2


def test_swapped_manifests_are_refused(tmp_path):
    store = DrawStore(tmp_path)
    for chain in (0, 1, 2):
        store = fill(tmp_path, count=3, chain=chain)
    first, second = (tmp_path / "chains" / f"000{chain}.manifest" for chain in (0, 1))
    aside = first.rename(tmp_path / "aside")
    second.rename(first)
    aside.rename(second)
    with pytest.raises(StoreError, match=r"0000\.manifest is the manifest of chain 1"):
        DrawStore(tmp_path)
    with pytest.raises(StoreError, match=r"0001\.manifest is the manifest of chain 0"):
        store.append({"w": torch.ones(100)}, step=7, chain_id=1)
    assert not is_locked(tmp_path / "chains" / "0001.lock")
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    again = DrawStore(tmp_path)
    assert again.problems == []
    assert [(draw.chain_id, draw.step) for draw in again] == [
        (c, s) for c in range(3) for s in range(3)
    ]


def test_unknown_keys_and_lines_of_a_newer_version_are_ignored(tmp_path):
    fill(tmp_path, count=2)
    manifest = Manifest(tmp_path / "chains" / "0000.manifest")
    last = manifest.read()[0][-1]
    manifest.append({**last, "note": "new"})
    manifest.append({"weight_of": 1, "chain": 0, "weight": 0.5})
    store = DrawStore(tmp_path)
    assert store.problems == store.verify() == []
    assert [draw.step for draw in store] == [0, 1]


@pytest.mark.parametrize("name", ["chains", "draws", "store.json", "chains/0000.manifest"])
def test_a_folder_for_a_file_and_a_file_for_a_folder_is_said(tmp_path, name):
    fill(tmp_path, count=1)
    path = tmp_path / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("x")
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(StoreError, match="reading the store failed"):
        DrawStore(tmp_path)


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="Not a directory"):
        DrawStore(tmp_path / "file")
    with pytest.raises(StoreError, match="Not a directory"):
        DrawStore(tmp_path / "file" / "store").append({"w": torch.ones(1)}, step=0)


AS_NOBODY = """
import os, sys
from pathlib import Path
from csgmcmc import DrawStore
from csgmcmc.errors import StoreError
root = os.geteuid() == 0
for name in sys.argv[2:]:
    path = Path(sys.argv[1], name)
    before = path.stat().st_mode
    path.chmod(0)
    if root:  # who may read everything
        os.setegid(65534); os.seteuid(65534)
    try:
        store = DrawStore(sys.argv[1])
        print(len(store), store.verify() or store[0].tensors())
    except StoreError as error:
        print("StoreError", error)
    if root:
        os.seteuid(0); os.setegid(0)
    path.chmod(before)
"""


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there are no such users here")
def test_what_may_not_be_read_is_said(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):  # a temporary folder is its owner's alone
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode | 0o111)
    store = tmp_path / "store"
    fill(store, count=1)
    draw = "draws/0000-000000000.safetensors"
    names = [".", "chains", "draws", "store.json", "chains/0000.manifest", draw]
    command = [sys.executable, "-c", AS_NOBODY, str(store), *names]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout
    for name, line in zip(names, printed.splitlines(), strict=True):
        assert "Permission denied" in line
        assert str(store / name) in line
        assert line.startswith("1 [" if name == draw else "StoreError")


def test_a_link_in_the_place_of_a_new_file_is_replaced(tmp_path):
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    fill(path, count=2)
    draw_file(path, 7).symlink_to(elsewhere)
    store = DrawStore(path)
    store.append({"w": torch.ones(100)}, step=7)
    store.close()
    assert elsewhere.read_text() == "mine"
    assert not any(PART.search(name) for name in os.listdir(path / "draws"))
    assert DrawStore(path).verify() == []


@pytest.mark.parametrize("size", [100, 20_000], ids=["read", "mapped"])
def test_a_draw_that_was_changed_after_its_first_read_is_found(tmp_path, size):
    fill(tmp_path, count=2, size=size)
    store = DrawStore(tmp_path)
    assert store[1].tensors()["w"][0] == 1
    content = bytearray(draw_file(tmp_path, 1).read_bytes())
    content[-2] ^= 1
    draw_file(tmp_path, 1).write_bytes(content)
    os.utime(draw_file(tmp_path, 1), ns=(0, 0))  # a clock may not tell this write from the first
    with pytest.raises(StoreError, match=r"000000001.*checksum does not match"):
        store[1].tensors()
    assert store[0].tensors()["w"][0] == 0


def test_an_unchanged_draw_is_checked_once(tmp_path, monkeypatch):
    fill(tmp_path, count=2)
    store = DrawStore(tmp_path)
    store[1].tensors()
    monkeypatch.setattr("csgmcmc.draws.tensors.checksum", lambda _: pytest.fail("checked again"))
    assert store[1].tensors()["w"][0] == 1


def test_a_header_names_what_made_the_draws(tmp_path):
    """A run that is stopped before its first draw leaves nothing that the next one would keep."""
    stopped = DrawStore(tmp_path)
    stopped.lock_chain(0, provenance={"seed": 1})
    stopped.close()
    header = {"chain": 0, "provenance": {"seed": 2}, "versions": {"csgmcmc": "0.1.0"}}
    Manifest(tmp_path / "chains" / "0000.manifest").append(header)  # as versions before did
    store = DrawStore(tmp_path)
    store.lock_chain(0, provenance={"seed": 3})
    store.append({"w": torch.ones(3)}, step=0)
    store.close()
    later = DrawStore(tmp_path)
    later.lock_chain(0, provenance={"seed": 4})
    later.append({"w": torch.ones(3)}, step=1)
    later.close()
    assert DrawStore(tmp_path).headers()[0]["provenance"] == {"seed": 3}


def test_provenance_is_stored_as_plain_values(tmp_path):
    made = {"lr": np.array(0.1), "steps": np.int64(3), "betas": (np.float32(0.5), torch.tensor(2))}
    store = DrawStore(tmp_path, provenance=made)
    store.append({"w": torch.ones(3)}, step=0)
    store.close()
    again = DrawStore(tmp_path)
    assert again.headers()[0]["provenance"] == {"lr": 0.1, "steps": 3, "betas": [0.5, 2]}
    with pytest.raises(ValueError, match="provenance must be plain values"):
        DrawStore(tmp_path, provenance={"f": print})


FLOAT8 = [name for name in dir(torch) if name.startswith("float8_")]


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_numbers_of_8_bits_are_kept(tmp_path, name, dtype):
    values = torch.tensor([0.5, 1.0, 2.0, 4.0]).to(getattr(torch, name))
    store = DrawStore(tmp_path, dtype=dtype)
    for _ in range(2):
        store.append({"w": torch.ones(2), "scale": values}, step=0)
    store.close()
    again = DrawStore(tmp_path)
    assert again.verify() == []
    found = again[0].tensors()["scale"]
    assert found.dtype == (dtype or values.dtype)
    assert found.float().tolist() == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "value",
    [torch.ones(2, dtype=torch.complex128), torch.ones(2, 2).to_sparse()],
    ids=["complex128", "sparse"],
)
def test_what_a_file_cannot_hold_is_refused_in_a_sentence(tmp_path, value):
    store = DrawStore(tmp_path)
    with pytest.raises(ValueError, match=r"extra is torch\.\w+, torch\.\w+, which"):
        store.append({"w": torch.ones(2), "extra": value}, step=0)
    assert len(store) == 0
    if value.layout == torch.strided:
        MemoryDraws().append({"extra": value}, step=0)


def test_a_chain_that_another_process_writes_is_locked_for_this_one(tmp_path):
    store = fill(tmp_path, count=1)
    store.lock_chain(0)
    with pytest.raises(LockedError):
        DrawStore(tmp_path).lock_chain(0)
    store.close()
    assert json.loads((tmp_path / "store.json").read_text()) == {"format": 1, "dtype": None}

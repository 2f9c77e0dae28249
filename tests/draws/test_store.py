import json
import os
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from csgmcmc import stack
from csgmcmc.draws import DrawStore, keep_trainable
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import PART
from csgmcmc.loop.checkpoint import Checkpoints
from tests.draws.support import draw_file, fill, reopened


def test_a_draw_is_flushed_before_it_is_named_and_named_before_it_is_listed(tmp_path, monkeypatch):
    store = DrawStore(tmp_path)
    store.append({"w": torch.ones(3)}, step=0)
    events = []

    def fsync(descriptor):
        file = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        events.append(("flush", PART.sub(".part", file)))

    def replace(self, target):
        events.append(("rename", Path(target).name))
        return os.rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    store.append({"w": torch.zeros(3)}, step=5)
    name = "0000-000000005.safetensors"
    assert events == [
        ("flush", f"{name}.part"),
        ("rename", name),
        ("flush", "draws"),
        ("flush", "0000.manifest"),
    ]


def test_new_folders_are_flushed_into_those_above_them(tmp_path, monkeypatch):
    """Else a loss of power may take the whole store."""
    flushed, fsync = set(), os.fsync

    def record(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            flushed.update(path.iterdir())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    path = tmp_path / "some" / "where"
    DrawStore(path).append({"w": torch.ones(3)}, step=0)
    Checkpoints(path / "checkpoints", "0000").save({"taken": 1})
    folders = {each for each in tmp_path.rglob("*") if each.is_dir()}
    assert len(folders) == 5
    assert folders <= flushed


def test_reading_makes_nothing(tmp_path):
    assert len(DrawStore(tmp_path / "nothing")) == 0
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_file_is_named_and_the_rest_stays(tmp_path):
    fill(tmp_path)
    draw_file(tmp_path, 0).unlink()
    os.truncate(draw_file(tmp_path, 1), 100)
    content = bytearray(draw_file(tmp_path, 2).read_bytes())
    content[-7] ^= 1
    draw_file(tmp_path, 2).write_bytes(content)
    (tmp_path / "draws" / "0000-000000009.safetensors").write_bytes(b"never committed")
    (tmp_path / "draws" / "0000-000000009.safetensors.123.part").write_bytes(b"torn")

    store = reopened(tmp_path)
    named = "\n".join(store.problems)
    assert "0000-000000000.safetensors: missing" in named
    assert "0000-000000001.safetensors: 100 of" in named
    assert "000000009" not in named  # not a draw
    assert [draw.step for draw in store] == [2, 3, 4]
    with pytest.raises(StoreError, match=r"000000002.*checksum"):
        store[0].tensors()
    assert store[1].tensors()["w"][0] == 3
    assert [line for line in store.verify() if "000000002" in line] == store.verify()


def test_a_flipped_header_is_named(tmp_path):
    fill(tmp_path, count=2)
    content = bytearray(draw_file(tmp_path, 1).read_bytes())
    content[9] ^= 0xFF
    draw_file(tmp_path, 1).write_bytes(content)
    store = DrawStore(tmp_path)
    assert len(store.verify()) == 1
    with pytest.raises(StoreError, match="cannot be read"):
        store[1].tensors()


@pytest.mark.parametrize("cut", [2, 5, 40])
def test_a_torn_line_is_named_and_does_not_swallow_the_next(tmp_path, cut):
    fill(tmp_path)
    manifest = tmp_path / "chains" / "0000.manifest"
    os.truncate(manifest, manifest.stat().st_size - cut)
    store = reopened(tmp_path)
    assert any("line 6: torn" in problem for problem in store.problems)
    assert len(store) == 4
    store.append({"w": torch.zeros(100)}, step=7)
    store.append({"w": torch.full((100,), 4.0)}, step=4)  # the one whose line was torn
    store.close()
    store = reopened(tmp_path)
    assert [draw.step for draw in store] == [0, 1, 2, 3, 4, 7]
    assert store.verify() == []


def test_a_changed_line_is_named(tmp_path):
    fill(tmp_path)
    manifest = tmp_path / "chains" / "0000.manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b'"cycle":0', b'"cycle":1', 1))
    store = reopened(tmp_path)
    assert any("line 2: torn or changed" in problem for problem in store.problems)
    assert len(store) == 4


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 50)])
def test_a_lost_file_can_be_appended_again(tmp_path, damage):
    fill(tmp_path)
    damage(draw_file(tmp_path, 3))
    store = reopened(tmp_path)
    store.append({"w": torch.full((100,), 3.0)}, step=3)
    store.close()
    store = DrawStore(tmp_path)
    assert store.problems == []
    assert len(store) == 5


def test_only_what_changes_is_kept_over_one_base(tmp_path):
    model: Any = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 2))
    model[0].requires_grad_(False)
    store = DrawStore(tmp_path, only=keep_trainable(model))
    for step in range(3):
        with torch.no_grad():
            model[2].weight.fill_(step)
        store.append(model, step=step)
    assert draw_file(tmp_path, 0).stat().st_size < 20_000
    assert (tmp_path / "base.safetensors").stat().st_size > 300 * 300 * 4
    store.close()
    again = DrawStore(tmp_path)
    assert again[1].tensors().keys() == model.state_dict().keys()
    other: Any = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 2))
    again[1].load_into(other)
    assert torch.equal(other[0].weight, model[0].weight)
    assert (other[2].weight == 1).all()

    with torch.no_grad():
        model[0].weight[0, 0] += 1
    with pytest.raises(StoreError, match=r"0\.weight .* differs from the base"):
        DrawStore(tmp_path, only=["2.weight", "2.bias"]).append(model, step=9, chain_id=1)
    with pytest.raises(ValueError, match="keeps nothing"):
        DrawStore(tmp_path, only=["typo"]).append(model, step=9, chain_id=1)


def test_narrow_dtype_halves_the_file_and_loads_into_the_model(tmp_path):
    model = nn.Linear(100, 100)
    DrawStore(tmp_path / "wide").append(model, step=0)
    DrawStore(tmp_path / "narrow", dtype=torch.bfloat16).append(model, step=0)
    wide, narrow = (DrawStore(tmp_path / name).size_on_disk() for name in ("wide", "narrow"))
    assert narrow < 0.52 * wide
    other = nn.Linear(100, 100)
    DrawStore(tmp_path / "narrow")[0].load_into(other)
    assert other.weight.dtype == torch.float32
    torch.testing.assert_close(other.weight, model.weight, rtol=0.01, atol=1e-4)


def test_provenance_and_versions_are_kept(tmp_path):
    store = DrawStore(tmp_path, provenance={"seed": 4})
    store.append({"w": torch.zeros(1)}, step=0, chain_id=1)
    header = DrawStore(tmp_path).headers()[1]
    assert header["provenance"] == {"seed": 4}
    assert header["versions"]["torch"] == torch.__version__


def test_a_newer_format_is_refused_untouched(tmp_path):
    fill(tmp_path)
    (tmp_path / "store.json").write_text(json.dumps({"format": 99}))
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=r"store\.json says format 99, newer"):
        DrawStore(tmp_path)
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_disk_is_said_and_loses_nothing(small_disk):
    store = DrawStore(small_disk / "store")
    kept = 0
    with pytest.raises(StoreError, match=r"step \d+ failed: the disk is full"):
        for step in range(100):
            store.append({"w": torch.full((20_000,), float(step))}, step=step)
            kept += 1
    assert 5 < kept < 15
    store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        store = DrawStore(small_disk / "store")
    assert len(store) == kept
    assert store.verify() == []
    (small_disk / "store" / "draws" / "0000-000000000.safetensors").unlink()  # room again
    store.append({"w": torch.full((20_000,), float(kept))}, step=kept)


def test_a_read_only_store_is_said_and_can_be_read(small_disk):
    fill(small_disk / "store", count=3)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    store = DrawStore(small_disk / "store")
    assert store[2].tensors()["w"][0] == 2
    with pytest.raises(StoreError, match="Read-only"):
        store.append({"w": torch.zeros(100)}, step=9)
    assert len(store) == 3


def fine_tuned(path):
    model: Any = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 2))
    model[0].requires_grad_(False)
    store = DrawStore(path, only=keep_trainable(model))
    store.append(model, step=1)
    store.close()
    return model


def test_a_damaged_or_missing_base_is_named(tmp_path):
    model = fine_tuned(tmp_path)
    base = tmp_path / "base.safetensors"
    whole = base.read_bytes()
    base.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    store = DrawStore(tmp_path)
    assert any("base.safetensors: missing or damaged" in line for line in store.verify())
    with pytest.raises(StoreError, match=r"base\.safetensors: missing or damaged"):
        DrawStore(tmp_path)[0].tensors()

    base.unlink()
    store = reopened(tmp_path)
    assert "base.safetensors: missing" in store.problems[0]
    with pytest.raises(StoreError, match=r"base\.safetensors: missing or damaged"):
        store[0].tensors()
    with pytest.warns(StoreWarning):
        again = DrawStore(tmp_path, only=keep_trainable(model))
    again.append(model, step=2)  # which writes the base again
    again.close()
    assert base.read_bytes() == whole
    assert DrawStore(tmp_path).verify() == []


def test_dtypes_that_cannot_hold_the_draws_are_refused(tmp_path):
    with pytest.raises(ValueError, match="dtype must be a floating point dtype"):
        DrawStore(tmp_path, dtype=torch.int8)
    store = DrawStore(tmp_path / "half", dtype=torch.float16)
    with pytest.raises(ValueError, match="w holds numbers too large"):
        store.append({"w": torch.tensor([1e6])}, step=1)
    store.append({"w": torch.tensor([1.0])}, step=1)
    store.close()
    with pytest.raises(StoreError, match=r"keeps draws in dtype=torch\.float16"):
        DrawStore(tmp_path / "half", dtype=torch.float64).append({"w": torch.ones(1)}, step=2)
    again = DrawStore(tmp_path / "half")
    again.append({"w": torch.tensor([0.1])}, step=2)  # in the dtype of the store
    assert again[1].tensors()["w"].dtype == torch.float16


def test_frozen_ties_and_stacks_are_left_out_too():
    model: Any = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].requires_grad_(False)
    kept = {name for name in model.state_dict() if keep_trainable(model)(name)}
    assert kept == {"1.bias", "2.weight", "2.bias"}
    stacked = stack(model, chains=2)
    names = stacked.chain_tensors()[0]
    assert {name for name in names if keep_trainable(stacked)(name)} == kept


def test_a_torn_store_file_is_said(tmp_path):
    fill(tmp_path, count=1)
    (tmp_path / "store.json").write_text('{"form')
    with pytest.raises(StoreError, match=r"store\.json is damaged"):
        DrawStore(tmp_path)

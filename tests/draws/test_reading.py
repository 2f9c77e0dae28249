"""Draws are read or mapped: no file stays open, and only damage is called so."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from csgmcmc.draws import DrawStore
from csgmcmc.draws.tensors import MAX_READ
from csgmcmc.errors import StoreError
from tests.draws.support import draw_file, fill

LARGE = MAX_READ // 4 + 1  # floats: the file is mapped
EACH_WAY = pytest.mark.parametrize("size", [100, LARGE], ids=["read", "mapped"])


def open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def is_mapped(tensor: torch.Tensor, name: str) -> bool:
    return any(
        int(low, 16) <= tensor.data_ptr() < int(high, 16) and name in line
        for line in Path("/proc/self/maps").read_text().splitlines()
        for low, high in [line.split()[0].split("-")]
    )


@EACH_WAY
def test_opening_reads_manifests_alone_and_large_draws_are_mapped(tmp_path, size):
    fill(tmp_path, count=20, size=size)
    for step in range(20):  # the same size, but nothing that could be read
        if step != 11:
            draw_file(tmp_path, step).write_bytes(b"x" * draw_file(tmp_path, step).stat().st_size)
    store = DrawStore(tmp_path)
    assert len(store) == 20
    assert is_mapped(store[11].tensors()["w"], "0000-000000011") == (size == LARGE)


@EACH_WAY
def test_writing_to_a_loaded_draw_leaves_the_file_alone(tmp_path, size):
    fill(tmp_path, size=size)
    DrawStore(tmp_path)[2].tensors()["w"].zero_()
    assert DrawStore(tmp_path).verify() == []


@EACH_WAY
def test_a_draw_that_is_in_use_holds_no_file_open(tmp_path, size):
    fill(tmp_path, size=size)
    store = DrawStore(tmp_path)
    held = [draw.tensors() for draw in store]
    assert not any(str(tmp_path) in name for name in open_files())
    assert [tensors["w"][-1].item() for tensors in held] == [0, 1, 2, 3, 4]


@EACH_WAY
@pytest.mark.parametrize("length", [0, 7, 60, 200])
def test_a_draw_that_was_truncated_after_opening_is_damaged(tmp_path, size, length):
    fill(tmp_path, size=size)
    store = DrawStore(tmp_path)
    os.truncate(draw_file(tmp_path, 3), length)
    with pytest.raises(StoreError, match=r"000000003.*cannot be read"):
        store[3].tensors()
    assert len(store.verify()) == 1


def fails_with(error: Exception):
    def failing(*args, **kwargs):
        raise error

    return failing


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_draw_that_cannot_be_read_is_named_with_the_reason(tmp_path, monkeypatch, code):
    store = fill(tmp_path, count=1)
    monkeypatch.setattr(Path, "open", fails_with(OSError(code, os.strerror(code))))
    assert [line for line in store.verify() if os.strerror(code) in line] == store.verify()
    with pytest.raises(StoreError, match="cannot be read"):
        store[0].tensors()


def test_too_many_mappings_are_named(tmp_path, monkeypatch):
    store = fill(tmp_path, count=1, size=LARGE)
    message = "unable to mmap 70000 bytes: Cannot allocate memory (12)"
    monkeypatch.setattr(torch, "from_file", fails_with(RuntimeError(message)))
    with pytest.raises(StoreError, match=r"cannot be read \(.*Cannot allocate memory"):
        store[0].tensors()


def test_safetensors_reads_what_was_written(tmp_path):
    tied = torch.randn(3, 5)
    tensors = {
        "b": tied.t(),  # not contiguous
        "a": torch.tensor(7),
        "half": torch.randn(5).half(),
        "flags": torch.tensor([True, False, True]),
        "nothing": torch.empty(0, 4),
        "one": tied,
        "other": tied,
    }
    store = DrawStore(tmp_path)
    store.append(tensors, step=0)
    found = load_file(next(tmp_path.glob("draws/*.safetensors")))
    assert found.keys() == tensors.keys() - {"other"}  # which is stored once
    for name, tensor in found.items():
        assert tensor.dtype == tensors[name].dtype
        assert torch.equal(tensor, tensors[name])
    assert torch.equal(store[0].tensors()["other"], tied)

"""Draws of models that are sharded over processes."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.errors import StoreError, StoreWarning
from tests.draws import sharded_jobs as jobs
from tests.processes import all_succeed, run_together

STEM = "0000-000000003"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sharded")
    all_succeed(jobs.write, out, processes=4)
    return out


@pytest.fixture
def store(written, tmp_path) -> Path:
    """A store that a test may damage."""
    return shutil.copytree(written / "tensor", tmp_path / "store")


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", jobs.KINDS)
def test_they_are_read_like_any_other(written, kind):
    store, whole = DrawStore(written / kind), jobs.network().state_dict()
    assert store.problems == store.verify() == []
    assert [(draw.step, draw.cycle) for draw in store] == [(3, 1), (4, 0)]
    for draw in store:
        assert_same(draw.tensors(), whole)
        assert torch.equal(draw.tensor("second.weight"), whole["second.weight"])
    model = jobs.network(seed=7)
    store[1].load_into(model)
    assert_same(model.state_dict(), whole)
    memory = MemoryDraws()
    memory.append(jobs.network(), step=3)
    inputs = torch.randn(4, 6)
    ours, theirs = (Posterior(jobs.network(), draws).predict(inputs) for draws in (store, memory))
    torch.testing.assert_close(ours.entropy, theirs.entropy)


def test_a_tensor_that_is_not_there_is_named(written):
    with pytest.raises(ValueError, match="one of the draw's tensors, got 'nothing'"):
        DrawStore(written / "fully")[0].tensor("nothing")


def test_numbers_of_16_bits(written):
    draw = DrawStore(written / "narrow", dtype=torch.bfloat16)[0]
    expected = jobs.network().second.weight.bfloat16()
    assert torch.equal(draw.tensor("second.weight"), expected)


@pytest.mark.parametrize("kind", jobs.KINDS)
def test_each_number_is_written_once(written, kind):
    folder = written / kind / "draws"
    index = json.loads((folder / f"{STEM}.safetensors.index.json").read_text())
    files = {f"{STEM}-0000{number}-of-00004.safetensors" for number in range(1, 5)}
    assert set(index["weight_map"].values()) <= files == index["files"].keys()
    assert {path.name for path in folder.glob(f"{STEM}-*")} == files
    whole = jobs.network().state_dict()
    frozen = {"first.weight", "first.bias"} if kind == "fully" else set()  # in base-*.safetensors
    assert index["weight_map"].keys() == whole.keys() - frozen
    tied = {"again.weight", "again.bias"}
    total = sum(whole[name].nbytes for name in whole.keys() - frozen - tied)
    headers = [8 + int.from_bytes((folder / name).read_bytes()[:8], "little") for name in files]
    assert index["metadata"]["total_size"] - sum(headers) == total


def test_torch_reads_the_files_of_a_draw(written, tmp_path):
    reader = pytest.importorskip("torch.distributed.checkpoint.hf_storage")
    for file in (written / "tensor" / "draws").glob(f"{STEM}-*.safetensors"):
        shutil.copy(file, tmp_path)
    whole = {
        name: value
        for name, value in jobs.network().state_dict().items()
        if not name.startswith("again")
    }
    found = {name: torch.zeros_like(value) for name, value in whole.items()}
    with warnings.catch_warnings(action="ignore"):
        dcp.load(found, storage_reader=reader.HuggingFaceStorageReader(str(tmp_path)), no_dist=True)
    assert_same(found, whole)


def test_a_damaged_shard_is_named_and_what_the_others_hold_can_be_read(store):
    index = json.loads((store / "draws" / f"{STEM}.safetensors.index.json").read_text())
    file = store / "draws" / f"{STEM}-00003-of-00004.safetensors"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    found = DrawStore(store)
    assert [file.name in damage for damage in found.verify()] == [True]
    in_it = {
        name: any(part[0] == file.name for part in entry["parts"])
        for name, entry in index["tensors"].items()
    }
    assert set(in_it.values()) == {True, False}
    for name, is_damaged in in_it.items():
        if is_damaged:
            with pytest.raises(StoreError, match=rf"{file.name}: checksum does not match"):
                found[0].tensor(name)
        else:
            assert torch.equal(found[0].tensor(name), jobs.network().state_dict()[name])
    assert_same(found[1].tensors(), jobs.network().state_dict())


def test_a_damaged_index_is_named(store):
    file = store / "draws" / f"{STEM}.safetensors.index.json"
    file.write_bytes(file.read_bytes().replace(b'"first.weight"', b'"first.weighs"'))
    with pytest.raises(StoreError, match=rf"{file.name}: checksum does not match"):
        DrawStore(store)[0].tensors()


def test_a_missing_shard_is_named_and_one_without_a_line_is_no_draw(store):
    folder = store / "draws"
    missing, extra = (
        f"{STEM}-00002-of-00004.safetensors",
        "0000-000000009-00001-of-00002.safetensors",
    )
    (folder / missing).rename(folder / extra)
    with pytest.warns(StoreWarning) as said:
        found = DrawStore(store)
    assert f"draws/{missing}: missing" in str(said[0].message)
    assert f"draws/{extra}: not in a manifest, ignored" in str(said[0].message)
    assert [draw.step for draw in found] == [4]


def test_an_older_version_is_told_to_upgrade(written):
    assert json.loads((written / "fully" / "store.json").read_text())["format"] == 2


def test_a_whole_model_goes_on_with_the_draws_of_a_sharded_one(store):
    found, model = DrawStore(store), jobs.network()
    found.append(model, step=3, cycle=1)
    found.append(model, step=5)
    assert len(DrawStore(store)) == 3
    with pytest.raises(ValueError, match="already has a different draw at step 3"):
        found.append(jobs.network(seed=6), step=3)


@pytest.mark.slow
def test_another_number_of_processes_reads_them(written):
    all_succeed(jobs.read, written, processes=2)
    assert len(list(written.glob("read-*"))) == 2


@pytest.mark.slow
def test_killed_processes_lose_nothing(tmp_path):
    """Each of three processes, before and after calls of the file system."""
    all_succeed(jobs.killed, tmp_path / "whole", processes=3)
    right = {draw.step: draw.tensors() for draw in DrawStore(tmp_path / "whole" / "store")}
    assert len(right) == 6
    choices, kills = random.Random(3), 0  # noqa: S311
    for trial in range(12):
        out, victim = tmp_path / str(trial), trial % 3
        point = choices.randrange(300 if victim == 0 else 120)
        codes = run_together(jobs.killed, out, processes=3, victim=victim, point=point)
        kills += codes[victim] == -9
        with warnings.catch_warnings(action="ignore"):  # of files that have no line
            left = {draw.step: draw.tensors() for draw in DrawStore(out / "store")}
        said = (out / "kept").read_text().split() if (out / "kept").exists() else []
        assert set(map(int, said)) <= left.keys()
        for error in out.glob("error-*.txt"):
            error.unlink()
        all_succeed(jobs.killed, out, processes=3)
        with warnings.catch_warnings(action="ignore"):
            found = {draw.step: draw.tensors() for draw in DrawStore(out / "store")}
        assert found.keys() == right.keys()
        for step, tensors in {**found, **left}.items():
            assert_same(tensors, right[step])
    assert kills >= 8  # other points are past the end of the run


def test_two_chains_that_begin_at_once_do_not_replace_what_draws_share(tmp_path):
    all_succeed(jobs.begin_at_once, tmp_path, processes=2)
    store = DrawStore(tmp_path / "store")
    assert store.verify() == []
    assert_same(store[0].tensors(), jobs.network().state_dict())
    names = {path.name for path in (tmp_path / "store").glob("base*")}
    assert names == {"base.safetensors.index.json"} | {
        f"base-0000-0000{number}-of-00002.safetensors" for number in (1, 2)
    }


def test_what_killed_processes_left_of_a_draw_is_removed_by_a_single_one(tmp_path):
    run_together(jobs.killed_before_the_line, tmp_path, processes=2)
    folder = tmp_path / "store" / "draws"
    assert len(list(folder.glob(f"{STEM}-*-of-00002.safetensors"))) == 2
    with pytest.warns(StoreWarning, match="not in a manifest, ignored"):
        store = DrawStore(tmp_path / "store")
    store.append(jobs.network(), step=3)
    store.append(jobs.network(), step=4)
    store.close()
    assert {path.name for path in folder.iterdir()} == {
        f"0000-00000000{step}.safetensors" for step in (3, 4)
    }
    assert DrawStore(tmp_path / "store").problems == []

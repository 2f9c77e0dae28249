"""Draws of models that are sharded over processes."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.draws import keep_trainable
from csgmcmc.errors import DrawConflictError
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
def test_same_content_as_unsharded(written, kind):
    store, whole = DrawStore(written / kind), jobs.network().state_dict()
    assert store.problems == store.verify() == []
    assert [(draw.step, draw.cycle) for draw in store] == [(3, 1), (4, 0)]
    for draw in store:
        assert_same(draw.tensors(), whole)
    model = jobs.network(seed=7)
    store[1].load_into(model)
    assert_same(model.state_dict(), whole)
    memory = MemoryDraws()
    memory.append(jobs.network(), step=3)
    inputs = torch.randn(4, 6)
    ours, theirs = (Posterior(jobs.network(), draws).predict(inputs) for draws in (store, memory))
    torch.testing.assert_close(ours.entropy, theirs.entropy)


def test_narrow_dtype(written):
    draw = DrawStore(written / "narrow", dtype=torch.bfloat16)[0]
    expected = jobs.network().second.weight.bfloat16()
    assert torch.equal(draw.tensors()["second.weight"], expected)


@pytest.mark.parametrize("kind", jobs.KINDS)
def test_same_file_as_unsharded(written, tmp_path, kind):
    """Byte for byte, of the draw and of the manifest's line."""
    model = jobs.network()
    only = keep_trainable(model) if kind == "fully" else None
    alone = DrawStore(tmp_path / "store", only=only)
    alone.append(model, step=3, cycle=1)
    alone.append(model, step=4)
    for path in (tmp_path / "store").rglob("*.safetensors"):
        same = written / kind / path.relative_to(tmp_path / "store")
        assert same.read_bytes() == path.read_bytes()
    files = {path.name for path in (written / kind / "draws").iterdir()}
    assert files == {f"0000-00000000{step}.safetensors" for step in (3, 4)}
    ours, theirs = ((each / "chains" / "0000.manifest").read_text().splitlines()[1:]
                    for each in (written / kind, tmp_path / "store"))  # fmt: skip
    assert ours == theirs
    assert json.loads((written / kind / "store.json").read_text())["format"] == 1


def test_safetensors_reads_the_file(written):
    found = load_file(written / "tensor" / "draws" / f"{STEM}.safetensors")
    whole = jobs.network().state_dict()
    assert_same(found, {name: whole[name] for name in whole if not name.startswith("again")})


def test_at_most_one_gathered_tensor_is_alive(tmp_path):
    all_succeed(jobs.count_gathered, tmp_path, processes=2)
    assert [path.read_text() for path in tmp_path.glob("most-*")] == ["1", "1"]


def test_error_of_the_writer_is_raised_by_all(tmp_path):
    all_succeed(jobs.fail_to_write, tmp_path, processes=2)
    assert_same(DrawStore(tmp_path / "store")[0].tensors(), jobs.network().state_dict())


def test_unsharded_model_appends_to_a_store_of_a_sharded_one(store):
    found, model = DrawStore(store), jobs.network()
    found.append(model, step=3, cycle=1)
    found.append(model, step=5)
    assert len(DrawStore(store)) == 3
    with pytest.raises(DrawConflictError, match="step 3"):
        found.append(jobs.network(seed=6), step=3)


@pytest.mark.slow
def test_load_into_other_sharding(written):
    all_succeed(jobs.read, written, processes=2)
    assert len(list(written.glob("read-*"))) == 2


@pytest.mark.slow
def test_killed_processes_lose_nothing(tmp_path):
    """Kill the first of three processes around calls of the file system, the others in gathers."""
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


def test_base_of_another_chain_is_not_replaced(tmp_path):
    all_succeed(jobs.begin_at_once, tmp_path, processes=2)
    store = DrawStore(tmp_path / "store")
    assert store.verify() == []
    assert_same(store[0].tensors(), jobs.network().state_dict())
    assert [path.name for path in (tmp_path / "store").glob("base*")] == ["base.safetensors"]


def test_file_without_a_line_is_replaced(tmp_path):
    run_together(jobs.killed_before_the_line, tmp_path, processes=2)
    store = DrawStore(tmp_path / "store")
    assert len(store) == 0
    store.append(jobs.network(), step=3)
    store.close()
    assert [draw.step for draw in DrawStore(tmp_path / "store")] == [3]
    assert DrawStore(tmp_path / "store").problems == []

"""Every kind of draws, discovered, keeps the same promises."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from csgmcmc.draws import Draws, DrawStore, MemoryDraws
from csgmcmc.errors import DrawConflictError
from tests.support import small_model


@pytest.fixture(params=[DrawStore, MemoryDraws])
def draws(request, tmp_path) -> Draws:
    kind = request.param
    return kind(tmp_path / "store") if issubclass(kind, DrawStore) else kind()


def model_with_everything():
    """Several dtypes and layouts, buffers, a scalar, tied weights, an empty tensor, a view."""
    first, tied = nn.Linear(12, 5), nn.Linear(12, 5)
    tied.weight = first.weight
    model = nn.Sequential(small_model(), nn.BatchNorm1d(4), first, tied)
    model.register_buffer("empty", torch.zeros(0, 3))
    model.register_buffer("part", torch.arange(10.0)[3:7])
    model.register_buffer("narrow", torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    model.register_buffer("flags", torch.tensor([True, False]))
    return model


def test_it_gives_back_what_was_kept(draws):
    model = model_with_everything()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    draws.append(model, step=7, cycle=2, chain_id=3)
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    (draw,) = draws
    assert (draw.chain_id, draw.step, draw.cycle, draw.stage) == (3, 7, 2, "sample")
    tensors = draw.tensors()
    assert tensors.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype
    draw.load_into(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_order_is_by_chain_and_step_and_it_is_a_sequence(draws):
    for chain, step in [(1, 5), (0, 9), (1, 2), (0, 4)]:
        draws.append({"w": torch.tensor([chain, step])}, step=step, chain_id=chain)
    assert [(draw.chain_id, draw.step) for draw in draws] == [(0, 4), (0, 9), (1, 2), (1, 5)]
    assert len(draws) == 4
    assert draws[-1].step == 5
    assert [draw.step for draw in draws[1:3]] == [9, 2]
    assert [draw.step for draw in draws.of_chain(1)] == [2, 5]
    assert draws.chain_ids == [0, 1]
    assert draws[2].tensors()["w"].tolist() == [1, 2]


def test_the_same_draw_again_changes_nothing_and_another_is_refused(draws):
    draws.append({"w": torch.ones(3)}, step=4)
    draws.append({"w": torch.ones(3)}, step=4)
    assert len(draws) == 1
    with pytest.raises(DrawConflictError, match="chain 0 already has a different draw at step 4"):
        draws.append({"w": torch.zeros(3)}, step=4)
    with pytest.raises(DrawConflictError):
        draws.append({"w": torch.ones(3), "more": torch.ones(1)}, step=4)
    assert draws[0].tensors()["w"].tolist() == [1, 1, 1]


def test_what_is_not_a_tensor_is_refused(draws):
    with pytest.raises(ValueError, match=r"'extra' .* is a str"):
        draws.append({"w": torch.ones(1), "extra": "state"}, step=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="chain_id must be at least 0"):
        draws.append({"w": torch.ones(1)}, step=0, chain_id=-1)
    with pytest.raises(ValueError, match="step must be a whole number"):
        draws.append({"w": torch.ones(1)}, step=1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="stage must be one of"):
        draws.append({"w": torch.ones(1)}, step=0, stage="sampling")  # pyright: ignore[reportArgumentType]
    assert len(draws) == 0


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))],
    ids=["copy", "pickle"],
)
def test_draws_are_copied_and_pickled(draws, copied):
    draws.append({"w": torch.ones(3)}, step=4, cycle=1)
    draws.append({"w": torch.zeros(3)}, step=6, stage="burn-in", chain_id=2)
    if isinstance(draws, DrawStore):
        draws.close()
    single, whole, many = copied(draws[0]), copied(draws), copied(list(draws))
    assert whole is not draws
    assert single == draws[0]
    assert list(whole) == many == list(draws)
    assert single.tensors()["w"].tolist() == [1, 1, 1]
    assert [draw.tensors()["w"].tolist() for draw in whole] == [[1, 1, 1], [0, 0, 0]]
    whole.append({"w": torch.ones(3)}, step=4, cycle=1)  # the same: kept once
    whole.append({"w": torch.full((3,), 2.0)}, step=9)
    assert (len(whole), len(draws)) == (3, 2)


def test_a_copy_of_draws_in_memory_shares_no_weights():
    draws = MemoryDraws()
    draws.append({"w": torch.ones(3)}, step=4)
    copy.deepcopy(draws)[0].tensors()["w"].zero_()
    assert draws[0].tensors()["w"].tolist() == [1, 1, 1]


def test_one_draw_is_found_without_a_pass_over_all(draws, monkeypatch):
    for step in (5, 1, 3):
        draws.append({"w": torch.ones(3)}, step=step)
    monkeypatch.setattr(type(draws), "__iter__", lambda _: pytest.fail("makes all draws"))
    assert [draws[index].step for index in (0, 1, -1)] == [1, 3, 5]
    with monkeypatch.context() as patch:
        patch.setattr("csgmcmc.draws.base.sorted", pytest.fail, raising=False)
        assert [draws[index].step for index in (0, 1, -1)] == [1, 3, 5]
    draws.append({"w": torch.ones(3)}, step=2)
    assert draws[1].step == 2
    with pytest.raises(IndexError):
        draws[4]


@given(
    entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
    reopen_after=st.integers(0, 12),
)
def test_stores_agree_with_a_dictionary(entries, reopen_after, tmp_path_factory):
    """Any order of chains and steps, repeats included, and reopened in between."""
    path = tmp_path_factory.mktemp("store")
    kinds: list[Draws] = [DrawStore(path), MemoryDraws()]
    expected = {}
    for index, (chain, step) in enumerate(entries):
        expected[chain, step] = [chain, step]
        for place, kind in enumerate(kinds):
            if isinstance(kind, DrawStore) and index == reopen_after:
                kind.close()
                kinds[place] = DrawStore(path)
            kinds[place].append({"w": torch.tensor([chain, step])}, step=step, chain_id=chain)
    for kind in kinds:
        found = {(draw.chain_id, draw.step): draw.tensors()["w"].tolist() for draw in kind}
        assert found == expected
        assert list(found) == sorted(expected)
        assert [kind[index] for index in range(len(kind))] == list(kind)
        assert kind.chain_ids == sorted({chain for chain, _ in expected})
        assert [draw for chain in range(5) for draw in kind.of_chain(chain)] == list(kind)
        if isinstance(kind, DrawStore):
            kind.close()

"""Every kind of draws, discovered, keeps the same promises."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from csgmcmc import Tick
from csgmcmc.draws import Draws, DrawStore, discover
from csgmcmc.errors import DrawConflictError
from tests.support import small_model


def tick(step=0, cycle=0):
    return Tick(step, cycle, "sample", lr_scale=0.5, temperature_scale=1.0, collect=True)


@pytest.fixture(params=list(discover().values()), ids=list(discover()))
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
    draws.append(model, tick(step=7, cycle=2), chain_id=3, log_likelihood=-12.5)
    with torch.no_grad():
        for param in model.parameters():
            param.zero_()
    (draw,) = draws
    assert (draw.chain_id, draw.step, draw.cycle, draw.stage) == (3, 7, 2, "sample")
    assert draw.log_likelihood == -12.5
    tensors = draw.tensors()
    assert tensors.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype
    draw.load_into(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_order_is_by_chain_and_step_and_it_is_a_sequence(draws):
    for chain, step in [(1, 5), (0, 9), (1, 2), (0, 4)]:
        draws.append({"w": torch.tensor([chain, step])}, tick(step), chain_id=chain)
    assert [(draw.chain_id, draw.step) for draw in draws] == [(0, 4), (0, 9), (1, 2), (1, 5)]
    assert len(draws) == 4
    assert draws[-1].step == 5
    assert [draw.step for draw in draws[1:3]] == [9, 2]
    assert [draw.step for draw in draws.of_chain(1)] == [2, 5]
    assert draws.chains == [0, 1]
    assert draws[2].tensors()["w"].tolist() == [1, 2]


def test_the_same_draw_again_changes_nothing_and_another_is_refused(draws):
    draws.append({"w": torch.ones(3)}, tick(4))
    draws.append({"w": torch.ones(3)}, tick(4))
    assert len(draws) == 1
    with pytest.raises(DrawConflictError, match="chain 0 already has another draw at step 4"):
        draws.append({"w": torch.zeros(3)}, tick(4))
    with pytest.raises(DrawConflictError):
        draws.append({"w": torch.ones(3), "more": torch.ones(1)}, tick(4))
    assert draws[0].tensors()["w"].tolist() == [1, 1, 1]


def test_a_log_likelihood_can_be_given_later(draws):
    draws.append({"w": torch.ones(3)}, tick(4), log_likelihood=-1.0)
    draws.append({"w": torch.zeros(3)}, tick(6))
    kept = list(draws)
    draws.set_log_likelihood(kept[0], -1e4 - 1 / 3)
    draws.set_log_likelihood(kept[1], float("-inf"))
    assert [draw.log_likelihood for draw in draws] == [-1e4 - 1 / 3, float("-inf")]
    assert [draw.log_likelihood for draw in kept] == [-1.0, None]  # a Draw does not change
    if isinstance(draws, DrawStore):
        draws.close()
        again = DrawStore(draws.path)
        assert [draw.log_likelihood for draw in again] == [-1e4 - 1 / 3, float("-inf")]
        assert not again.problems
        assert list(again.headers()) == [0]
        again.set_log_likelihood(again[1], -2.0)
        again.close()
        assert DrawStore(draws.path)[1].log_likelihood == -2.0


def test_a_log_likelihood_of_a_draw_that_is_not_there_is_refused(draws):
    draws.append({"w": torch.ones(3)}, tick(4), chain_id=1)
    with pytest.raises(ValueError, match="no draw of chain 0 at step 4"):
        draws.set_log_likelihood(replace(draws[0], chain_id=0), -1.0)


def test_what_is_not_a_tensor_is_refused(draws):
    with pytest.raises(ValueError, match=r"'extra' .* is a str"):
        draws.append({"w": torch.ones(1), "extra": "state"}, tick())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="chain_id must be at least 0"):
        draws.append({"w": torch.ones(1)}, tick(), chain_id=-1)
    assert len(draws) == 0


@given(
    entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
    reopen_after=st.integers(0, 12),
)
def test_stores_agree_with_a_dictionary(entries, reopen_after, tmp_path_factory):
    """Any order of chains and steps, repeats included, and reopened in between."""
    path = tmp_path_factory.mktemp("store")
    kinds = [DrawStore(path) if kind is DrawStore else kind() for kind in discover().values()]
    expected = {}
    for index, (chain, step) in enumerate(entries):
        expected[chain, step] = [chain, step]
        for place, kind in enumerate(kinds):
            if isinstance(kind, DrawStore) and index == reopen_after:
                kind.close()
                kinds[place] = DrawStore(path)
            kinds[place].append({"w": torch.tensor([chain, step])}, tick(step), chain_id=chain)
    for kind in kinds:
        found = {(draw.chain_id, draw.step): draw.tensors()["w"].tolist() for draw in kind}
        assert found == expected
        if isinstance(kind, DrawStore):
            kind.close()

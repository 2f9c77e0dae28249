import copy
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from csgmcmc import Draw, DrawStore, MemoryDraws, Posterior
from csgmcmc.draws import keep_trainable
from csgmcmc.posterior import Categorical
from csgmcmc.posterior import members as members_module
from csgmcmc.posterior.members import Members, bytes_of, plain_forward
from tests.posterior.support import (
    CLOSE,
    Branching,
    Scale,
    Table,
    Tied,
    averaged,
    conv_net,
    entropy,
    fill,
    in_memory,
    mlp,
    outputs_of,
    random,
    randomise,
    spread,
    tables,
)

BOTH_WAYS = pytest.mark.parametrize("vectorize", [True, False])
MODELS = pytest.mark.parametrize(
    ("make", "shape"), [(mlp, (4,)), (conv_net, (1, 3, 3)), (Tied, (4,))], ids=lambda x: str(x)[:20]
)


def members_of(model, draws, vectorize: bool | None) -> Members:
    return Members(
        model, draws, device=None, autocast=None, forward=plain_forward, vectorize=vectorize
    )


def turns_of(members, batches, among=None):
    """Numbers of the draws of each turn, and the outputs of all turns."""
    numbers, outputs = [[] for _ in batches], [[] for _ in batches]

    with torch.inference_mode():
        for some, batch, found in members.outputs(batches, among):
            numbers[batch].append(some)
            outputs[batch].append(found.clone())
    assert all(some == numbers[0] for some in numbers)
    return numbers[0], [torch.cat(parts) for parts in outputs]


def inputs_of(shape, count=6):
    return random(count, *shape, dtype=torch.float32)


# Stacked, and one by one


@BOTH_WAYS
@MODELS
def test_outputs_match_the_model_with_loaded_draws(make, shape, vectorize):
    draws, inputs = in_memory(make, 5), inputs_of(shape)
    numbers, (outputs,) = turns_of(members_of(make(), draws, vectorize), [inputs])
    assert numbers == [[0, 1, 2, 3, 4]]
    assert_close(outputs, outputs_of(make(), draws, inputs), **CLOSE)


@BOTH_WAYS
@MODELS
def test_draws_are_yielded_in_chunks(make, shape, vectorize, monkeypatch):
    monkeypatch.setattr(members_module, "MAX_STACK_BYTES", 3 * bytes_of(make().state_dict()) + 1)
    monkeypatch.setattr(members_module, "MAX_BUFFERED", 3)
    draws = in_memory(make, 7)
    batches = [inputs_of(shape), inputs_of(shape, 2)]
    members = members_of(make(), draws, vectorize)
    numbers, outputs = turns_of(members, batches)
    assert numbers == [[0, 1, 2], [3, 4, 5], [6]]
    for output, batch in zip(outputs, batches, strict=True):
        assert_close(output, outputs_of(make(), draws, batch), **CLOSE)
    numbers, outputs = turns_of(members, batches, among=[6, 0, 2, 3])
    assert numbers == [[6, 0, 2], [3]]
    chosen = [draws[number] for number in (6, 0, 2, 3)]
    for output, batch in zip(outputs, batches, strict=True):
        assert_close(output, outputs_of(make(), chosen, batch), **CLOSE)


@BOTH_WAYS
def test_chunks_are_bounded_by_bytes_of_inputs_and_outputs(vectorize, monkeypatch):
    inputs = inputs_of((4,))
    size = 6 * (4 if vectorize else 3) * 4
    monkeypatch.setattr(members_module, "MAX_OUTPUT_BYTES", 2 * size)
    draws = in_memory(mlp, 5)
    numbers, (outputs,) = turns_of(members_of(mlp(), draws, vectorize), [inputs])
    assert numbers == [[0, 1], [2, 3], [4]]
    assert_close(outputs, outputs_of(mlp(), draws, inputs), **CLOSE)


@given(
    count=st.integers(1, 6),
    at_once=st.integers(1, 7),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_chunking_does_not_change_the_prediction(count, at_once, sizes, data):
    numbers = st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any)
    weights = data.draw(numbers)
    vectorize = data.draw(st.booleans())
    draws, batches = in_memory(mlp, count), list(inputs_of((4,), sum(sizes)).split(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members_module, "MAX_STACK_BYTES", at_once * bytes_of(mlp().state_dict()))
        patch.setattr(members_module, "MAX_BUFFERED", at_once)
        posterior = Posterior(mlp(), draws, weights, vectorize=vectorize)
        with_members: Any = posterior.predict_loader(batches, members=True)
        without: Any = posterior.predict_loader(batches)
    members = outputs_of(mlp(), draws, torch.cat(batches)).softmax(2)
    assert_close(with_members.members, members, **CLOSE)
    for result in (with_members, without):
        assert_close(result.probs.double(), averaged(weights, members), **CLOSE)
        assert_close(result.spread.double(), spread(weights, members), **CLOSE)
        own = averaged(weights, entropy(members, 2))
        assert_close(result.expected_entropy.double(), own, **CLOSE)
        assert (result.mutual_information >= 0).all()


# The choice


def test_model_that_cannot_be_vmapped_is_evaluated_one_by_one():
    draws, inputs = in_memory(Branching, 5), inputs_of((4,))
    result: Any = Posterior(Branching(), draws).predict(inputs, members=True)
    assert_close(result.members, outputs_of(Branching(), draws, inputs).softmax(2), **CLOSE)
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        Posterior(Branching(), draws, vectorize=True).predict(inputs)


def test_error_of_the_model_is_raised():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Posterior(mlp(), in_memory(mlp, 3)).predict(inputs_of((5,)))


@pytest.mark.parametrize(
    ("wrong", "note"),
    [
        (inputs_of((5,)), "inputs were tensors of shape (6, 5) and torch.float32"),
        (inputs_of((4,)).double(), "inputs were tensors of shape (6, 4) and torch.float64"),
        (inputs_of((4,)).numpy(), "inputs were of type ndarray"),
    ],
)
def test_an_error_of_the_model_says_what_its_inputs_were(wrong, note):
    for make in (mlp, perceptron):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            Posterior(make(), in_memory(make, 3)).predict(wrong)
        assert [line for line in caught.value.__notes__ if note in line] == caught.value.__notes__


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


class Recorded(Members):
    """Members that tell which way they went."""

    stacked: bool

    def _stacked(self, batches, wanted):
        self.stacked = True
        return super()._stacked(batches, wanted)

    def _one_by_one(self, batches, wanted):
        self.stacked = False
        return super()._one_by_one(batches, wanted)


def is_stacked(make, batch, *, count=3, forward=plain_forward, vectorize=None, among=None) -> bool:
    members = Recorded(
        make(),
        in_memory(make, count),
        device=None,
        autocast=None,
        forward=forward,
        vectorize=vectorize,
    )
    with torch.inference_mode():
        list(members.outputs([batch], among))
    return members.stacked


def test_small_batches_of_a_perceptron_are_stacked():
    assert is_stacked(perceptron, inputs_of((4,)))
    assert is_stacked(perceptron, inputs_of((4,), 256))
    assert is_stacked(perceptron, inputs_of((1, 2, 2)))  # which it flattens
    assert not is_stacked(perceptron, inputs_of((4,), 257))


def test_other_models_and_batches_are_evaluated_one_by_one(monkeypatch):
    assert not is_stacked(mlp, inputs_of((4,)))  # it has dropout
    assert not is_stacked(conv_net, inputs_of((1, 3, 3)))
    assert not is_stacked(Tied, inputs_of((4,)))
    assert not is_stacked(perceptron, inputs_of((4,)), forward=lambda model, inputs: model(inputs))
    assert not is_stacked(perceptron, inputs_of((4,)), count=1)
    assert not is_stacked(perceptron, inputs_of((4,)), among=[2])
    monkeypatch.setattr(
        members_module, "MAX_STACK_BYTES", 3 * bytes_of(perceptron().state_dict()) - 1
    )
    assert not is_stacked(perceptron, inputs_of((4,)))  # not all draws fit


@BOTH_WAYS
def test_vectorize_overrides_the_rule(vectorize):
    for make, shape in ((perceptron, (4,)), (mlp, (4,)), (conv_net, (1, 3, 3))):
        assert is_stacked(make, inputs_of(shape), vectorize=vectorize) is vectorize
        assert is_stacked(make, inputs_of(shape, 300), vectorize=vectorize) is vectorize


def test_repeated_predictions_have_the_same_bits():
    """The choice does not depend on how long anything takes."""
    for make in (perceptron, mlp):
        draws, inputs = in_memory(make, 20), inputs_of((4,), 100)
        first: Any = Posterior(make(), draws).predict(inputs)
        for _ in range(5):
            again: Any = Posterior(make(), draws).predict(inputs)
            assert torch.equal(first.log_probs, again.log_probs)
            assert torch.equal(first.spread, again.spread)


def test_subset_of_a_stack():
    draws, inputs = in_memory(perceptron, 7), inputs_of((4,))
    members = members_of(perceptron(), draws, vectorize=True)
    for among in ([1, 2, 3], [6, 0, 2], [4]):
        _, (outputs,) = turns_of(members, [inputs], among=among)
        chosen = [draws[number] for number in among]
        assert_close(outputs, outputs_of(perceptron(), chosen, inputs), **CLOSE)


# What is left alone


@pytest.mark.parametrize("vectorize", [True, False, None])
def test_given_model_is_unchanged(vectorize):
    model = randomise(conv_net(), seed=99)
    model[1].eval()
    next(model.parameters()).requires_grad_(False)
    model(inputs_of((1, 3, 3))).square().sum().backward()
    before = copy.deepcopy(model)
    grads = [copy.deepcopy(param.grad) for param in model.parameters()]
    modes = [module.training for module in model.modules()]
    places = [param.data_ptr() for param in model.parameters()]
    draws = in_memory(conv_net, 3)
    kept = [{name: value.clone() for name, value in draw.tensors().items()} for draw in draws]
    posterior = Posterior(model, draws, vectorize=vectorize)
    posterior.predict(inputs_of((1, 3, 3)), members=True)
    posterior.log_scores([(inputs_of((1, 3, 3)), torch.zeros(6, dtype=torch.long))])
    assert [module.training for module in model.modules()] == modes
    assert [param.data_ptr() for param in model.parameters()] == places
    assert_close(model.state_dict(), before.state_dict(), rtol=0, atol=0)
    for now, then, grad in zip(model.parameters(), before.parameters(), grads, strict=True):
        assert now.requires_grad == then.requires_grad
        assert_close(now.grad, grad, rtol=0, atol=0)
    for draw, tensors in zip(draws, kept, strict=True):
        assert_close(draw.tensors(), tensors, rtol=0, atol=0)


@pytest.mark.parametrize("vectorize", [True, False, None])
def test_prediction_uses_no_random_numbers(vectorize):
    """Also with dropout in the model, which is off."""
    posterior = Posterior(mlp().train(), in_memory(mlp, 3), vectorize=vectorize)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    first: Any = posterior.predict(inputs_of((4,)))
    second: Any = posterior.predict(inputs_of((4,)))
    assert torch.equal(first.probs, second.probs)
    assert torch.equal(torch.get_rng_state(), state)
    assert str(np.random.get_state()) == str(numpy_state)  # noqa: NPY002


@pytest.mark.parametrize("vectorize", [True, False, None])
def test_results_can_be_used_in_autograd(vectorize):
    posterior = Posterior(mlp(), in_memory(mlp, 3), vectorize=vectorize)
    loader = [(inputs_of((4,)), torch.zeros(6, dtype=torch.long))]
    results: list[Any] = [
        posterior.predict(loader[0][0], members=True),
        posterior.predict_loader(loader, members=True),
    ]
    tensors = [value for result in results for value in vars(result).values()]
    tensors += [posterior.log_scores(loader), results[0].probs, results[0].mutual_information]
    tensors = [value for value in tensors if isinstance(value, torch.Tensor)]
    assert len(tensors) == 14
    for value in tensors:
        scale = torch.ones((), requires_grad=True)
        (scale * value).sum().backward()
        assert_close(scale.grad, value.sum().to(scale.dtype))


@BOTH_WAYS
def test_no_autograd_graph_is_kept(vectorize):
    inputs = inputs_of((4,)).requires_grad_()
    result: Any = Posterior(mlp(), in_memory(mlp, 3), vectorize=vectorize).predict(inputs)
    assert not result.probs.requires_grad


class Counting(nn.Module):
    """Adds to its outputs how often it was called, as some layers keep state also in eval."""

    calls: torch.Tensor

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(()))
        self.in_place = in_place

    def forward(self, inputs):
        outputs = inputs * self.scale + self.calls * torch.arange(3)
        if self.in_place:
            self.calls += 1
        else:
            self.calls = self.calls + 1
        return outputs


@pytest.mark.parametrize(
    ("in_place", "vectorize"),
    [(True, True), (True, False), (False, False), (False, True)],
)
def test_model_that_writes_its_buffers_does_not_change_draws(in_place, vectorize):
    draws = MemoryDraws()
    for step in range(3):
        draws.append(Counting(in_place), step=step)
    posterior = Posterior(Counting(in_place), draws, vectorize=vectorize)
    first: Any = posterior.predict(torch.ones(2, 3), members=True)
    second: Any = posterior.predict(torch.ones(2, 3), members=True)
    assert [draw.tensors()["calls"].item() for draw in draws] == [0, 0, 0]
    assert torch.equal(first.members, second.members)


# Kinds of draws


@BOTH_WAYS
def test_each_draw_has_its_own_statistics(vectorize):
    """Draws alike but for the buffers of batch normalisation."""
    model, draws = conv_net(), MemoryDraws()
    for step in range(3):
        model[1].running_mean.fill_(step)
        draws.append(model, step=step)
    inputs = inputs_of((1, 3, 3))
    result: Any = Posterior(model, draws, vectorize=vectorize).predict(inputs, members=True)
    assert_close(result.members, outputs_of(model, draws, inputs).softmax(2), **CLOSE)
    assert result.spread.min() > 0


@BOTH_WAYS
@pytest.mark.parametrize("model_dtype", [torch.float32, torch.float64])
def test_narrow_draws_are_used_in_the_dtype_of_the_model(model_dtype, vectorize, tmp_path):
    store, inputs = DrawStore(tmp_path, dtype=torch.bfloat16), inputs_of((1, 3, 3))
    fill(store, conv_net, 3)
    assert store[0].tensors()["0.weight"].dtype == torch.bfloat16
    model, inputs = conv_net().to(model_dtype), inputs.to(model_dtype)
    result: Any = Posterior(model, store, vectorize=vectorize).predict(inputs, members=True)
    expected = outputs_of(model, store, inputs).softmax(2)
    assert result.members.dtype == result.probs.dtype == model_dtype
    assert_close(result.members, expected, **CLOSE)


@BOTH_WAYS
def test_draws_of_trainable_tensors_only(vectorize, tmp_path):
    model = mlp()
    model[0].requires_grad_(False)
    store = DrawStore(tmp_path, only=keep_trainable(model))
    for step in range(3):
        nn.init.constant_(model[3].bias[:1], step)
        store.append(model, step=step)
    inputs = inputs_of((4,))
    again = DrawStore(tmp_path)
    result: Any = Posterior(mlp(), again, vectorize=vectorize).predict(inputs, members=True)
    assert_close(result.members, outputs_of(mlp(), store, inputs).softmax(2), **CLOSE)
    assert result.spread.min() > 0


def test_list_of_some_draws():
    draws, inputs = in_memory(mlp, 5), inputs_of((4,))
    members = outputs_of(mlp(), draws, inputs).softmax(2)
    for some, numbers in [
        (draws[1:4], [1, 2, 3]),
        ([draws[4], draws[0]], [4, 0]),
        (draws[:1], [0]),
    ]:
        posterior = Posterior(mlp(), some)
        result: Any = posterior.predict(inputs, members=True)
        assert_close(result.members, members[numbers], **CLOSE)
        assert [draw.step for draw in posterior.draws] == numbers


@BOTH_WAYS
def test_double_precision_is_kept(vectorize):
    model = mlp().double()
    draws, inputs = in_memory(lambda: mlp().double(), 3), random(6, 4)
    result: Any = Posterior(model, draws, vectorize=vectorize).predict(inputs, members=True)
    assert result.probs.dtype == torch.float64
    expected = outputs_of(model, draws, inputs).softmax(2)
    assert_close(result.probs, expected.mean(0), rtol=1e-13, atol=1e-13)


# Memory


@pytest.mark.parametrize(("held", "reads"), [(0, 4), (1, 2)])
def test_draws_are_read_once_if_all_of_them_can_be_held(monkeypatch, held, reads):
    size = bytes_of(Scale().state_dict()) + members_module.TENSOR_BYTES  # it has one tensor
    monkeypatch.setattr(members_module, "MAX_HELD_BYTES", 2 * held * size)
    loads = []

    def load():
        loads.append(1)
        return {"scale": torch.ones(3)}

    draws = [Draw(0, step, 0, "sample", load) for step in range(2)]
    posterior = Posterior(Scale(), draws, vectorize=False)
    for _ in range(2):
        posterior.predict(torch.ones(2, 3))
    assert len(loads) == reads


def test_at_most_two_draws_of_a_large_model_are_in_memory(monkeypatch):
    """The one that is used, and the next while it takes its place."""
    monkeypatch.setattr(members_module, "MAX_STACK_BYTES", 0)
    monkeypatch.setattr(members_module, "MAX_HELD_BYTES", 0)
    arrays: list[weakref.ref] = []
    alive = []

    def load():
        array = np.full(3, len(arrays), dtype=np.float32)
        arrays.append(weakref.ref(array))  # lives as long as any tensor that uses its memory
        alive.append(sum(ref() is not None for ref in arrays))
        return {"scale": torch.from_numpy(array)}

    draws = [Draw(0, step, 0, "sample", load) for step in range(20)]
    result: Any = Posterior(Scale(), draws).predict(torch.ones(2, 3), members=True)
    assert len(arrays) == 20
    assert max(alive) <= 2
    assert result.members.shape == (20, 2, 3)


def test_draws_of_a_small_model_are_read_once():
    reads = []
    state = Scale().state_dict()

    def load():
        reads.append(1)
        return dict(state)

    draws = [Draw(0, step, 0, "sample", load) for step in range(5)]
    for vectorize in (True, False):
        reads.clear()
        posterior = Posterior(Scale(), draws, vectorize=vectorize)
        posterior.predict_loader([torch.ones(2, 3)] * 4)
        posterior.predict(torch.ones(2, 3))
        assert len(reads) == 5


@BOTH_WAYS
def test_outputs_larger_than_inputs_are_flushed(vectorize, monkeypatch):
    """A token is a few bytes, and the logits of the next one many."""
    monkeypatch.setattr(members_module, "MAX_OUTPUT_BYTES", 3 * 50 * 4)  # those of one batch
    logits = random(2, 3, 50, dtype=torch.float32)
    waiting = [0]

    def forward(model, inputs):
        waiting.append(waiting[-1] + 1)
        return model(inputs)

    class Scoring(Categorical):
        def log_prob(self, outputs, targets):
            waiting.append(waiting[-1] - 1)
            return super().log_prob(outputs, targets)

    posterior = Posterior(
        Table(logits[0]),
        tables(logits),
        forward=forward,
        likelihood=Scoring(),
        vectorize=vectorize,
    )
    posterior.log_scores([(torch.arange(3), torch.arange(3))] * 20)
    assert max(waiting) < 10


@pytest.mark.parametrize("vectorize", [None, False])
def test_a_posterior_can_be_made_in_inference_mode(vectorize):
    draws, inputs = in_memory(mlp, 3), random(5, 4, dtype=torch.float32)
    expected = Posterior(mlp(), draws, vectorize=vectorize).predict(inputs)
    with torch.inference_mode():
        found = Posterior(mlp(), draws, vectorize=vectorize).predict(inputs)
    assert torch.equal(found.log_probs, expected.log_probs)

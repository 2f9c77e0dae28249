"""The short way to the engine gives what `Tensor.backward` gives."""

import pytest
import torch
from torch import Tensor, nn

from csgmcmc.chain.backward import backward


class Logged(Tensor):
    """A kind of tensor with a backward pass of its own."""

    calls = 0

    def backward(self, *args, **kwargs) -> None:
        Logged.calls += 1
        super().backward(*args, **kwargs)


def make_loss() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return model, nn.functional.cross_entropy(model(torch.randn(6, 4)), torch.randint(3, (6,)))


def test_gradients_are_the_same_and_are_added():
    (ours, our_loss), (theirs, their_loss) = make_loss(), make_loss()
    for model in (ours, theirs):
        for param in model.parameters():
            param.grad = torch.ones_like(param)
    backward(our_loss)
    their_loss.backward()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert own.grad is not None
        assert other.grad is not None
        assert torch.equal(own.grad, other.grad)


def test_hooks_of_parameters_are_called():
    model, loss = make_loss()
    seen = []
    for param in model.parameters():
        param.register_post_accumulate_grad_hook(seen.append)
    backward(loss)
    assert {id(param) for param in seen} == {id(param) for param in model.parameters()}


@pytest.mark.parametrize("call", [backward, Tensor.backward])
def test_errors_are_those_of_torch(call):
    with pytest.raises(RuntimeError, match="does not require grad"):
        call(torch.tensor(1.0))
    _, loss = make_loss()
    call(loss)
    with pytest.raises(RuntimeError, match="a second time"):
        call(loss)


def test_other_kinds_of_tensors_use_their_own_backward():
    weight = nn.Parameter(torch.tensor(2.0))
    backward((weight * weight).as_subclass(Logged))
    assert Logged.calls == 1
    assert weight.grad is not None
    assert weight.grad.item() == 4.0

"""On an accelerator, a step of `Chain` does not wait for the device."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Constant, Cyclical, Keep, MemoryDraws, stack
from csgmcmc.errors import DivergedError

BATCH = (torch.linspace(-1, 1, 40).view(10, 4), torch.arange(10) % 3)


class OnDevice(torch.Tensor):
    """A tensor as on an accelerator: a number can be read only after it was copied."""

    is_cpu = False
    copies = 0

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        OnDevice.copies += 1
        return self.as_subclass(torch.Tensor)

    def item(self) -> Any:
        raise AssertionError("this waits for the device")

    tolist = __float__ = __bool__ = item


class OnDeviceChain(Chain):
    def _gradients(self) -> torch.Tensor:
        return super()._gradients().as_subclass(OnDevice)


def run(kind: type[Chain], schedule, *, chains: int = 1, **options):
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 3) if chains == 1 else stack([nn.Linear(4, 3) for _ in range(chains)])
    sampler = SGHMC(model.parameters(), 0.1, num_data=10, seed=0)
    chain = kind(model, cross_entropy, [BATCH], sampler, schedule, progress=False, **options)
    OnDevice.copies = 0
    return chain.run()


@pytest.mark.parametrize("chains", [1, 3])
def test_losses_are_read_every_twenty_steps_and_before_each_draw(chains):
    schedule = Constant(10_000, keep=Keep(every=10_000))
    options: dict[str, Any] = {"chains": chains, "checkpoint_every": 10_000}
    run(OnDeviceChain, schedule, **options)
    # After the first step, and every twenty, counted anew at each hundredth of the run.
    assert OnDevice.copies == 1 + 10_000 // 20


@pytest.mark.parametrize("chains", [1, 3])
def test_the_draws_are_those_of_the_cpu(chains):
    schedule = Cyclical(100, cycles=2, exploration=0.5, keep=Keep(every=7))
    ends = [list(run(kind, schedule, chains=chains)) for kind in (OnDeviceChain, Chain)]
    assert len(ends[0]) == len(ends[1]) > 2
    for ours, theirs in zip(*ends, strict=True):
        assert ours.step == theirs.step
        for name, tensor in ours.tensors().items():
            assert torch.equal(tensor, theirs.tensors()[name])


def test_callbacks_get_the_loss_of_their_step():
    losses = []
    for kind in (OnDeviceChain, Chain):
        found: list[float] = []
        run(kind, Constant(50), callbacks=lambda info, found=found: found.append(info.loss))
        losses.append(found)
    assert losses[0] == losses[1]
    assert len(set(losses[0])) > 1


def test_a_loss_that_diverges_is_named_and_no_draw_is_stored_after_it():
    steps = iter(range(1000))

    def loss(outputs, targets):
        return cross_entropy(outputs, targets) * (float("nan") if next(steps) == 207 else 1.0)

    kept = MemoryDraws()
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    sampler = SGHMC(model.parameters(), 0.1, num_data=10, seed=0)
    schedule = Constant(1000, keep=Keep(every=5))
    options: dict[str, Any] = {"watch": False, "progress": False, "checkpoint_every": 1000}
    chain = OnDeviceChain(model, loss, [BATCH], sampler, schedule, kept, **options)
    with pytest.raises(DivergedError, match="the loss is not finite at step 207"):
        chain.run()
    assert max(draw.step for draw in kept) < 207

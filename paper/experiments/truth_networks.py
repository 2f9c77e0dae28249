"""Perceptrons of many chains at once, with gradients written out by hand.

For networks of a thousand weights nearly all the time of autograd is overhead. Here a step of all
chains is a dozen products of stacked matrices. Tests compare the gradients with autograd's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Weights = Sequence[Tensor]
"""Of each layer the matrices (chains, inputs, outputs), then the biases (chains, 1, outputs)."""
_MINUS_ONE = torch.tensor(-1.0)


def stacked_weights(models: Sequence[nn.Sequential]) -> list[Tensor]:
    """The weights of `mlp`s of one shape."""
    layers = [[layer for layer in model if isinstance(layer, nn.Linear)] for model in models]
    weights: list[Tensor] = []
    for own in zip(*layers, strict=True):
        weights.append(torch.stack([layer.weight.detach().T for layer in own]).contiguous())
        weights.append(torch.stack([layer.bias.detach()[None] for layer in own]))
    return weights


def state_of_chain(weights: Weights, chain: int) -> dict[str, Tensor]:
    """The weights of one chain under the names that an `mlp` has for them."""
    state: dict[str, Tensor] = {}
    for number in range(len(weights) // 2):
        matrix, bias = weights[2 * number], weights[2 * number + 1]
        name = 1 + 2 * number  # after the Flatten, every other layer is a ReLU
        state[f"{name}.weight"] = matrix[chain].detach().T.contiguous()
        state[f"{name}.bias"] = bias[chain, 0].detach()
    return state


def flat(tensors: Weights) -> Tensor:
    """All weights of each chain in one row, (chains, weights)."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


def unflat(rows: Tensor, like: Weights) -> list[Tensor]:
    """The inverse of `flat`, in the shapes and dtypes of `like`."""
    parts = rows.split([tensor[0].numel() for tensor in like], dim=1)
    return [
        part.reshape(len(rows), *tensor.shape[1:]).to(tensor.dtype)
        for part, tensor in zip(parts, like, strict=True)
    ]


def logits_of(weights: Weights, inputs: Tensor) -> Tensor:
    """Outputs (chains, rows, classes) for inputs (chains, rows, features)."""
    return _forward(weights, inputs, ())[1]


def losses_and_gradients(
    weights: Weights, inputs: Tensor, labels: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Of each chain the mean cross-entropy of its rows, in double precision, and its gradients.

    Args:
        weights: as `stacked_weights` gives them, in single precision.
        inputs: (chains, rows, features).
        labels: (chains, rows).
    """
    losses, gradients = _backward(weights, inputs, labels, (), with_losses=True)
    assert losses is not None  # noqa: S101  (they were asked for)
    return losses, gradients


def gradients_of(
    weights: Weights, inputs: Tensor, labels: Tensor, masks: Sequence[Tensor] = ()
) -> list[Tensor]:
    """The gradients alone; `masks` are factors of the hidden units of each layer, for dropout."""
    return _backward(weights, inputs, labels, masks, with_losses=False)[1]


def _backward(
    weights: Weights,
    inputs: Tensor,
    labels: Tensor,
    masks: Sequence[Tensor],
    *,
    with_losses: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    hidden, outputs = _forward(weights, inputs, masks)
    index = labels[..., None]
    # torch's softmax over so few classes takes longer than the products of matrices.
    outputs -= outputs.amax(-1, keepdim=True)
    slope = outputs.exp()
    sums = slope.sum(-1, keepdim=True)
    losses = None
    if with_losses:
        losses = (sums.double().log() - outputs.gather(-1, index).double()).mean((-2, -1))
    slope /= sums
    slope.scatter_add_(-1, index, _MINUS_ONE.to(slope.device).expand(index.shape))
    slope /= inputs.shape[1]
    gradients: list[Tensor] = []
    for number in reversed(range(len(hidden))):
        gradients += [slope.sum(1, keepdim=True), torch.bmm(hidden[number].mT, slope)]
        if number:
            slope = torch.bmm(slope, weights[2 * number].mT)
            if masks:
                slope = slope * masks[number - 1]
            slope = slope * (hidden[number] > 0)
    return losses, gradients[::-1]


def _forward(
    weights: Weights, inputs: Tensor, masks: Sequence[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """What every layer is given, and what the last one gives."""
    if len(inputs) < len(weights[0]):  # shared by all chains
        inputs = inputs.expand(len(weights[0]), *inputs.shape[-2:])
    given = [inputs]
    layers = len(weights) // 2
    for number in range(layers - 1):
        outputs = torch.baddbmm(weights[2 * number + 1], given[-1], weights[2 * number]).relu_()
        given.append(outputs * masks[number] if masks else outputs)
    return given, torch.baddbmm(weights[-1], given[-1], weights[-2])

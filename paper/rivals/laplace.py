"""Laplace approximations at trained weights: a Gaussian whose precision is the curvature there.

    precision = N * weight_decay * I + sum over data of J' (diag(p) - p p') J

with J the derivatives of the logits by the weights and p the predicted probabilities: the
generalised Gauss-Newton matrix of the cross-entropy, and the prior of `csgmcmc`'s contract at
temperature 1 (Daxberger et al., "Laplace Redux", NeurIPS 2021). Two of them:

- the last linear layer alone, with the whole matrix. The logits are linear in its weights, so
  drawing weights is exact.
- all weights, with the diagonal. Drawn weights are known to predict badly in a network that is not
  linear in them; `linearised_probs` has the logits linear in them instead (Immer, Korzepa and
  Bauer, "Improving predictions of Bayesian neural nets via local linearization", AISTATS 2021).

Compared with laplace-torch 0.3 by `benchmarks/laplace_peer.py`: both precisions agree to 2e-7 of
their largest entry, and linearised predictions within the noise of 4,000 draws.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from csgmcmc.draws import Draw, MemoryDraws

Data = Iterable[tuple[Tensor, Tensor]]
"""Batches of inputs and labels: all of the training data once, without augmentation."""
MOST_GRADIENTS = 32 * 2**20  # numbers at once, of gradients by row: 128 MB


def last_layer_laplace(
    model: nn.Module, data: Data, weight_decay: float, count: int, *, seed: int
) -> MemoryDraws:
    """Draws of `model` with other weights of its last linear layer, N being the rows of `data`."""
    name, layer = last_linear(model)
    curvature, num_data = last_layer_curvature(model, layer, data)
    precision = curvature + num_data * weight_decay * torch.eye(len(curvature)).to(curvature)
    factor = torch.linalg.cholesky(precision)
    with_bias = layer.bias is not None
    mean = layer.weight.detach()
    if with_bias:
        mean = torch.cat([mean, layer.bias.detach()[:, None]], dim=1)
    generator = torch.Generator().manual_seed(seed)
    draws = MemoryDraws()
    for number in range(count):
        noise = torch.randn(len(factor), 1, generator=generator, dtype=torch.float64).to(factor)
        move = torch.linalg.solve_triangular(factor.mT, noise, upper=True)
        drawn = mean + move.reshape(mean.shape).to(mean.dtype)
        state = dict(model.state_dict())
        state[f"{name}.weight"] = drawn[:, :-1] if with_bias else drawn
        if with_bias:
            state[f"{name}.bias"] = drawn[:, -1]
        draws.append(state, step=number)
    return draws


def diagonal_laplace(
    model: nn.Module,
    data: Data,
    weight_decay: float,
    count: int,
    *,
    seed: int,
    sampled_labels: bool = False,
) -> MemoryDraws:
    """Draws of `model` with other values of all its weights; see `diagonal_curvature`."""
    curvature, num_data = diagonal_curvature(model, data, seed if sampled_labels else None)
    generator = torch.Generator().manual_seed(seed)
    draws, means = MemoryDraws(), {name: p.detach() for name, p in model.named_parameters()}
    for number in range(count):
        state = dict(model.state_dict())
        for name, mean in means.items():
            noise = torch.randn(mean.shape, generator=generator).to(mean)
            precision = curvature[name] + num_data * weight_decay
            state[name] = mean + noise / precision.to(mean.dtype).sqrt()
        draws.append(state, step=number)
    return draws


@torch.no_grad()
def linearised_probs(model: nn.Module, draws: Sequence[Draw], inputs: Tensor) -> Tensor:
    """Probabilities averaged over draws, with logits linear in the weights around those of `model`.

    The logits under a draw are f + J (draw - weights), f and J those of `model` in evaluation mode.
    """
    outputs = _function_of_weights(model)
    means = {name: parameter.detach() for name, parameter in model.named_parameters()}
    inputs = inputs.to(next(iter(means.values())).device)
    logits, back = vjp(lambda weights: outputs(weights, inputs), means)[:2]
    # J' u is linear in u, so its derivative along the weights is J: no forward mode is needed,
    # which not all operations have, and the network is evaluated once for all draws.
    forth = vjp(lambda rows: back(rows)[0], torch.zeros_like(logits))[1]
    total = torch.zeros_like(logits)
    for draw in draws:
        tensors = draw.tensors()
        moves = {name: tensors[name].to(mean) - mean for name, mean in means.items()}
        total += (logits + forth(moves)[0]).softmax(-1)
    return total / len(draws)


@torch.no_grad()
def last_layer_curvature(model: nn.Module, layer: nn.Linear, data: Data) -> tuple[Tensor, int]:
    """The Gauss-Newton matrix of the last layer's weights, and the rows that it is the sum over.

    Weights are ordered by class, and the bias of a class follows its weights.
    """
    features: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: features.append(given[0]))
    size, classes = layer.in_features + (layer.bias is not None), layer.out_features
    total, rows = torch.zeros(classes, size, classes, size, dtype=torch.float64), 0
    total = total.to(layer.weight.device)
    was_training = model.training
    model.eval()
    try:
        for inputs, _ in data:
            probs = model(inputs.to(total.device)).double().softmax(-1)
            given = features.pop().double()
            if layer.bias is not None:
                given = torch.cat([given, torch.ones_like(given[:, :1])], dim=1)
            for one in range(classes):
                for other in range(one + 1):
                    weight = probs[:, one] * (float(one == other) - probs[:, other])
                    block = (given * weight[:, None]).T @ given
                    total[one, :, other] += block
                    if one != other:
                        total[other, :, one] += block
            rows += len(inputs)
    finally:
        hook.remove()
        model.train(was_training)
    return total.reshape(classes * size, classes * size), rows


@torch.no_grad()
def diagonal_curvature(
    model: nn.Module, data: Data, label_seed: int | None = None
) -> tuple[dict[str, Tensor], int]:
    """The diagonal of the Gauss-Newton matrix, by name of the parameter, and the number of rows.

    Every row needs a backward pass for each class. With a `label_seed` it needs one: for a label
    that is drawn from the prediction, the squared gradient is the diagonal on average.
    """
    function = _function_of_weights(model)
    means = {name: parameter.detach() for name, parameter in model.named_parameters()}
    total = {name: torch.zeros_like(mean, dtype=torch.float64) for name, mean in means.items()}
    generator = torch.Generator().manual_seed(label_seed or 0)
    rows, size = 0, sum(mean.numel() for mean in means.values())

    def squares_of_row(one: Tensor, directions: Tensor) -> dict[str, Tensor]:
        back = vjp(lambda weights: function(weights, one[None])[0], means)[1]
        (gradients,) = vmap(back)(directions)
        return {name: gradient.square().sum(0) for name, gradient in gradients.items()}

    for inputs, _ in data:
        inputs = inputs.to(next(iter(means.values())).device)  # noqa: PLW2901
        probs = function(means, inputs).softmax(-1)
        if label_seed is None:  # S with S S' = diag(p) - p p', a row for each of its columns
            roots = probs.sqrt()
            directions = torch.diag_embed(roots) - roots[:, :, None] * probs[:, None, :]
        else:
            labels = torch.multinomial(probs.cpu(), 1, generator=generator).to(probs.device)
            directions = (probs.scatter_add(1, labels, -torch.ones_like(probs)))[:, None]
        at_once = max(1, MOST_GRADIENTS // (directions.shape[1] * size))
        for part in zip(inputs.split(at_once), directions.split(at_once), strict=True):
            for name, squares in vmap(squares_of_row)(*part).items():
                total[name] += squares.sum(0).double()
        rows += len(inputs)
    return total, rows


def last_linear(model: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer, and its name; the outputs must be what it gives."""
    found = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    if not found:
        raise ValueError("the model has no linear layer")
    return found[-1]


def _function_of_weights(model: nn.Module) -> Callable[[Any, Tensor], Tensor]:
    """Logits in evaluation mode, as a function of the parameters and the inputs."""

    def outputs(weights: Any, inputs: Tensor) -> Tensor:
        was_training = model.training
        model.eval()
        try:
            return functional_call(model, weights, (inputs,))
        finally:
            model.train(was_training)

    return outputs

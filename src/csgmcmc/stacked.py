"""Many chains in one module: every parameter carries a leading chain dimension.

The forward pass is vmapped over that dimension, so that the same samplers, schedules and loops run
all chains at once. There is one loss per chain, and they are *summed* before the backward pass: a
mean would divide every gradient by the number of chains, and sample the wrong distribution.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from csgmcmc.arguments import check_count, check_items, check_kind

# Activations that accept any leading dimensions.
ELEMENTWISE = (
    *(nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.ReLU),
    *(nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh),
)


class StackedParameter(nn.Parameter):
    """A parameter of many chains, along the first dimension. Each chain draws its own noise."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:  # a parameter's own would forget the class
        return type(self), (self.data, self.requires_grad)


class Stack(nn.Module):
    """Chains of one architecture, stacked. Make it with `stack`.

    Args:
        models: one module for each chain, of one architecture.
        separate_batches: divide each batch among the chains. By default every chain gets all of
            it, which takes fewer data and correlates the chains a little.
    """

    def __init__(self, models: Sequence[nn.Module], *, separate_batches: bool = False) -> None:
        super().__init__()
        models = check_items("models", models, "a list of models")
        check_count("number of models", len(models), at_least=1)
        if any(_shapes(model) != _shapes(models[0]) for model in models):
            raise ValueError("models must be of one architecture: parameters or buffers differ")
        self.chains = len(models)
        self.separate_batches = separate_batches
        self.inner = copy.deepcopy(models[0])
        with torch.no_grad():
            _stack_into(self.inner, models)

    def forward(self, *inputs: Any) -> Any:
        """Outputs of all chains, with a leading chain dimension; every chain gets all `inputs`."""
        return self._vmapped(lambda model, *shared: model(*shared), inputs, in_dims=None)

    def per_chain(self, function: Callable[..., Tensor], batch: Any) -> Tensor:
        """`function(model, batch)` for each chain, with the model of that chain."""
        if batch is not None and self.separate_batches:
            dealt = pytree.tree_map_only(Tensor, self._deal, batch)
            return self._vmapped(function, (dealt,), in_dims=0)
        return self._vmapped(function, (batch,), in_dims=None)

    def chain_tensors(self) -> list[dict[str, Tensor]]:
        """Parameters and buffers of each chain, under the names of the single model."""
        state, chains = self.inner.state_dict(), range(self.chains)
        return [{name: value[chain] for name, value in state.items()} for chain in chains]

    def _vmapped(self, function: Callable[..., Any], inputs: tuple, in_dims: int | None) -> Any:
        def one(params: dict[str, Any], buffers: dict[str, Any], *args: Any) -> Any:
            state = {**params, **buffers}

            def model(*inner_inputs: Any) -> Any:
                return functional_call(self.inner, state, inner_inputs)

            outputs = function(model, *args)
            # Buffers that the module has replaced are returned; those that it has changed in place
            # are the stack's own already.
            new = {name: state[name] for name in buffers if state[name] is not buffers[name]}
            return outputs, new

        dims = (0, 0, *([in_dims] * len(inputs)))
        params, buffers = dict(self.inner.named_parameters()), dict(self.inner.named_buffers())
        outputs, new = vmap(one, in_dims=dims, randomness="different")(params, buffers, *inputs)
        for path, value in new.items():
            module, _, name = path.rpartition(".")
            self.inner.get_submodule(module)._buffers[name] = value.detach()
        return outputs

    def _deal(self, tensor: Tensor) -> Tensor:
        if len(tensor) % self.chains:
            raise ValueError(
                f"a batch of {len(tensor)} cannot be divided among {self.chains} chains: make the "
                "batch size a multiple of the number of chains, and drop_last=True"
            )
        return tensor.unflatten(0, (self.chains, -1))


def stack(
    model: nn.Module | Sequence[nn.Module] | Callable[[], nn.Module],
    chains: int | None = None,
    *,
    separate_batches: bool = False,
) -> Stack:
    """Stack chains of a model.

    Args:
        model: a function that makes a model, called once for each chain, so that each has its own
            starting point; or the models themselves; or one model, from whose weights all chains
            start.
        chains: number of chains; not needed with a list of models.
        separate_batches: divide each batch among the chains, instead of sharing it.
    """
    if isinstance(model, Sequence) and not isinstance(model, nn.Module):
        return Stack(model, separate_batches=separate_batches)
    count = range(check_count("chains", chains, at_least=1, below=2**20))
    check_kind("model", model, Callable, "a module, or a function that makes one")
    models = [model if isinstance(model, nn.Module) else model() for _ in count]
    return Stack(models, separate_batches=separate_batches)


def gradient_norms(model: nn.Module, gradients: Sequence[Tensor]) -> Tensor:
    """The norm of the gradients of `model`: one number, or one for each chain of a stack."""
    if not isinstance(model, Stack):
        return nn.utils.get_total_norm(gradients)
    squares = [gradient.reshape(model.chains, -1).square().sum(1) for gradient in gradients]
    return torch.stack(squares).sum(0).sqrt()


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    params, buffers = model.named_parameters, model.named_buffers
    named = [*params(remove_duplicate=False), *buffers(remove_duplicate=False)]
    return {name: tuple(value.shape) for name, value in named}


def _stack_into(target: nn.Module, models: Sequence[nn.Module]) -> None:
    """Replace each tensor of `target` by those of all `models`, stacked. Ties are kept."""
    for kind in ("_parameters", "_buffers"):
        made: dict[Tensor, Tensor] = {}  # by the tensor that each replaces
        for path, module in target.named_modules():
            for name, value in getattr(module, kind).items():
                if value is None:
                    continue
                if value not in made:
                    own = [getattr(model.get_submodule(path), name).detach() for model in models]
                    made[value] = torch.stack(own)
                    if kind == "_parameters":
                        made[value] = StackedParameter(made[value], value.requires_grad)
                getattr(module, kind)[name] = made[value]


# Perceptrons: for small ones the overhead of `vmap` is larger than the arithmetic.


def is_perceptron(model: nn.Module) -> bool:
    """Whether `model` is a sequence of linear layers and activations, after at most a `Flatten`."""
    if type(model) is not nn.Sequential or len(model) == 0:
        return False
    layers = list(model)[1:] if _flattens(model[0]) else list(model)
    if any(each._forward_hooks or each._forward_pre_hooks for each in model.modules()):
        return False
    return all(type(layer) in (nn.Linear, *ELEMENTWISE) for layer in layers)


def accepts(model: nn.Module, inputs: object) -> bool:
    """Whether these inputs of a perceptron become a matrix: rows of numbers, or flattened ones."""
    if not isinstance(inputs, Tensor) or inputs.ndim < 2:
        return False
    return inputs.ndim == 2 or _flattens(next(model.children()))


def evaluate_perceptron(
    model: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor, *, stacked: bool = False
) -> Tensor:
    """Outputs (draws, batch, ...) of a perceptron for stacked `weights`.

    All draws have the same inputs or, if `stacked`, each its own: (draws, batch, features).
    """
    outputs = inputs
    for name, layer in model.named_children():
        if not isinstance(layer, nn.Linear):
            outputs = layer(outputs)  # of these only a `Flatten` depends on the shape: it is first
            continue
        matrices = weights[f"{name}.weight"].mT
        if not stacked:
            outputs, stacked = outputs.expand(len(matrices), *outputs.shape), True
        if layer.bias is None:
            outputs = torch.bmm(outputs, matrices)
        else:
            outputs = torch.baddbmm(weights[f"{name}.bias"].unsqueeze(1), outputs, matrices)
    return outputs


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)

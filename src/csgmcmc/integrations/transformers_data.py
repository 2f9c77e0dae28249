"""Hugging Face models and their dictionaries of tensors, for `Chain` and `Posterior`."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def model_loss(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    """For `Chain(model, model_loss, ...)`: the loss that the model itself computes."""
    return model(**batch).loss


def logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=logits)`: the logits of inputs that are a dictionary."""
    return model(**{name: value for name, value in inputs.items() if name != "labels"}).logits


def next_token_logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=next_token_logits)`: logits of all tokens with a target, flattened.

    The targets are those of `Pairs(loader, causal=True)`. Without labels in the inputs, these are
    the logits of the token after each sequence.
    """
    found = logits(model, inputs)
    if "labels" not in inputs:
        mask = inputs.get("attention_mask")
        if mask is None:
            return found[:, -1]
        places = torch.arange(mask.shape[1], device=mask.device)
        return found[torch.arange(len(found), device=mask.device), (mask * places).argmax(-1)]
    return found[:, :-1][inputs["labels"][:, 1:] != -100]


class Pairs:
    """Turns batches that are dictionaries into pairs of inputs and targets, for `Posterior`.

    Args:
        loader: a loader of dictionaries with `labels`.
        causal: for a causal language model: the targets are the labels of all predicted tokens,
            flattened, as `next_token_logits` gives their logits.
    """

    def __init__(self, loader: Iterable[dict[str, Any]], *, causal: bool = False) -> None:
        self._loader, self._causal = loader, causal

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        for batch in self._loader:
            inputs, labels = dict(batch), batch["labels"]
            if self._causal:
                following = labels[:, 1:]
                yield inputs, following[following != -100]
            else:
                yield {name: inputs[name] for name in inputs if name != "labels"}, labels

    def __len__(self) -> int:
        return len(self._loader)  # pyright: ignore[reportArgumentType]

"""Hugging Face models and their dictionaries of tensors, for `Chain` and `Posterior`."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def model_loss(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    """For `Chain(model, model_loss, ...)`: the loss that the model itself works out."""
    return model(**batch).loss


def logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=logits)`: the logits for inputs that are a dictionary."""
    return model(**{name: value for name, value in inputs.items() if name != "labels"}).logits


def next_token_logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=next_token_logits)`: of all tokens that have a target, in one row.

    The targets are those of `Pairs(loader, causal=True)`; without labels in the inputs, the logits
    are those of the token after each sequence.
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
    """Batches that are dictionaries, as pairs of inputs and targets that `Posterior` reads.

    Args:
        loader: a loader of dictionaries with `labels`.
        causal: of a causal language model: the targets are the labels of all tokens that are
            predicted, in one row, as `next_token_logits` gives their logits.
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

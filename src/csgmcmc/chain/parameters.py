"""What a chain trains."""

import torch
from torch import nn


def trained_parameters(model: nn.Module, sampler: torch.optim.Optimizer) -> list[nn.Parameter]:
    """What of the model is sampled; a sampler of something else is refused."""
    trained = [param for param in model.parameters() if param.requires_grad]
    if not trained:
        raise ValueError("model has no trainable parameter: nothing to sample")
    known = {id(param) for param in model.parameters()}
    held = [param for group in sampler.param_groups for param in group["params"]]
    for param in held:
        if id(param) not in known:
            raise ValueError(
                f"sampler holds a parameter of shape {tuple(param.shape)} that is not the "
                "model's: make it with model.parameters(), after stacking, and put parameters "
                "of the loss into the model"
            )
    return trained

"""Adapters: draws of LoRA and similar adapters, saved as ordinary adapters of `peft`.

Sampling an adapter needs nothing from here: give the sampler the trainable parameters, and keep
only these in each draw with `only=keep_trainable(model)`.

    store = DrawStore("runs/lora", only=keep_trainable(model))
    ...
    save_adapters(model, store, "runs/adapters")  # for any tool that reads adapters
"""

import os
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from csgmcmc.draws import Draw
from csgmcmc.integrations import require

require("peft", "peft")

from peft import PeftModel

__all__ = ["save_adapters"]


def save_adapters(
    model: nn.Module, draws: Sequence[Draw], folder: str | os.PathLike[str]
) -> list[Path]:
    """Write each draw as an adapter that `PeftModel.from_pretrained` loads; returns their folders.

    Args:
        model: the model whose active adapter was sampled; it is not changed.
        draws: a `DrawStore`, `MemoryDraws`, or a list of some of their draws.
        folder: the output folder; each draw gets a subfolder CHAIN-STEP.
    """
    if not isinstance(model, PeftModel):
        kind = type(model).__name__
        raise ValueError(f"model must have an adapter, got a {kind}: use peft.get_peft_model")
    name, names = str(model.active_adapter), model.state_dict().keys()
    written: list[Path] = []
    for draw in draws:
        tensors = draw.tensors()
        if tensors.keys() != names:
            differ = ", ".join(sorted(tensors.keys() ^ names)[:5])
            raise ValueError(
                f"the draw of chain {draw.chain_id}, step {draw.step} is not of this model: they "
                f"differ in {differ}"
            )
        path = Path(folder) / f"{draw.chain_id:04d}-{draw.step:09d}"
        model.save_pretrained(str(path), selected_adapters=[name], state_dict=tensors)
        written.append(path if name == "default" else path / name)  # where peft puts it
    return written

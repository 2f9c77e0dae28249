"""What is no longer finite: in which chains, and which buffers."""

from collections.abc import Collection, Iterator

from torch import Tensor, nn

from csgmcmc.shards import local_shard


def diverged_chains(values: Tensor, chains: int) -> list[int]:
    """Which chains have a value that is not finite; those of a stack are the first dimension."""
    by_chain = values.reshape(chains, -1) if values.ndim else values.expand(chains, 1)
    return (~by_chain.isfinite().all(1)).nonzero().flatten().tolist()


def kept_buffers(model: nn.Module, masks: Collection[str] = ()) -> Iterator[tuple[str, Tensor]]:
    """The buffers that a draw keeps and that should be finite, by name: not `masks` without nan."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, value in model.state_dict().items():
        if name in parameters or not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        values = local_shard(value.detach())
        if values.dtype.itemsize == 1:  # torch does not compute with 8 bits
            values = values.float()
        if name not in masks or values.isnan().any():
            yield name, values


def mask_buffers(model: nn.Module) -> set[str]:
    """Names of the buffers that hold infinities but no nan, as the masks of attention do."""
    return {
        name
        for name, values in kept_buffers(model)
        if values.isinf().any() and not values.isnan().any()
    }

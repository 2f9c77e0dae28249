"""Deep ensembles: several networks trained apart, whose predictions are averaged.

Lakshminarayanan, Pritzel and Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
Deep Ensembles", NeurIPS 2017.
"""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from csgmcmc.draws import MemoryDraws


def ensemble_draws(models: Iterable[nn.Module | Mapping[str, Tensor]]) -> MemoryDraws:
    """The trained networks, or their `state_dict`s, as draws: one chain for each."""
    draws = MemoryDraws()
    for number, model in enumerate(models):
        draws.append(model, step=0, chain_id=number)
    return draws

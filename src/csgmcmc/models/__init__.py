"""What the experiments train."""

from csgmcmc.models.mlp import mlp

__all__ = ["mlp"]

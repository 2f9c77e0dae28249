"""What people use in place of sampling: each gives draws that `csgmcmc.Posterior` predicts with."""

from paper.rivals.dropout import add_dropout, dropout_draws
from paper.rivals.ensemble import ensemble_draws
from paper.rivals.laplace import (
    diagonal_laplace,
    last_layer_laplace,
    linearised_probs,
)
from paper.rivals.swag import SWAG

__all__ = [
    "SWAG",
    "add_dropout",
    "diagonal_laplace",
    "dropout_draws",
    "ensemble_draws",
    "last_layer_laplace",
    "linearised_probs",
]

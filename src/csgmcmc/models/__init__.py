"""What the experiments train."""

from csgmcmc.models.mlp import mlp
from csgmcmc.models.resnet import ResNet, resnet8, resnet18, resnet20, resnet50

__all__ = ["ResNet", "mlp", "resnet8", "resnet18", "resnet20", "resnet50"]

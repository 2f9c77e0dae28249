"""What the experiments train."""

from paper.networks.mlp import mlp
from paper.networks.resnet import ResNet, resnet8, resnet18, resnet20, resnet50

__all__ = ["ResNet", "mlp", "resnet8", "resnet18", "resnet20", "resnet50"]

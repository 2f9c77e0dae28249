"""The multi-layer perceptron."""

from itertools import pairwise

from torch import nn

from paper.arguments import check_count


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes, from inputs to outputs, with ReLU between them.

    Inputs are flattened. `mlp(784, 400, 400, 10)` is our network for MNIST: of the paper's it is
    only known that it has three layers.
    """
    check_count("number of sizes", len(sizes), at_least=2)
    layers: list[nn.Module] = [nn.Flatten()]
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        if number:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers)

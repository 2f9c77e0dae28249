import pytest
import torch

from paper.networks import resnet8, resnet18, resnet20, resnet50


def weights(model):
    return sum(param.numel() for param in model.parameters())


def test_sizes_are_the_published_ones():
    # Of ResNet-18 and -50 those of torchvision, the former with a 3x3 stem and ten classes; of the
    # small ones the published 0.27 million, and 2048 weights of the two 1x1 shortcuts.
    assert weights(resnet50()) == 25_557_032
    assert weights(resnet18()) == 11_173_962
    assert weights(resnet20()) == 272_474
    assert weights(resnet8()) == 78_042


@pytest.mark.parametrize(
    ("model", "size", "classes"),
    [(resnet8(width=8), 32, 10), (resnet20(classes=7), 32, 7), (resnet50(classes=20), 64, 20)],
)
def test_images_in_logits_out(model, size, classes):
    logits = model(torch.randn(2, 3, size, size))
    assert logits.shape == (2, classes)
    logits.sum().backward()
    assert all(param.grad is not None for param in model.parameters())

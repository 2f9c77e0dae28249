"""Residual networks of He et al. 2016.

ResNet-18 for 32x32 images, ResNet-50 for ImageNet, and small ones for a CPU.
"""

from collections.abc import Sequence

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *_convolution(inputs, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, width, 3),
        )
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.path(inputs) + self.shortcut(inputs)).relu()


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.path = nn.Sequential(
            *_convolution(inputs, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, outputs, 1),
        )
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.path(inputs) + self.shortcut(inputs)).relu()


class ResNet(nn.Module):
    """A stem, stages of blocks, each but the first halving the image, and a linear classifier.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        blocks: number of blocks in each stage.
        width: channels of the first stage; each stage doubles them.
        classes: number of classes.
        large_images: begin as for ImageNet, with a stem that quarters the image.
        stem_stride: of the stem for small images; 2 halves the image, for a quarter of the work.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        *,
        width: int,
        classes: int,
        large_images: bool = False,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        if large_images:
            stem = [*_convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
        else:
            stem = [*_convolution(3, width, 3, stem_stride), nn.ReLU()]
        self.stem = nn.Sequential(*stem)
        stages, channels = [], width
        for number, count in enumerate(blocks):
            stage = []
            for index in range(count):
                stride = 2 if number > 0 and index == 0 else 1
                stage.append(block(channels, width * 2**number, stride))
                channels = block.expansion * width * 2**number
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.stages(self.stem(images)).mean((2, 3)))


def resnet8(classes: int = 10, width: int = 16, stem_stride: int = 1) -> ResNet:
    """For 32x32 images on a CPU: 78 thousand weights at width 16."""
    return ResNet(BasicBlock, (1, 1, 1), width=width, classes=classes, stem_stride=stem_stride)


def resnet20(classes: int = 10, width: int = 16) -> ResNet:
    """For 32x32 images: 272 thousand weights at width 16."""
    return ResNet(BasicBlock, (3, 3, 3), width=width, classes=classes)


def resnet18(classes: int = 10) -> ResNet:
    """For 32x32 images, as in the paper's CIFAR experiments: 11 million weights."""
    return ResNet(BasicBlock, (2, 2, 2, 2), width=64, classes=classes)


def resnet50(classes: int = 1000) -> ResNet:
    """For ImageNet: 26 million weights."""
    return ResNet(Bottleneck, (3, 4, 6, 3), width=64, classes=classes, large_images=True)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
    """A convolution without bias, which the normalisation after it has."""
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return [convolution, nn.BatchNorm2d(outputs)]


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(*_convolution(inputs, outputs, 1, stride))

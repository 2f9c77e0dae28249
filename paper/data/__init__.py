"""Data of the experiments, as tensors."""

from paper.data.augmentation import PlainBatches, Standard, TrainingBatches, crop_and_flip
from paper.data.cifar import Cifar, Images, cifar
from paper.data.digits import Digits, load_digits, load_letters
from paper.data.image_folder import ImageFolder, find_image_folder
from paper.data.mnist import Mnist, mnist, not_mnist
from paper.data.sizes import SIZES, check_complete
from paper.data.uci import TWO_CLASS_NAMES, two_classes, with_intercept

__all__ = [
    "SIZES",
    "TWO_CLASS_NAMES",
    "Cifar",
    "Digits",
    "ImageFolder",
    "Images",
    "Mnist",
    "PlainBatches",
    "Standard",
    "TrainingBatches",
    "check_complete",
    "cifar",
    "crop_and_flip",
    "find_image_folder",
    "load_digits",
    "load_letters",
    "mnist",
    "not_mnist",
    "two_classes",
    "with_intercept",
]

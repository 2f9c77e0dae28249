"""Data of the experiments, as tensors."""

from csgmcmc.data.augmentation import PlainBatches, Standard, TrainingBatches, crop_and_flip
from csgmcmc.data.cifar import Cifar, Images, cifar, from_dataset
from csgmcmc.data.digits import Digits, digits
from csgmcmc.data.image_folder import ImageFolder, find_image_folder
from csgmcmc.data.letters import letters
from csgmcmc.data.mnist import Mnist, mnist, not_mnist
from csgmcmc.data.uci import TWO_CLASS_NAMES, two_classes, with_intercept

__all__ = [
    "TWO_CLASS_NAMES",
    "Cifar",
    "Digits",
    "ImageFolder",
    "Images",
    "Mnist",
    "PlainBatches",
    "Standard",
    "TrainingBatches",
    "cifar",
    "crop_and_flip",
    "digits",
    "find_image_folder",
    "from_dataset",
    "letters",
    "mnist",
    "not_mnist",
    "two_classes",
    "with_intercept",
]

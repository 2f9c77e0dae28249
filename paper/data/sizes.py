"""How many images the data sets of the paper have."""

SIZES = {
    "mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "imagenet": (1_281_167, 50_000),
}
"""Images to train on, and to test with."""


def check_complete(name: str, train: int, test: int) -> None:
    """Raise a `ValueError` if images of a data set are missing."""
    if (train, test) != SIZES[name]:
        whole = SIZES[name]
        raise ValueError(
            f"the preset paper is for all of {name}, {whole[0]:,} training and {whole[1]:,} test "
            f"images, and the data have {train:,} and {test:,}: complete them, or take another "
            "preset"
        )

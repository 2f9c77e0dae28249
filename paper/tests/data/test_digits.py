import torch

from paper.data import load_digits, load_letters


def test_digits_are_split_once_and_for_all():
    parts = load_digits()
    assert [len(part) for part in parts] == [1000, 300, 497]
    images = torch.cat([part.tensors[0] for part in parts])
    labels = torch.cat([part.tensors[1] for part in parts])
    assert images.shape == (1797, 1, 8, 8)
    assert images.min() == 0
    assert images.max() == 1
    for part in parts:  # every class in every part, about equally often
        assert (part.tensors[1].bincount() / len(part) - 0.1).abs().max() < 0.04
    assert labels.bincount().sum() == 1797
    assert len(images.flatten(1).unique(dim=0)) == 1797  # no image is in two parts
    assert torch.equal(parts.test.tensors[0], load_digits().test.tensors[0])


def test_letters_look_like_the_digits_in_all_but_shape():
    images = load_letters()
    assert images.shape == (19 * 12, 1, 8, 8)
    train = load_digits().train.tensors[0]
    assert set(images.unique().tolist()) <= {count / 16 for count in range(17)}
    assert abs(images.mean() - train.mean()) < 0.05
    first_l = images[8, 0]  # DejaVu Sans bold: a stroke on the left, and one at the foot
    assert first_l[:-2].mean(0).argmax() < 4
    assert first_l[-1].mean() > 2 * first_l[0].mean()

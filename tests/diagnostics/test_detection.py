import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import binary_auroc

from csgmcmc.diagnostics.calibration import auroc

INSIDE, OUTSIDE = [1.0, 2.0, 3.0, 4.0], [2.5, 3.0, 5.0]


def test_auroc_by_hand():
    # Among the 12 pairs, the outside is above in 2 + 2 + 4, and one is a tie.
    assert auroc(INSIDE, OUTSIDE) == pytest.approx(8.5 / 12)


def test_perfect_useless_and_inverted_scores():
    low, high = [0.0, 1.0], [2.0, 3.0, 4.0]
    assert auroc(low, high) == 1
    assert auroc(high, low) == 0
    assert auroc([1.0] * 4, [1.0]) == 0.5


def test_against_torchmetrics():
    generator = np.random.default_rng(0)
    inside, outside = generator.beta(2, 3, size=300), generator.beta(3, 2, size=200)
    scores = torch.from_numpy(np.concatenate([inside, outside]))
    labels = torch.tensor([0] * 300 + [1] * 200)
    assert auroc(inside, outside) == pytest.approx(binary_auroc(scores, labels).item())


def test_bad_scores():
    with pytest.raises(ValueError, match=r"inside must have axes \(n\).* got shape \(1, 2\)"):
        auroc([[1.0, 2.0]], OUTSIDE)
    with pytest.raises(ValueError, match=r"outside must have .* none empty, got shape \(0,\)"):
        auroc(INSIDE, [])

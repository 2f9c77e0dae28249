"""The page of ImageNet, from records made up so that every claim is known."""

import pytest

from paper.pages import make_page


def make_results(errors, seeds=2):
    """`errors` by method; the scores of cSGHMC differ from seed to seed by 0.001."""
    records = {
        f"{method}, seed {seed}": {
            "method": method,
            "seed": seed,
            "scores": {
                "draws": 9,
                "tested": 50_000,
                "nll": 3 * error + 0.001 * seed * (method == "cSGHMC"),
                "nll_error": 0.004,
                "top1_error": error + 0.001 * seed * (method == "cSGHMC"),
                "top5_error": error / 3,
            },
        }
        for seed in range(seeds)
        for method, error in errors.items()
    }
    network = {"kind": "tiny", "batch": 8}
    config = {"network": network, "size": 32, "epochs": 3, "cycles": 3}
    return {"experiment": "imagenet", "config": config, "records": records}


OTHERS = {"SGDM": 0.3, "Snapshot-SGDM": 0.29, "SGHMC": 0.3}


@pytest.mark.parametrize(("best", "holds"), [(0.25, True), (0.35, False), (0.2995, None)])
def test_each_claim_can_fall_each_way(best, holds):
    others = dict.fromkeys(OTHERS, 0.3) if holds is None else OTHERS
    claims = make_page(make_results({**others, "cSGHMC": best})).claims
    assert [claim.holds for claim in claims] == [holds, holds]
    assert "of 3 comparisons hold" in claims[0].ours
    assert "of 2 comparisons hold" in claims[1].ours


def test_one_seed_decides_nothing():
    claims = make_page(make_results({**OTHERS, "cSGHMC": 0.2}, seeds=1)).claims
    assert [claim.holds for claim in claims] == [None, None]


def test_the_page_says_what_the_paper_does_not_state():
    (settings, *_) = make_page(make_results({**OTHERS, "cSGHMC": 0.25})).parts
    assert "It gives no step size, β, weight decay, batch or schedule for ImageNet" in str(settings)

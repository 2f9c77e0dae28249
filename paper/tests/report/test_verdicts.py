"""Comparisons by t tests, and verdicts corrected for the number of claims."""

import numpy as np
import pytest
from scipy import stats

from paper.report.compare import all_lower, gap
from paper.report.gaps import Gap, above, by_seed, evidence, lead, tally, within
from paper.report.page import Claim
from paper.report.verdicts import judge


def scores(*errors):
    return {seed: {"error": error} for seed, error in enumerate(errors)}


def claim_of(*gaps, **options):
    return Claim("x", "", "", gaps=gaps, **options)


def far(seeds=10):
    """Clear whatever the correction."""
    return Gap(1.0, 0.01, seeds)


def test_differences_are_seed_by_seed():
    made = {"a": scores(0.2, 0.3), "b": scores(0.25, 0.37, 0.9), "c": scores(0.4)}
    found = gap(made, "error", "a", "b")
    assert (found.mean, found.error, found.seeds) == (pytest.approx(0.06), pytest.approx(0.01), 2)
    one = gap(made, "error", "a", "c")
    assert (one.mean, one.error, one.seeds) == (pytest.approx(0.2), float("inf"), 1)
    assert gap(made, "error", "a", "d").seeds == 0


def test_the_chance_is_that_of_students_t():
    values = np.random.default_rng(0).normal(0.5, 1, 7)
    assert lead(values.tolist()).chance == pytest.approx(stats.ttest_1samp(values, 0)[1])
    assert by_seed({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).chance == 1
    assert by_seed({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}).chance == 0
    assert lead([1.0]).side is None


def test_three_seeds_need_four_standard_errors():
    assert Gap(4.31, 1.0, 3).side is True
    assert Gap(4.29, 1.0, 3).side is None
    assert Gap(-4.31, 1.0, 3).side is False


@pytest.mark.parametrize(
    ("sides", "expected", "words"),
    [
        ([1], True, "1 of 1 comparisons hold"),
        ([-1], False, "0 of 1 comparisons hold, 1 contradicted"),
        ([0], None, "0 of 1 comparisons hold, 1 undecided"),
        ([1, 1, 1, 0], None, "3 of 4 comparisons hold, 1 undecided"),
        ([1, 1, 1, -1], False, "3 of 4 comparisons hold, 1 contradicted"),
    ],
)
def test_all_comparisons_of_a_claim_must_hold(sides, expected, words):
    gaps = [Gap(side or 0.1, 0.1 if side else 1.0, 10) for side in sides]
    assert claim_of(*gaps).holds is expected
    assert tally(gaps) == words


def test_one_of_many_is_contradicted_by_more_than_chance_allows():
    two_sided = Gap(-2.3, 1.0, 10)  # p = 0.047
    assert claim_of(two_sided).holds is False
    assert claim_of(two_sided, far()).holds is None  # of two, one is so clear by chance
    holds, chance = evidence([two_sided, far()])
    assert not holds
    assert chance == pytest.approx(2 * two_sided.chance)


def test_numbers_are_alike_only_if_they_are_clearly_near():
    near = above([4.1, 3.9, 4.0, 4.05, 3.95], 4.0)
    assert claim_of(*within(near, 1.0)).holds is True
    assert claim_of(*within(Gap(0.0, 0.6, 5), 1.0)).holds is None
    assert claim_of(*within(Gap(9.0, 0.6, 5), 1.0)).holds is False


def test_claims_of_scores_name_what_does_not_hold():
    made = {"a": scores(0.2, 0.21, 0.2), "b": scores(0.3, 0.32, 0.31), "c": scores(0.2, 0.22, 0.2)}
    claim = all_lower("x", "", made, "error", [("a", "b"), ("a", "c")])
    assert "1 of 2 comparisons hold, 1 undecided (a 20.33 ± 0.33, " in claim.ours
    assert claim.ours.endswith("; a is 0.33 ± 0.33 below c")
    assert all_lower("x", "", made, "error", [("a", "d")]).holds is None


def test_few_seeds_decide_nothing():
    few, one, enough = judge([claim_of(far(4)), claim_of(Gap(1.0, np.inf, 1)), claim_of(far(5))])
    assert (few.text, few.sure) == ("undecided (4 seeds)", "leans for, p < 0.001")
    assert (one.text, one.sure) == ("undecided (1 seed)", "-")
    assert (enough.text, enough.sure) == ("held", "p < 0.001 corrected, 5 seeds")


def test_holm_corrects_for_the_claims_that_can_be_decided():
    middling = Gap(2.9, 1.0, 10)  # p = 0.0176
    exact, few = Claim("x", "", "", exact=True), claim_of(far(3))
    assert [v.text for v in judge([claim_of(middling), exact, few])] == [
        "held",
        "held",
        "undecided (3 seeds)",
    ]
    found = judge([claim_of(middling)] * 3)
    assert [verdict.text for verdict in found] == ["undecided"] * 3
    assert found[0].sure == "p = 0.018; p = 0.053 corrected, 10 seeds"
    # What is clearer comes first, and leaves fewer to correct for.
    assert [v.text for v in judge([claim_of(middling), claim_of(far()), claim_of(far())])] == [
        "held"
    ] * 3


def test_chance_alone_rarely_decides_anything():
    """In 400 reports of 8 claims that are all false by nothing, at most 5 % have a verdict."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        claims = [claim_of(lead(rng.standard_normal(5).tolist())) for _ in range(8)]
        wrong += any(verdict.kind != "undecided" for verdict in judge(claims))
    assert wrong <= 400 * 0.05 + 3 * (400 * 0.05 * 0.95) ** 0.5


def test_other_verdicts():
    against = Gap(-1.0, 0.01, 10)
    claims = [
        claim_of(against),
        claim_of(against, unstated=True),
        claim_of(far(), doubt="fits worse"),
        Claim("x", "", ""),
        Claim("x", "", "", exact=False),
    ]
    assert [verdict.text for verdict in judge(claims)] == [
        "contradicted",
        "not reproduced",
        "undecided (fits worse)",
        "undecided",
        "contradicted",
    ]

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import datasets
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from csgmcmc.estimators import BayesianMLPClassifier
from tests.estimators.small import SMALL, breast_cancer, iris


def test_classes_keep_their_names():
    features, numbers = iris()
    names = np.array(["setosa", "versicolor", "virginica"])[numbers]
    estimator = BayesianMLPClassifier(**SMALL).fit(features, names)
    probs = estimator.predict_proba(features)
    assert estimator.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert_allclose(probs.sum(1), 1)
    assert (estimator.predict(features) == estimator.classes_[probs.argmax(1)]).all()
    assert estimator.score(features, names) > 0.8


def test_probabilities_are_the_average_of_the_draws():
    features, classes = iris()
    estimator = BayesianMLPClassifier(**SMALL).fit(features, classes)
    found = estimator.predictive(features, members=True)
    assert found.members is not None
    average = np.average(found.members, axis=0, weights=estimator.posterior_.weights)
    assert_allclose(average, estimator.predict_proba(features), atol=1e-12)
    assert (found.mutual_information <= found.entropy).all()


def test_held_out_probabilities_are_good():
    features, classes = breast_cancer()
    train, test, train_classes, test_classes = train_test_split(
        features, classes, random_state=0, stratify=classes
    )
    estimator = BayesianMLPClassifier(epochs=300, draws_per_cycle=5, random_state=0)
    estimator.fit(train, train_classes)
    # Of a logistic regression it is 0.08 to 0.1; probabilities of half are 0.69.
    assert log_loss(test_classes, estimator.predict_proba(test)) < 0.15


def test_few_rows_of_many_classes_get_sharp_probabilities():
    """Fifty rows of digits: without a cold rung the probabilities are far too cautious."""
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    fitted, held_out = order[:50], order[1000:]
    model = BayesianMLPClassifier(random_state=0).fit(images[fitted], labels[fitted])
    assert log_loss(labels[held_out], model.predict_proba(images[held_out])) < 0.75  # it was 0.88


def test_mutual_information_is_high_far_from_the_data():
    generator = np.random.default_rng(0)
    features = np.concatenate(
        [generator.normal(-2, 0.5, (50, 2)), generator.normal(2, 0.5, (50, 2))]
    )
    classes = np.repeat([0, 1], 50)
    estimator = BayesianMLPClassifier(**{**SMALL, "epochs": 60, "draws_per_cycle": 20})
    estimator.fit(features, classes)
    beside = np.array([[8.0, -8.0], [-8.0, 8.0]])  # on the boundary, far from all that was seen
    assert (
        estimator.predictive(beside).mutual_information.min()
        > 5 * estimator.predictive(features).mutual_information.mean()
    )


def test_single_class_raises():
    with pytest.raises(ValueError, match="y has"):
        BayesianMLPClassifier().fit(np.eye(4), np.full(4, 7))


def test_continuous_targets_raise():
    with pytest.raises(ValueError, match="Unknown label type"):
        BayesianMLPClassifier().fit(np.eye(4), [0.1, 0.2, 0.3, 0.4])


def test_check_of_fitted_and_pickled_estimator():
    features, numbers = iris()
    names = np.array(["a", "b", "c"])[numbers]
    estimator = BayesianMLPClassifier(random_state=0).fit(features[::2], names[::2])
    found = estimator.check(features[1::2], names[1::2])
    assert found.learned.holds
    assert "temperature" in found.sampling.words
    assert found.calibrated.holds is not False
    with pytest.raises(ValueError, match="y has the class z"):
        estimator.check(features[:1], ["z"])
    again = pickle.loads(pickle.dumps(estimator)).check(features[1::2], names[1::2])
    assert again.numbers == found.numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    "table",
    [datasets.load_iris(), datasets.load_wine(), datasets.load_breast_cancer()],
    ids=["iris", "wine", "breast cancer"],
)
def test_probabilities_are_calibrated_with_the_defaults(table: Any):
    """So few held-out rows can only show a large error: the answer is yes or unknown."""
    train, test, train_classes, test_classes = train_test_split(
        table.data, table.target, test_size=0.5, random_state=0, stratify=table.target
    )
    estimator = BayesianMLPClassifier(random_state=0).fit(train, train_classes)
    found = estimator.check(test, test_classes)
    assert found.learned.holds
    assert found.calibrated.holds is not False
    assert found.sampling.holds is not False
    assert found.numbers["ece"] <= found.numbers["ece_by_chance"]


@pytest.mark.slow
def test_twice_the_steps_give_the_same_log_score():
    """Over eight splits the mean difference is within three of its standard errors."""
    features, classes = datasets.make_moons(400, noise=0.3, random_state=0)
    differences = []
    for seed in range(8):
        train, test, train_classes, test_classes = train_test_split(
            features, classes, random_state=seed, stratify=classes
        )
        steps = len(BayesianMLPClassifier(random_state=seed).fit(train, train_classes).loss_curve_)
        losses = []
        for factor in (1, 2):
            estimator = BayesianMLPClassifier(random_state=seed, epochs=factor * steps)
            estimator.fit(train, train_classes)
            losses.append(log_loss(test_classes, estimator.predict_proba(test)))
        differences.append(losses[1] - losses[0])
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < max(3 * error, 0.005)

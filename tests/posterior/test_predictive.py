import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from csgmcmc import DrawStore, MemoryDraws, Posterior
from csgmcmc.posterior import Categorical, ClassPredictive, Gaussian, NumberPredictive
from csgmcmc.posterior import passes as passes_module
from csgmcmc.posterior.passes import plain_split
from csgmcmc.posterior.predictive import Mixture
from tests.posterior.support import (
    CLOSE,
    TIGHT,
    Scale,
    Table,
    averaged,
    entropy,
    gaussian_entropy,
    in_memory,
    mean_and_variance,
    mlp,
    outputs_of,
    random,
    spread,
    tables,
)

WEIGHTS = [0.5, 3.0, 0.0, 1.5, 1.0]
BOTH_WAYS = pytest.mark.parametrize("vectorize", [True, False])


def table_posterior(outputs, weights: Any = WEIGHTS, **options) -> Posterior:
    return Posterior(Table(outputs[0]), tables(outputs), weights, **options)


def predicted(outputs, **options) -> Any:
    posterior = table_posterior(outputs, **options)
    return posterior.predict(torch.arange(outputs.shape[1]), members=True)


# What is predicted


@BOTH_WAYS
@pytest.mark.parametrize(
    ("shape", "dim"), [((7, 4), 1), ((7, 4, 2, 3), 1), ((7, 2, 3, 4), -1), ((7, 4), -1)]
)
def test_categorical(shape, dim, vectorize):
    logits = 3 * random(5, *shape)
    result = predicted(logits, likelihood=Categorical(dim), vectorize=vectorize)
    draw_dim = dim if dim < 0 else dim + 1
    members = logits.softmax(draw_dim)
    probs = averaged(WEIGHTS, members)
    assert_close(result.members, members, **TIGHT)
    assert_close(result.probs, probs, **TIGHT)
    assert_close(result.log_probs, probs.log(), **TIGHT)
    assert_close(result.spread, spread(WEIGHTS, members), **TIGHT)
    assert_close(result.entropy, entropy(probs, dim), **TIGHT)
    own = averaged(WEIGHTS, entropy(members, draw_dim))
    assert_close(result.expected_entropy, own, **TIGHT)
    assert_close(result.mutual_information, entropy(probs, dim) - own, **TIGHT)


@BOTH_WAYS
@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
def test_bernoulli(shape, vectorize):
    logits = 3 * random(5, *shape)
    result = predicted(logits, likelihood="bernoulli", vectorize=vectorize)
    members = logits.sigmoid()
    probs = averaged(WEIGHTS, members)

    def both(yes):
        return entropy(torch.stack([1 - yes, yes]), 0)

    assert_close(result.members, members, **TIGHT)
    assert_close(result.probs, probs, **TIGHT)
    assert_close(result.spread, spread(WEIGHTS, members), **TIGHT)
    assert_close(result.entropy, both(probs), **TIGHT)
    assert_close(result.expected_entropy, averaged(WEIGHTS, both(members)), **TIGHT)


@BOTH_WAYS
@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
@pytest.mark.parametrize("learned", [True, False])
def test_gaussian(shape, learned, vectorize):
    outputs = random(5, *shape, 2) if learned else random(5, *shape)
    mean, noise = (outputs[..., 0], outputs[..., 1].exp()) if learned else (outputs, None)
    options = {"forward": mean_and_variance, "likelihood": "gaussian"}
    fixed = {"likelihood": Gaussian(variance=0.3)}
    result = predicted(outputs, vectorize=vectorize, **(options if learned else fixed))
    noise = torch.full_like(mean, 0.3) if noise is None else noise
    between = spread(WEIGHTS, mean).square()
    variance = averaged(WEIGHTS, noise) + between
    own = averaged(WEIGHTS, gaussian_entropy(noise))
    assert type(result) is NumberPredictive
    assert_close(result.members, mean, **TIGHT)
    assert_close(result.mean, averaged(WEIGHTS, mean), **TIGHT)
    assert_close(result.noise_variance, averaged(WEIGHTS, noise), **TIGHT)
    assert_close(result.spread.square(), between, **TIGHT)
    assert_close(result.variance, variance, **TIGHT)
    assert_close(result.entropy, gaussian_entropy(variance), **TIGHT)
    assert_close(result.expected_entropy, own, **TIGHT)
    assert_close(result.mutual_information, gaussian_entropy(variance) - own, **TIGHT)


def test_each_number_may_have_a_variance_of_its_own():
    variance = torch.tensor([0.1, 2.0])
    result = predicted(random(5, 7, 2), likelihood=Gaussian(variance))
    assert_close(result.noise_variance, variance.double().expand(7, 2))


class SharedNoise(Table):
    """The variance is a number for each column, or one for all, whatever the inputs are."""

    def forward(self, inputs):
        return self.rows[inputs][..., 0], self.rows[0, 1].exp().reshape(self.shape)

    def __init__(self, rows, shape):
        super().__init__(rows)
        self.shape = shape


@BOTH_WAYS
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("points", [4, 7])
def test_one_learned_variance_for_all_points(points, shape, vectorize):
    """As `gaussian_nll_loss` takes it; also where as many draws count as there are points."""
    outputs = random(5, points, 2)
    posterior = Posterior(
        SharedNoise(outputs[0], shape),
        tables(outputs),
        WEIGHTS,
        likelihood="gaussian",
        vectorize=vectorize,
    )
    result: Any = posterior.predict(torch.arange(points))
    noise = averaged(WEIGHTS, outputs[:, 0, 1].exp())
    assert_close(result.noise_variance, noise.expand(points), **TIGHT)


class NoiseItself(Table):
    """Gives a parameter as it is, not something computed from it."""

    def __init__(self, rows):
        super().__init__(rows)
        self.noise = torch.nn.Parameter(rows[:1].exp())

    def forward(self, inputs):
        return self.rows[inputs], self.noise


@BOTH_WAYS
def test_outputs_may_be_parameters(vectorize):
    outputs = random(5, 7)
    draws = MemoryDraws()
    for step, rows in enumerate(outputs):
        draws.append(NoiseItself(rows), step=step)
    posterior = Posterior(
        NoiseItself(outputs[0]), draws, WEIGHTS, likelihood="gaussian", vectorize=vectorize
    )
    result: Any = posterior.predict(torch.arange(7))
    expected = averaged(WEIGHTS, outputs[:, 0].exp()).expand(7)
    assert_close(result.noise_variance, expected, **TIGHT)


def test_members_that_agree_have_no_mutual_information():
    logits = 20 * random(1, 50, 4, dtype=torch.float32).expand(5, -1, -1)
    information = predicted(logits).mutual_information
    assert (information >= 0).all()
    assert (information < 1e-5).all()


@BOTH_WAYS
def test_draw_of_weight_0_is_only_a_member(vectorize):
    logits = random(5, 7, 4)
    posterior = table_posterior(logits, vectorize=vectorize)
    with_members: Any = posterior.predict(torch.arange(7), members=True)
    without: Any = posterior.predict(torch.arange(7))
    counting = [0, 1, 3, 4]
    alone: Any = table_posterior(
        logits[counting], np.array(WEIGHTS)[counting], vectorize=vectorize
    ).predict(torch.arange(7))
    assert without.members is None
    assert_close(with_members.members[2], logits[2].softmax(1), **TIGHT)
    for name in ("probs", "entropy", "expected_entropy", "spread"):
        assert_close(getattr(with_members, name), getattr(alone, name), **TIGHT)
        assert_close(getattr(without, name), getattr(alone, name), **TIGHT)


@pytest.mark.parametrize("likelihood", ["categorical", Gaussian(1.0)])
def test_diverged_draw_of_weight_0_is_only_a_member(likelihood):
    outputs = random(5, 7, 4)
    outputs[2] = math.nan
    result = predicted(outputs, likelihood=likelihood)
    assert result.members[2].isnan().all()
    assert not result.entropy.isnan().any()
    assert not result.spread.isnan().any()


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_nan_outputs_give_nan_predictions(likelihood):
    outputs = random(5, 7, 4)
    outputs[1] = math.nan
    result = predicted(outputs, likelihood=likelihood)
    assert result.probs.isnan().all()
    assert result.entropy.isnan().all()
    assert result.expected_entropy.isnan().all()


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_extreme_logits(likelihood):
    logits = torch.tensor([[1e4, -1e4, -1e4], [-1e4, 1e4, -1e4]]).unsqueeze(1)
    result = predicted(logits, weights=[1, 3], likelihood=likelihood)
    third = -2e4 if likelihood == "categorical" else -1e4
    expected = torch.tensor([[math.log(0.25), math.log(0.75), third]])
    assert_close(result.log_probs, expected)
    for values in (result.entropy, result.expected_entropy, result.spread, result.members):
        assert values.isfinite().all()


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("dim", [1, -1])
def test_log_probabilities_match_torch(offset, dim):
    """In single precision, also if logits are large and only their differences are small."""
    logits = (random(5, 7, 4, 4) + offset).float()
    result = predicted(logits, weights=[1, 0, 0, 0, 0], likelihood=Categorical(dim))
    assert_close(result.log_probs, logits[0].log_softmax(dim), rtol=1e-6, atol=1e-6)


def test_impossible_classes():
    """Masked by minus infinity, in all members or in some."""
    logits = torch.tensor([[[0.0, -math.inf, 0.0]], [[-math.inf, -math.inf, 0.0]]])
    result = predicted(logits, weights=[1, 1])
    assert_close(result.probs, torch.tensor([[0.25, 0.0, 0.75]]))
    assert result.log_probs[0, 1] == -math.inf
    assert_close(result.entropy, entropy(torch.tensor([[0.25, 0.75]]), 1))
    assert_close(result.expected_entropy, torch.tensor([math.log(2) / 2]))
    assert_close(result.spread, torch.tensor([[0.25, 0.0, 0.25]]))


@BOTH_WAYS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "gaussian"])
def test_half_precision_is_averaged_in_single_precision(dtype, kind, vectorize):
    outputs = random(5, 7, 4).to(dtype)
    likelihood = Gaussian(0.3) if kind == "gaussian" else kind
    result = predicted(outputs, likelihood=likelihood, vectorize=vectorize)
    exact = predicted(outputs.double(), likelihood=likelihood)
    for name, value in vars(result).items():
        if isinstance(value, torch.Tensor):
            assert value.dtype == torch.float32, name
            assert_close(value.double(), getattr(exact, name), **CLOSE)


@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "gaussian"])
def test_prediction_does_not_alias_the_average(kind):
    """Nobody else has its tensors, and they can be computed with, changed and pickled."""
    outputs = random(5, 7, 4)
    posterior = table_posterior(outputs, likelihood=Gaussian(0.3) if kind == "gaussian" else kind)
    results = [posterior.predict(torch.arange(7), members=True) for _ in range(2)]
    tensors = [
        {name: value for name, value in vars(result).items() if isinstance(value, torch.Tensor)}
        for result in results
    ]
    for name, value in tensors[0].items():
        assert not value.is_inference(), name
        assert value.is_contiguous(), name
        assert value.untyped_storage().nbytes() == value.nbytes, name
        value.zero_()
        assert tensors[1][name].any(), name
    again = pickle.loads(pickle.dumps(results[1]))
    assert all(torch.equal(getattr(again, name), value) for name, value in tensors[1].items())


# Loaders


def loader_of(form, inputs, targets):
    if form == "dicts":
        return DataLoader([{"rows": row} for row in inputs], batch_size=3)  # pyright: ignore[reportArgumentType]
    if form == "tensors":
        return DataLoader(inputs, batch_size=3)  # pyright: ignore[reportArgumentType]
    tensors = (inputs,) if form == "lists of one" else (inputs, targets)
    return DataLoader(TensorDataset(*tensors), batch_size=3)


@BOTH_WAYS
@pytest.mark.parametrize("group_bytes", [1, 50, 2**20])
@pytest.mark.parametrize("form", ["tensors", "pairs", "lists of one", "dicts"])
def test_loader_matches_one_large_batch(form, group_bytes, vectorize, monkeypatch):
    monkeypatch.setattr(passes_module, "MAX_GROUP_BYTES", group_bytes)
    logits, rows, targets = random(5, 7, 4), torch.arange(7), torch.arange(7) % 4
    forward = {"forward": lambda model, batch: model(batch["rows"])} if form == "dicts" else {}
    posterior = table_posterior(logits, vectorize=vectorize, **forward)
    result: Any = posterior.predict_loader(loader_of(form, rows, targets), members=True)
    whole = predicted(logits)
    assert type(result) is type(whole) is ClassPredictive
    for name in ("probs", "entropy", "expected_entropy", "spread", "members"):
        assert_close(getattr(result, name), getattr(whole, name), **TIGHT)
    if form == "pairs":
        assert torch.equal(result.targets, targets)
    else:
        assert result.targets is None


@pytest.mark.parametrize("group_bytes", [1, 50, 2**20])
def test_targets_of_a_shuffled_loader_are_in_the_order_of_the_predictions(group_bytes, monkeypatch):
    monkeypatch.setattr(passes_module, "MAX_GROUP_BYTES", group_bytes)
    rows = torch.arange(11)
    logits = 50 * torch.eye(11).repeat(5, 1, 1)
    loader = DataLoader(TensorDataset(rows, rows), batch_size=4, shuffle=True)
    result: Any = table_posterior(logits).predict_loader(loader)
    assert not torch.equal(result.targets, rows)
    assert torch.equal(result.probs.argmax(1), result.targets)
    scores = table_posterior(logits).log_scores(loader)
    assert scores.abs().max() < 1e-6


def test_regression_over_a_loader():
    outputs = random(5, 7)
    posterior = table_posterior(outputs, likelihood=Gaussian(0.3))
    result: Any = posterior.predict_loader([torch.arange(4), torch.arange(4, 7)])
    assert_close(result.mean, averaged(WEIGHTS, outputs), **TIGHT)
    assert_close(result.variance, 0.3 + spread(WEIGHTS, outputs).square(), **TIGHT)


def test_loader_of_unknown_length():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from torch.arange(7)

    result: Any = table_posterior(random(5, 7, 4)).predict_loader(DataLoader(Stream()))
    assert result.probs.shape == (7, 4)


def test_batches_are_grouped_by_the_bytes_of_their_inputs(monkeypatch):
    monkeypatch.setattr(passes_module, "MAX_GROUP_BYTES", 100)
    batches = [(torch.zeros(10), torch.zeros(1000))] * 7
    groups = passes_module._groups(batches, plain_split, torch.device("cpu"))
    assert [len(group) for group in groups] == [3, 3, 1]


def test_error_in_likelihood_restores_inference_mode_and_autocast():
    posterior = table_posterior(random(5, 7, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ValueError, match="targets must") as caught:
            posterior.log_scores([(torch.arange(7), torch.full((7,), 9))])
        assert caught.value.__traceback__ is not None  # which keeps the frames alive
        assert not torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")


@BOTH_WAYS
@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"rows": x, "name": "same"}])
def test_batch_size_changes_only_the_memory(form, vectorize):
    seen = []

    def forward(model, inputs):
        rows = inputs["rows"] if isinstance(inputs, dict) else inputs
        seen.append(len(rows))
        return model(rows)

    posterior = table_posterior(random(5, 7, 4), vectorize=vectorize, forward=forward)
    inputs = form(torch.arange(7))
    whole = posterior.predict(inputs, members=True)
    seen.clear()
    found = posterior.predict(inputs, members=True, batch_size=3)
    assert set(seen) == {3, 1}
    for name in ("probs", "entropy", "spread", "members"):
        assert_close(getattr(found, name), getattr(whole, name), **TIGHT)
    assert found.targets is None


def test_invalid_batch_size():
    posterior = table_posterior(random(5, 7, 4))
    with pytest.raises(ValueError, match="batch_size must"):
        posterior.predict(torch.arange(7), batch_size=0)
    uneven = (torch.arange(7), torch.arange(6))
    with pytest.raises(ValueError, match="leave out batch_size"):
        posterior.predict(uneven, batch_size=2)


def test_classes_that_come_last_are_not_mistaken_for_time():
    """Outputs (batch, time, vocabulary) and targets (batch, time), as of a language model."""
    logits, tokens = random(5, 7, 3, 4), torch.zeros(7, 3, dtype=torch.long)
    loader = [(torch.arange(7), tokens)]
    wrong, right = table_posterior(logits), table_posterior(logits, likelihood=Categorical(dim=-1))
    for call in (wrong.predict_loader, wrong.log_scores):
        with pytest.raises(ValueError, match=r"Categorical\(dim=-1\)"):
            call(loader)
    assert right.predict_loader(loader).entropy.shape == (7, 3)
    assert right.log_scores(loader).shape == (5, 7)
    # Targets of another kind are the caller's own.
    assert wrong.predict_loader([(torch.arange(7), random(7, 3, 4))]).entropy.shape == (7, 4)


def test_generator_is_read_once():
    logits = random(5, 7, 4)
    result: Any = table_posterior(logits).predict_loader(row for row in torch.arange(7).split(2))
    assert_close(result.probs, averaged(WEIGHTS, logits.softmax(2)), **TIGHT)


@pytest.mark.parametrize(("shape", "dim"), [((7, 4), 1), ((7, 4, 2, 3), 1), ((7, 2, 3, 4), -1)])
def test_forecasts_have_a_row_for_each_point(shape, dim):
    logits = random(5, *shape)
    targets = torch.randint(4, shape[:1] + shape[2:] if dim == 1 else shape[:-1])
    posterior = table_posterior(logits, likelihood=Categorical(dim))
    result: Any = posterior.predict_loader([(torch.arange(7), targets)], members=True)
    rows = [row.softmax(dim).movedim(dim, -1).reshape(-1, 4) for row in logits]
    members = torch.stack(rows)
    np.testing.assert_allclose(result.member_probs_numpy(), members, rtol=1e-12)
    np.testing.assert_allclose(result.probs_numpy(), averaged(WEIGHTS, members), rtol=1e-12)
    np.testing.assert_array_equal(result.labels_numpy(), targets.reshape(-1))


def test_single_precision_makes_forecasts_in_double():
    assert predicted(random(5, 7, 4, dtype=torch.float32)).probs_numpy().dtype == np.float64


def test_bernoulli_forecasts_have_two_classes():
    logits = random(5, 7, 2)
    result = predicted(logits, likelihood="bernoulli")
    yes = averaged(WEIGHTS, logits.sigmoid()).reshape(-1)
    np.testing.assert_allclose(result.probs_numpy(), torch.stack([1 - yes, yes], 1), rtol=1e-12)
    assert result.member_probs_numpy().shape == (5, 14, 2)


def test_missing_members_and_labels():
    result: Any = table_posterior(random(5, 7, 4)).predict(torch.arange(7))
    with pytest.raises(ValueError, match="members=True"):
        result.member_probs_numpy()
    with pytest.raises(ValueError, match="no targets"):
        result.labels_numpy()


# What is rejected


def test_invalid_arguments_of_posterior():
    draws, model = in_memory(mlp, 3), mlp()
    with pytest.raises(ValueError, match="draws is empty"):
        Posterior(model, [])
    with pytest.raises(ValueError, match="draws is empty"):
        Posterior(model, MemoryDraws())
    with pytest.raises(ValueError, match=r"draws is empty.*DrawStore\('typo'\)"):
        Posterior(model, DrawStore("typo"))
    with pytest.raises(ValueError, match="likelihood must be one of"):
        Posterior(model, draws, likelihood="gamma")
    with pytest.raises(ValueError, match="no parameters"):
        Posterior(torch.nn.ReLU(), draws)


@pytest.mark.parametrize(
    "weights", [[1, 2], [[1, 2, 3]], 1.0, [0, 0, 0], [1, -1, 2], [1, math.nan, 1], [1, math.inf, 1]]
)
def test_invalid_weights(weights):
    with pytest.raises(ValueError, match="weights must be"):
        Posterior(mlp(), in_memory(mlp, 3), weights)


def test_weights_are_normalised():
    posterior = Posterior(mlp(), in_memory(mlp, 3), [1, 2, 5])
    np.testing.assert_allclose(posterior.weights, [0.125, 0.25, 0.625])
    np.testing.assert_allclose(Posterior(mlp(), in_memory(mlp, 4)).weights, [0.25] * 4)


@pytest.mark.parametrize("vectorize", [True, False, None])
def test_draws_of_another_model_are_rejected(vectorize):
    draws, inputs = in_memory(mlp, 3), torch.zeros(2, 4)
    longer = torch.nn.Sequential(*mlp(), torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="is not of this model"):
        Posterior(longer, draws, vectorize=vectorize).predict(inputs)
    wider = torch.nn.Sequential(*mlp()[:3], torch.nn.Linear(6, 5))
    with pytest.raises(ValueError, match="is not of this model"):
        Posterior(wider, draws, vectorize=vectorize).predict(inputs)


def test_outputs_and_targets_that_do_not_fit_are_rejected():
    rows = torch.arange(7)
    classes = table_posterior(random(5, 7, 4))
    with pytest.raises(ValueError, match="likelihood='bernoulli'"):
        table_posterior(random(5, 7)).predict(rows)
    with pytest.raises(ValueError, match="variance="):
        table_posterior(random(5, 7), likelihood="gaussian").predict(rows)
    with pytest.raises(ValueError, match="variance="):
        table_posterior(
            random(5, 7, 2), forward=mean_and_variance, likelihood=Gaussian(0.3)
        ).predict(rows)
    with pytest.raises(ValueError, match="variance must be above 0"):
        Gaussian(0.0)
    with pytest.raises(ValueError, match="targets of shape"):
        classes.log_scores([(rows, rows.unsqueeze(1))])
    for likelihood in ("bernoulli", Gaussian(1.0)):
        with pytest.raises(ValueError, match="targets of shape"):
            table_posterior(random(5, 7, 2), likelihood=likelihood).log_scores([(rows, rows)])
    with pytest.raises(ValueError, match="loader must"):
        classes.log_scores([rows])


@pytest.mark.parametrize("likelihood", ["bernoulli", Gaussian(0.5)])
def test_targets_of_one_dimension_fit_one_output(likelihood):
    rows, yes = torch.arange(7), (random(7, seed=1) > 0).double()
    posterior = table_posterior(random(5, 7, 1), likelihood=likelihood)
    found = posterior.log_scores([(rows, yes)])
    torch.testing.assert_close(found, posterior.log_scores([(rows, yes[:, None])]), **TIGHT)
    checks = [posterior.check([(rows, each)]).numbers for each in (yes, yes[:, None])]
    assert checks[0] == pytest.approx(checks[1], nan_ok=True)


def test_fractional_targets_of_classes_are_rejected():
    rows, targets = torch.arange(2), torch.tensor([0.7, 1.0])
    classes = table_posterior(random(5, 2, 4))
    for method in (classes.log_scores, classes.check):
        with pytest.raises(ValueError, match="targets must be class numbers"):
            method([(rows, targets)])
    with pytest.raises(ValueError, match="targets must be class numbers"):
        predicted_loader: Any = classes.predict_loader([(rows, targets)])
        predicted_loader.labels_numpy()
    labels = table_posterior(random(5, 2), likelihood="bernoulli")
    for wrong in (0.7, 2.0, float("nan")):
        targets = torch.tensor([wrong, 1.0])
        for method in (labels.log_scores, labels.check):
            with pytest.raises(ValueError, match="targets must be 0 or 1"):
                method([(rows, targets)])


@pytest.mark.parametrize("wrong", [4, -1])
def test_target_out_of_range_is_rejected(wrong):
    with pytest.raises(ValueError, match="targets"):
        table_posterior(random(5, 1, 4)).log_scores([(torch.tensor([0]), torch.tensor([wrong]))])


def test_empty_loader_is_rejected():
    posterior = table_posterior(random(5, 7, 4))
    with pytest.raises(ValueError, match="loader"):
        posterior.predict_loader([])
    with pytest.raises(ValueError, match="loader"):
        posterior.log_scores([])


# How likely the data are


@BOTH_WAYS
@pytest.mark.parametrize("group_bytes", [1, 50, 2**20])
def test_scores_match_the_losses(group_bytes, vectorize, monkeypatch):
    monkeypatch.setattr(passes_module, "MAX_GROUP_BYTES", group_bytes)
    options: Any = {"vectorize": vectorize}
    rows = torch.arange(7)

    def check(outputs, targets, loss, **likelihood):
        posterior = table_posterior(outputs, **options, **likelihood)
        scores = posterior.log_scores(zip(rows.split(3), targets.split(3), strict=True))
        assert scores.shape == (5, 7)
        for found, output in zip(scores, outputs, strict=True):
            assert_close(found, -loss(output, targets).reshape(7, -1).sum(1), **TIGHT)

    def classes(output, targets):
        return F.cross_entropy(output, targets, reduction="none")

    def labels(output, targets):
        return F.binary_cross_entropy_with_logits(output, targets, reduction="none")

    def noise(output, targets):
        mean, variance = mean_and_variance(lambda x: x, output)
        return F.gaussian_nll_loss(mean, targets, variance, full=True, reduction="none")

    def last(output, targets):
        return F.cross_entropy(output.movedim(-1, 1), targets, reduction="none")

    check(random(5, 7, 4), rows % 4, classes)
    check(random(5, 7, 4, 2, 3), torch.randint(4, (7, 2, 3)), classes)
    check(random(5, 7, 2, 4), torch.randint(4, (7, 2)), last, likelihood=Categorical(-1))
    for shape in [(7,), (7, 1), (7, 3)]:
        yes = (random(*shape, seed=1) > 0).double()
        check(random(5, *shape), yes, labels, likelihood="bernoulli")
        options["forward"] = mean_and_variance
        numbers = random(*shape, seed=1)
        check(random(5, *shape, 2), numbers, noise, likelihood="gaussian")
        del options["forward"]


def test_fixed_variance_matches_the_loss():
    outputs, targets = random(5, 7), random(7, seed=1)
    scores = table_posterior(outputs, likelihood=Gaussian(0.3)).log_scores(
        [(torch.arange(7), targets)]
    )
    loss = F.gaussian_nll_loss(outputs, targets.expand(5, -1), torch.full((5, 7), 0.3), full=True)
    assert_close(-scores.mean(), loss, **CLOSE)


def test_log_scores_of_a_loader_sum_to_the_likelihood_of_the_data():
    draws, inputs = in_memory(mlp, 4), random(9, 4, dtype=torch.float32)
    labels = torch.arange(9) % 3
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4)
    exact = [
        -F.cross_entropy(one.double(), labels, reduction="sum").item()
        for one in outputs_of(mlp(), draws, inputs)
    ]
    scores = Posterior(mlp(), draws).log_scores(loader)
    np.testing.assert_allclose(scores.sum(1), exact, rtol=1e-6)


def test_log_scores_are_summed_in_double_precision():
    """In single precision 31 is too little to change 2**30."""
    logits = torch.tensor([[[-(2.0**30), 0.0], [-31.0, 0.0]]])
    rows = torch.tensor([0] + [1] * 100)
    batches = [(row, torch.zeros(len(row), dtype=torch.long)) for row in rows.split(7)]
    assert table_posterior(logits, [1.0]).log_scores(batches).sum(1).tolist() == [-(2**30) - 3100]


# Mixed precision. In this process neither model nor average makes a product of matrices: on some
# processors those in bfloat16 end it.


@pytest.fixture
def autocast_of_average(monkeypatch):
    """Whether autocast was on, each time that something was averaged."""
    enabled = []

    def weighted(weights, values):
        enabled.append(torch.is_autocast_enabled("cpu"))
        return (weights.reshape(-1, *[1] * (values.ndim - 1)) * values).sum(0)

    monkeypatch.setattr("csgmcmc.posterior.averages.weighted", weighted)
    return enabled


@BOTH_WAYS
@pytest.mark.parametrize("autocast", [torch.bfloat16, None])
def test_autocast_applies_to_the_model_only(autocast, vectorize, autocast_of_average):
    dtypes = []

    def told(_):
        enabled = torch.is_autocast_enabled("cpu")
        dtypes.append(torch.get_autocast_dtype("cpu") if enabled else None)

    posterior = Posterior(Scale(told), in_memory(Scale, 3), autocast=autocast, vectorize=vectorize)
    posterior.predict(torch.ones(2, 3))
    assert set(dtypes) == {autocast}
    assert set(autocast_of_average) == {False}


def test_autocast_of_the_caller_does_not_apply_to_the_average(autocast_of_average):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Posterior(Scale(), in_memory(Scale, 3), vectorize=False).predict(torch.ones(2, 3))
    assert set(autocast_of_average) == {False}


PREDICT = """
import torch
from csgmcmc import Posterior
from tests.posterior.support import in_memory, mlp, random

draws, inputs = in_memory(mlp, 3), random(6, 4, dtype=torch.float32)
exact = Posterior(mlp(), draws).predict(inputs)
for vectorize in (True, False):
    narrow = Posterior(mlp(), draws, autocast=torch.bfloat16, vectorize=vectorize).predict(inputs)
    error = (narrow.probs - exact.probs).abs().max().item()
    print(narrow.probs.dtype, narrow.spread.dtype, 1e-5 < error < 1e-1)
"""


def test_matrix_products_in_bfloat16():
    """In a process of its own, where oneDNN does without instructions that emulators lack."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    command = [sys.executable, "-c", PREDICT]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == 2 * "torch.float32 torch.float32 True\n"


# The bar


@pytest.mark.parametrize("progress", [True, False])
def test_nothing_is_printed_without_a_terminal(progress, capsys):
    posterior = table_posterior(random(5, 7, 4), progress=progress)
    posterior.predict_loader([torch.arange(7)])
    assert capsys.readouterr() == ("", "")


class WithoutDouble(torch.Tensor):
    """As a tensor on MPS, which has no double precision."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.double:
            raise TypeError("the device has no double precision")
        found: Any = super().__torch_function__(func, types, args, kwargs or {})
        return found.as_subclass(torch.Tensor) if func is torch.Tensor.cpu else found


def test_distributions_are_computed_on_the_cpu_in_double_precision():
    """A device need not have it."""
    loc = scale = torch.ones(2, 3).as_subclass(WithoutDouble)
    mixture = Mixture("norm", np.array([0.5, 0.5]), {"loc": loc, "scale": scale})
    np.testing.assert_allclose(mixture.quantiles(np.array([0.5])), np.ones((1, 3)))
    assert mixture.sample(4, seed=0).shape == (4, 3)
    below = Gaussian().cumulative((loc, scale), torch.ones(3).as_subclass(WithoutDouble))
    np.testing.assert_allclose(below, 0.5)

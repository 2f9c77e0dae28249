"""N is compared with what can be counted, and a right N is never warned of."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from csgmcmc import SGHMC, Chain, Constant, stack
from csgmcmc.errors import SamplingWarning
from csgmcmc.loop.num_data import TARGET_NAMES, default_num_data, loss_facts

ROWS = 60
INPUTS = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(ROWS) % 3
LABELS = (torch.arange(ROWS * 5).reshape(ROWS, 5) % 3 == 0).float()
NUMBERS = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))


def told(
    targets, loss, num_data, *, outputs: Any = 3, model: Any = None, watch=True, **loader_options
) -> list[str]:
    """What a chain of one step says of its N."""
    model = nn.Linear(4, outputs) if model is None else model
    loader = DataLoader(TensorDataset(INPUTS, targets), **{"batch_size": 12, **loader_options})
    sampler = SGHMC(model.parameters(), lr=1e-3, num_data=num_data, seed=0)
    chain = Chain(model, loss, loader, sampler, Constant(1), progress=False, watch=watch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chain.run()
    assert all(one.category is SamplingWarning for one in caught)
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_too_small_an_n_is_named_with_the_right_one():
    (words,) = told(CLASSES, cross_entropy, 12)
    assert "num_data=12, but the data set has 60 examples of one target each" in words
    assert "the posterior is 5 times too hot; make the sampler with num_data=60" in words
    assert "N x loss must equal the negative log-likelihood of all data" in words
    assert told(CLASSES, cross_entropy, 12, watch=False) == []


def test_too_large_an_n_is_named():
    (words,) = told(CLASSES, cross_entropy, 600)
    assert "10 times too cold; make the sampler with num_data=60" in words


def test_a_mean_over_labels_needs_their_number():
    (words,) = told(LABELS, binary_cross_entropy_with_logits, ROWS, outputs=5)
    assert "60 examples of 5 targets each, and the loss is a mean over 5 of them" in words
    assert "5 times too hot; make the sampler with num_data=300" in words


def summed(outputs, targets):
    """A mean over rows of the sum over labels."""
    whole = binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return whole.sum(1).mean()


class Pixels(nn.Module):
    """Logits (rows, classes, height, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3 * 2 * 4)

    def forward(self, inputs):
        return self.linear(inputs).reshape(-1, 3, 2, 4)


def gaussian(outputs, targets):
    return mse_loss(outputs, targets) / (2 * 0.1)


DATA = TensorDataset(INPUTS, CLASSES)
IMAGES = torch.arange(ROWS * 8).reshape(ROWS, 2, 4) % 3
SOME = torch.where(torch.arange(ROWS) % 4 > 0, CLASSES, -100)
WEIGHTS = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0])

RIGHT = [
    (CLASSES, cross_entropy, 60, {}),
    (LABELS, binary_cross_entropy_with_logits, 300, {"outputs": 5}),
    (LABELS, nn.BCEWithLogitsLoss(), 300, {"outputs": 5}),
    (LABELS, summed, 60, {"outputs": 5}),
    (LABELS, cross_entropy, 60, {"outputs": 5}),  # as probabilities of classes
    (LABELS, nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), 300, {"outputs": 5}),
    (IMAGES, cross_entropy, 480, {"model": Pixels()}),
    (IMAGES, cross_entropy, 450, {"model": Pixels()}),  # 30 pixels are ignored later
    (NUMBERS, gaussian, 120, {"outputs": 2}),
    (NUMBERS, mse_loss, 120 / (2 * 0.01), {"outputs": 2}),
    (NUMBERS, mse_loss, 120 / (2 * 9.0), {"outputs": 2}),
    (NUMBERS[:, :1], mse_loss, 60 / (2 * 0.01), {"outputs": 1}),
    (SOME, cross_entropy, 45, {}),  # the ignored ones do not count
    (CLASSES, cross_entropy, 50, {"batch_size": 25, "drop_last": True}),
    (CLASSES, cross_entropy, 20, {"sampler": SubsetRandomSampler(range(20))}),
    (CLASSES, cross_entropy, 60, {"sampler": RandomSampler(DATA, num_samples=30)}),
    (CLASSES, cross_entropy, 60, {"sampler": DistributedSampler(DATA, 3, 0)}),
]


@pytest.mark.parametrize(("targets", "loss", "num_data", "options"), RIGHT)
def test_a_right_n_is_not_warned_of(targets, loss, num_data, options):
    assert told(targets, loss, num_data, **options) == []


WRONG = [
    (LABELS, summed, 300, {"outputs": 5}, "num_data=60"),
    (IMAGES, cross_entropy, 60, {"model": Pixels()}, "num_data=480"),
    (NUMBERS, gaussian, 60, {"outputs": 2}, "num_data=120"),
    (CLASSES, cross_entropy, 60, {"sampler": SubsetRandomSampler(range(20))}, "num_data=20"),
    (CLASSES, nn.CrossEntropyLoss(label_smoothing=0.1), 12, {}, "num_data=60"),
]


@pytest.mark.parametrize(("targets", "loss", "num_data", "options", "right"), WRONG)
def test_a_wrong_n_is_corrected(targets, loss, num_data, options, right):
    (words,) = told(targets, loss, num_data, **options)
    assert f"make the sampler with {right};" in words


def test_a_stack_is_warned_too():
    model = stack(lambda: nn.Linear(4, 5), chains=2)
    (words,) = told(LABELS, binary_cross_entropy_with_logits, ROWS, model=model)
    assert "num_data=300" in words
    again = stack(lambda: nn.Linear(4, 5), chains=2)
    assert told(LABELS, binary_cross_entropy_with_logits, 300, model=again) == []


def test_asking_the_loss_leaves_no_trace():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    batch = (INPUTS, LABELS)
    assert loss_facts(binary_cross_entropy_with_logits, model, batch).terms == 5
    assert loss_facts(mse_loss, model, (INPUTS, LABELS)).terms == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Rows(Dataset):
    """Examples that are dictionaries."""

    def __init__(self, **columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


def told_of_rows(num_data, name, targets, **columns) -> list[str]:
    """What a chain says of its N if its batches are dictionaries."""
    model = nn.Linear(4, 3)
    loader = DataLoader(Rows(x=INPUTS, **{name: targets}, **columns), batch_size=12)
    sampler = SGHMC(model.parameters(), lr=1e-3, num_data=num_data, seed=0)

    def loss(model, batch):
        return cross_entropy(model(batch["x"]), CLASSES[:12])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Chain(model, loss, loader, sampler, Constant(1), progress=False).run()
    return [str(one.message) for one in caught]


TOKENS = torch.arange(ROWS * 8).reshape(ROWS, 8) % 7


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_batches_that_are_dictionaries_bound_n(name):
    assert told_of_rows(60, name, CLASSES) == []
    (hot,) = told_of_rows(12, name, CLASSES)
    assert "60 examples of one target each" in hot
    assert "5 times too hot; make the sampler with num_data=60" in hot
    (cold,) = told_of_rows(6000, name, CLASSES)
    assert "100 times too cold; make the sampler with num_data=60" in cold


def test_dictionaries_may_have_several_targets_or_a_loss_of_their_inputs():
    for right in (60, 300):
        assert told_of_rows(right, "labels", LABELS) == []
    assert told_of_rows(480, "labels", TOKENS) == []
    assert told_of_rows(240, "labels", CLASSES) == []  # an autoencoder of the 4 numbers in x
    assert told_of_rows(6000, "labels", NUMBERS) == []  # a squared error
    assert told_of_rows(6000, "unknown", CLASSES) == []


def test_what_cannot_be_counted_is_left_alone():
    model = nn.Linear(4, 3)
    sampler = SGHMC(model.parameters(), lr=1e-3, num_data=7, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Chain(model, cross_entropy, [(INPUTS, CLASSES)], sampler, Constant(1), progress=False).run()


def test_no_default_where_an_example_has_several_targets():
    def loader_of(targets):
        return DataLoader(TensorDataset(INPUTS, targets), batch_size=12, shuffle=True)

    assert default_num_data(loader_of(CLASSES)) == 60
    assert default_num_data(loader_of(NUMBERS[:, :1])) == 60
    with pytest.raises(ValueError, match=r"5 targets; give num_data=300 .* num_data=60"):
        default_num_data(loader_of(LABELS))


def test_no_default_where_dictionaries_have_several_targets():
    assert default_num_data(DataLoader(Rows(x=INPUTS, label=CLASSES))) == 60
    with pytest.raises(ValueError, match="8 targets; give num_data=480"):
        default_num_data(DataLoader(Rows(input_ids=TOKENS, labels=TOKENS)))
    texts = [{"x": [1.0] * 4, "labels": [1, 2, 3]}] * 5  # of a tokenizer
    with pytest.raises(ValueError, match="num_data=15"):
        default_num_data(DataLoader(texts))  # pyright: ignore[reportArgumentType]


# Language models: classes last, in pairs and in dictionaries


class Words(nn.Module):
    """Logits (rows, tokens, vocabulary)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(7, 5), nn.Linear(5, 7)

    def forward(self, tokens):
        return self.linear(self.embed(tokens))


LOSSES = {
    "flatten": lambda x, y: cross_entropy(x.flatten(0, 1), y.flatten()),
    "view": lambda x, y: cross_entropy(x.view(-1, 7), y.view(-1)),
    "reshape": lambda x, y: cross_entropy(x.reshape(-1, x.shape[-1]), y.reshape(-1)),
    "transpose": lambda x, y: cross_entropy(x.transpose(1, 2), y),
    "shifted": lambda x, y: cross_entropy(x[:, :-1].flatten(0, 1), y[:, 1:].flatten()),
}


def told_of_tokens(loss, num_data, *, of_rows=False) -> list[str]:
    torch.manual_seed(0)
    model, data = Words(), TensorDataset(TOKENS, TOKENS)
    chosen = loss
    if of_rows:
        data = Rows(tokens=TOKENS, labels=TOKENS)

        def chosen(model, batch):
            return loss(model(batch["tokens"]), batch["labels"])

    sampler = SGHMC(model.parameters(), lr=1e-3, num_data=num_data, seed=0)
    loader = DataLoader(data, batch_size=12, shuffle=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Chain(model, chosen, loader, sampler, Constant(1), progress=False).run()
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_over_tokens_needs_their_number(name, of_rows):
    (words,) = told_of_tokens(LOSSES[name], ROWS, of_rows=of_rows)
    assert "num_data=480" in words
    assert told_of_tokens(LOSSES[name], 480, of_rows=of_rows) == []


@pytest.mark.parametrize("of_rows", [False, True])
def test_a_sum_over_tokens_needs_the_number_of_sequences(of_rows):
    def summed_tokens(outputs, targets):
        whole = cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
        return whole.sum(1).mean()

    assert told_of_tokens(summed_tokens, ROWS, of_rows=of_rows) == []
    (words,) = told_of_tokens(summed_tokens, 480, of_rows=of_rows)
    assert "num_data=60" in words


def test_a_sum_over_the_batch_is_called_a_sum():
    (words,) = told(CLASSES, lambda x, y: cross_entropy(x, y, reduction="sum"), ROWS)
    assert "sum over the batch" in words
    assert "num_data" not in words


def test_a_softmax_before_the_loss_is_noticed():
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    (words,) = told(CLASSES, cross_entropy, ROWS, model=model)
    assert "softmax" in words
    right = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    logs = told(CLASSES, lambda x, y: nn.functional.nll_loss(x.log(), y), ROWS, model=right)
    assert logs == []

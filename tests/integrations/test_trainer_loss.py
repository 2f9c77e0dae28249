"""The loss of a Trainer must be the mean that N belongs to."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

import csgmcmc
from csgmcmc import MemoryDraws
from csgmcmc.errors import SamplingWarning
from csgmcmc.integrations.transformers import logits, num_targets, trainer_parts
from csgmcmc.posterior import Gaussian
from tests.integrations.test_counting import encoder_decoder, masked_lm
from tests.integrations.tiny import assert_same_draws, bert, gpt2, llama, reviews, sentences
from tests.integrations.trainer_support import OPTIONS, SCHEDULE, chained, manual, trained


def unknown():
    model = bert()
    model.loss_type = None  # as that of a class that Transformers does not know
    return model


@pytest.mark.parametrize("make", [bert, unknown, masked_lm, encoder_decoder])
def test_means_of_batches_are_averaged(tmp_path, make):
    """Losses of these models do not use the number of targets that a Trainer counts."""
    model = make()
    data = reviews() if make in (bert, unknown) else sentences(masked=False)
    draws = trained(tmp_path, model, data, gradient_accumulation_steps=2)
    assert_same_draws(draws, chained(make(), data, batch_size=4))
    assert model.accepts_loss_kwargs is False
    # A loss that is divided by Trainer's count needs no attribute.
    trainer_parts(other := llama(), sentences(), SCHEDULE, MemoryDraws(), **OPTIONS)
    assert not hasattr(other, "accepts_loss_kwargs")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_shifted_labels_without_loss_type(tmp_path, accumulate):
    model, data, draws = gpt2(), sentences(), MemoryDraws()
    parts = manual(model, data, draws)
    trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=accumulate)
    assert_same_draws(draws, chained(gpt2(), data, batch_size=2 * accumulate))


def test_number_of_sequences_as_num_data_raises(tmp_path):
    model, data = llama(), sentences()
    parts = manual(model, data, MemoryDraws(), num_data=len(data))
    with pytest.raises(ValueError, match="num_data=12"):
        trained(tmp_path, model, data, parts=parts)


def test_one_target_per_sequence(tmp_path):
    model, data = llama(), sentences()
    for one in data:
        one["labels"] = torch.where(torch.arange(8) == 7, one["input_ids"], -100)
    assert num_targets(data, model) == len(data)
    parts = manual(model, data, draws := MemoryDraws(), num_data=len(data))
    trained(tmp_path, model, data, parts=parts, eval_on_start=True, eval_dataset=data)
    assert_same_draws(draws, chained(llama(), data))


def test_batch_without_targets_is_not_checked(tmp_path):
    model, data = gpt2(), sentences()
    for one in data[:4]:
        one["labels"] = torch.full_like(one["labels"], -100)
    draws = trained(tmp_path, model, data, gradient_accumulation_steps=4)
    assert_same_draws(draws, chained(gpt2(), data, batch_size=8))


def test_check_of_first_batch_does_not_change_draws(tmp_path):
    """Dropout draws the same numbers with and without it."""

    class NoLook(TrainerCallback):
        def on_train_begin(self, args, state, control, **parts):
            parts["model"]._forward_pre_hooks.clear()

    draws = trained(tmp_path, gpt2(dropout=0.1), sentences())
    unseen = trained(tmp_path, gpt2(dropout=0.1), sentences(), callbacks=[NoLook()])
    assert_same_draws(draws, unseen, exactly=True)


def rated(labels) -> Any:
    """Sequences with such labels."""
    return [
        {**one, "labels": label} for one, label in zip(reviews(len(labels)), labels, strict=True)
    ]


def test_wrong_num_data_warns(tmp_path):
    parts = manual(model := bert(), data := reviews(), MemoryDraws(), num_data=3)
    with pytest.warns(SamplingWarning, match="num_data=3"):
        trained(tmp_path, model, data, parts=parts)
    parts = manual(model := llama(), data := sentences(masked=False), MemoryDraws(), num_data=3)
    with pytest.warns(SamplingWarning, match="num_data=3"):
        trained(tmp_path, model, data, parts=parts)
    parts = manual(model, data, MemoryDraws(), num_data=10_000)
    with pytest.warns(SamplingWarning, match="num_data=10000"):
        trained(tmp_path, model, data, parts=parts)
    several = rated((torch.arange(36).reshape(12, 3) % 2).float())
    parts = manual(model := bert(), several, MemoryDraws(), num_data=12)
    with pytest.warns(SamplingWarning, match="num_data=36"):
        trained(tmp_path, model, several, parts=parts)
    trained(tmp_path, bert(), several)


NUMBERS = torch.randn(12, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
@pytest.mark.parametrize("numbers", [NUMBERS, (3 * NUMBERS).round().long()])
def test_regression_requires_num_data(tmp_path, numbers, shape):
    data = rated(numbers.reshape(shape))
    with pytest.raises(ValueError, match="num_data"):
        trainer_parts(bert(labels=1), data, SCHEDULE, MemoryDraws(), **OPTIONS)
    model, draws = bert(labels=1), MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, num_data=12 / (2 * 0.1), **OPTIONS)
    trained(tmp_path, model, data, parts=parts)
    assert not model._forward_pre_hooks  # the first batch was looked at
    posterior = csgmcmc.Posterior(
        model,
        draws,
        likelihood=Gaussian(0.1),
        forward=logits,
        split=lambda batch: (batch, batch["labels"]),
        progress=False,
    )
    held_out = DataLoader(data, batch_size=4)
    assert posterior.log_scores(held_out).shape == (len(draws), 12)
    assert posterior.check(held_out).numbers["nll"] > 0


def test_language_model_with_num_labels_1_is_not_regression():
    model = llama()
    model.config.num_labels = 1
    parts = trainer_parts(model, sentences(), SCHEDULE, MemoryDraws(), **OPTIONS)
    assert parts["optimizers"][0].param_groups[0]["num_data"] == num_targets(sentences(), llama())

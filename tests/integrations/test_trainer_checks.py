"""A loss that is not the mean which N belongs to is refused at the first batch."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

import csgmcmc
from csgmcmc import MemoryDraws
from csgmcmc.errors import SamplingWarning
from csgmcmc.integrations.transformers import Pairs, logits, num_targets, trainer_parts
from csgmcmc.posterior import Gaussian
from tests.integrations.tiny import assert_same_draws, bert, gpt2, llama, reviews, sentences
from tests.integrations.trainer_support import OPTIONS, SCHEDULE, chained, manual, trained


def test_a_mean_that_would_be_summed_is_refused(tmp_path):
    model, data = bert(), reviews()
    parts = manual(model, data, MemoryDraws())
    with pytest.raises(ValueError, match=r"gradients are 2 times too large.*accepts_loss_kwargs"):
        trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=2)


def test_trainer_parts_tell_the_trainer_that_a_loss_is_a_mean(tmp_path):
    model, data = bert(), reviews()
    draws = trained(tmp_path, model, data, gradient_accumulation_steps=2)
    assert_same_draws(draws, chained(bert(), data, batch_size=4))
    assert model.accepts_loss_kwargs is False
    # Of a loss that is divided by what Trainer counts, nothing need be told.
    trainer_parts(other := llama(), sentences(), SCHEDULE, MemoryDraws(), **OPTIONS)
    assert not hasattr(other, "accepts_loss_kwargs")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_that_is_divided_by_too_many_tokens_is_refused(tmp_path, accumulate):
    model, data = gpt2(), sentences()
    parts = manual(model, data, MemoryDraws())
    with pytest.raises(ValueError, match=r"more tokens than are in it.*loss_type = 'ForCausalLM'"):
        trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=accumulate)
    model, draws = gpt2(), MemoryDraws()
    model.loss_type = "ForCausalLM"
    parts = manual(model, data, draws)
    trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=accumulate)
    assert_same_draws(draws, chained(gpt2(), data, batch_size=2 * accumulate))


def test_sequences_in_the_place_of_tokens_are_refused(tmp_path):
    model, data = llama(), sentences()
    parts = manual(model, data, MemoryDraws(), num_data=len(data))
    with pytest.raises(ValueError, match=r"num_data=12 is the number of sequences"):
        trained(tmp_path, model, data, parts=parts)


def test_one_target_in_each_sequence_is_a_target_all_the_same(tmp_path):
    model, data = llama(), sentences()
    for one in data:
        one["labels"] = torch.where(torch.arange(8) == 7, one["input_ids"], -100)
    assert num_targets(data, model) == len(data)
    parts = manual(model, data, draws := MemoryDraws(), num_data=len(data))
    trained(tmp_path, model, data, parts=parts, eval_on_start=True, eval_dataset=data)
    assert_same_draws(draws, chained(llama(), data))


def test_a_batch_without_targets_is_not_the_one_to_look_at(tmp_path):
    model, data = gpt2(), sentences()
    for one in data[:4]:
        one["labels"] = torch.full_like(one["labels"], -100)
    draws = trained(tmp_path, model, data, gradient_accumulation_steps=4)
    assert_same_draws(draws, chained(gpt2(), data, batch_size=8))
    parts = manual(model := gpt2(), data, MemoryDraws())
    with pytest.raises(ValueError, match=r"more tokens than are in it"):
        trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=4)


def test_looking_at_the_first_batch_changes_nothing(tmp_path):
    """The run goes on as if nothing had been looked at: dropout draws the same numbers."""

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


def test_an_n_that_does_not_fit_the_labels_is_warned_of(tmp_path):
    parts = manual(model := bert(), data := reviews(), MemoryDraws(), num_data=3)
    with pytest.warns(SamplingWarning, match=r"num_data=3, but .* 12 examples of one target each"):
        trained(tmp_path, model, data, parts=parts)
    parts = manual(model := llama(), data := sentences(masked=False), MemoryDraws(), num_data=3)
    with pytest.warns(SamplingWarning, match="num_data=3, but the data set has 12 examples: N"):
        trained(tmp_path, model, data, parts=parts)
    parts = manual(model, data, MemoryDraws(), num_data=10_000)
    with pytest.warns(SamplingWarning, match=r"num_data=10000, .* 8 targets each.* too cold"):
        trained(tmp_path, model, data, parts=parts)
    several = rated((torch.arange(36).reshape(12, 3) % 2).float())
    parts = manual(model := bert(), several, MemoryDraws(), num_data=12)
    with pytest.warns(SamplingWarning, match=r"mean over the 3 targets of each.* num_data=36"):
        trained(tmp_path, model, several, parts=parts)
    trained(tmp_path, bert(), several)


NUMBERS = torch.randn(12, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
@pytest.mark.parametrize("numbers", [NUMBERS, (3 * NUMBERS).round().long()])
def test_regression_needs_the_variance_of_its_noise(tmp_path, numbers, shape):
    data = rated(numbers.reshape(shape))
    with pytest.raises(ValueError, match=r"is a mean squared error.*: give noise_variance="):
        trainer_parts(bert(labels=1), data, SCHEDULE, MemoryDraws(), **OPTIONS)
    model, draws = bert(labels=1), MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, noise_variance=0.1, **OPTIONS)
    assert parts["optimizers"][0].param_groups[0]["num_data"] == 12 / (2 * 0.1)
    trained(tmp_path, model, data, parts=parts)
    assert not model._forward_pre_hooks  # the first batch was looked at
    posterior = csgmcmc.Posterior(
        model, draws, forward=logits, likelihood=Gaussian(0.1), progress=False
    )
    held_out = Pairs(DataLoader(data, batch_size=4))
    assert posterior.log_scores(held_out).shape == (len(draws), 12)
    assert posterior.check(held_out).numbers["nll"] > 0


def test_regression_by_hand_is_told_what_its_n_means(tmp_path):
    data = rated(torch.randn(12, generator=torch.Generator().manual_seed(0)))
    parts = manual(model := bert(labels=1), data, MemoryDraws())
    with pytest.warns(SamplingWarning, match=r"num_data=12 is the number of targets, .* 0\.5"):
        trained(tmp_path, model, data, parts=parts)
    parts = manual(model := bert(labels=1), data, MemoryDraws(), num_data=7.0)
    trained(tmp_path, model, data, parts=parts)


def test_ratings_of_minus_100_are_numbers_and_count(tmp_path):
    data = rated(torch.tensor([-100] * 6 + [1] * 6))
    model = bert(labels=1)
    parts = trainer_parts(model, data, SCHEDULE, MemoryDraws(), noise_variance=0.5, **OPTIONS)
    assert parts["optimizers"][0].param_groups[0]["num_data"] == 12


def test_a_language_model_with_one_label_in_its_config_is_no_regression():
    model = llama()
    model.config.num_labels = 1
    parts = trainer_parts(model, sentences(), SCHEDULE, MemoryDraws(), **OPTIONS)
    assert parts["optimizers"][0].param_groups[0]["num_data"] == num_targets(sentences(), llama())


def test_a_variance_of_noise_is_for_regression_alone():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"noise_variance": 0.1}, "noise_variance=0.1 is for regression"),
        ({"noise_variance": 0.1, "num_data": 3}, "not both"),
        ({"noise_variance": 0.0}, "noise_variance must be above 0"),
    ]
    for wrong, words in cases:
        with pytest.raises(ValueError, match=words):
            trainer_parts(bert(), reviews(), SCHEDULE, MemoryDraws(), **OPTIONS, **wrong)

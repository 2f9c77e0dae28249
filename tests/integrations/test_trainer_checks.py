"""A loss that is not the mean which N belongs to is refused at the first batch."""

import pytest
import torch
from transformers import TrainerCallback

from csgmcmc import MemoryDraws
from csgmcmc.integrations.transformers import num_targets, trainer_parts
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

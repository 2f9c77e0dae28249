"""N times the mean loss is the total loss of the data set."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForSeq2Seq,
    T5Config,
    T5ForConditionalGeneration,
)

from csgmcmc.integrations.counting import num_targets
from tests.integrations.tiny import VOCABULARY, bert, gpt2, llama, reviews, sentences


def masked_lm():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    return BertForMaskedLM(config)


def encoder_decoder():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,  # pyright: ignore[reportCallIssue]
        pad_token_id=0,
    )
    return T5ForConditionalGeneration(config)


@pytest.mark.parametrize("make", [gpt2, llama, masked_lm, encoder_decoder])
def test_n_times_mean_loss_is_total_loss(make):
    model, data = make().eval(), sentences()
    whole = next(iter(DataLoader(data, batch_size=len(data))))
    count, total = num_targets(data, model), 0.0
    for batch in DataLoader(data, batch_size=1):  # each by itself: the mean of its own targets
        total += model(**batch).loss.item() * num_targets([batch], model)
    assert model(**whole).loss.item() * count == pytest.approx(total, rel=1e-5)
    assert num_targets(DataLoader(data, batch_size=5), model) == count
    labels = torch.stack([one["labels"] for one in data])
    causal = make in (gpt2, llama)
    assert count == int(((labels[:, 1:] if causal else labels) != -100).sum())
    assert num_targets(data, causal=causal) == count


def test_counts_of_classes_and_labels():
    assert num_targets(reviews(12)) == 12
    assert num_targets(DataLoader(reviews(12), batch_size=5), bert()) == 12
    multi = [{"input_ids": torch.zeros(4), "labels": torch.tensor([0.0, 1.0, 1.0])}] * 5
    assert num_targets(multi) == 15  # binary_cross_entropy is a mean over examples and labels
    assert num_targets([{"labels": [3, -100, 4]}, {"labels": [-100, 5]}], causal=True) == 2


def test_labels_made_by_a_collator():
    def collate(examples):
        ids = torch.stack([one["input_ids"] for one in examples])
        return {"input_ids": ids, "labels": ids}

    loader = DataLoader(sentences(6, 8), batch_size=4, collate_fn=collate)
    assert num_targets(loader, gpt2()) == 6 * 7
    assert DataCollatorForSeq2Seq.label_pad_token_id == -100  # as everything here assumes


def test_iterable_dataset():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(sentences(6, 8, masked=False))

    assert num_targets(Stream(), gpt2()) == 6 * 7


def test_columns_that_the_model_does_not_take_are_ignored():
    data = [{**one, "text": "a b", "label_ids": [1, 2, 3]} for one in sentences(6, 8, masked=False)]
    assert num_targets(data, gpt2()) == 6 * 7
    assert num_targets(data, masked_lm()) == 6 * 8


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([{"input_ids": [1]}], {}, "data must give"),
        ([(1, 2)], {}, "data must give"),
        ([{"labels": [1, 2]}], {}, "causal is not known"),
        ([{"labels": [1, 2]}], {"model": torch.nn.Linear(1, 1)}, "causal is not known"),
    ],
)
def test_invalid_data_raise(data, options, message):
    with pytest.raises(ValueError, match=message):
        num_targets(data, **options)

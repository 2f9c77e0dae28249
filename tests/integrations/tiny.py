"""Transformers made from configs, with data, as the tests of Hugging Face's packages need them."""

import os
from collections.abc import Sequence
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may look for a file elsewhere

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from csgmcmc import Draw

VOCABULARY = 11


def gpt2(dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    return LlamaForCausalLM(config)


def bert(labels: int = 3) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=labels,  # pyright: ignore[reportCallIssue]
    )
    return BertForSequenceClassification(config)


def sentences(count: int = 12, length: int = 8, masked: bool = True) -> Any:
    """Sequences of tokens; of every third, some are not in the loss."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (count, length), generator=generator)
    labels = ids.clone()
    if masked:
        labels[::3, 5:] = -100
    return [{"input_ids": one, "labels": its} for one, its in zip(ids, labels, strict=True)]


def reviews(count: int = 12, length: int = 8) -> Any:
    """Sequences with a class each."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY, (count, length), generator=generator)
    return [{"input_ids": one, "labels": one[0] % 3} for one in ids]


def assert_same_draws(one: Sequence[Draw], other: Sequence[Draw], exactly: bool = False) -> None:
    """The same steps, and the same weights: to rounding, or to the bit."""
    assert [(draw.chain_id, draw.step, draw.cycle) for draw in one] == [
        (draw.chain_id, draw.step, draw.cycle) for draw in other
    ]
    assert len(one)
    rtol, atol = (0.0, 0.0) if exactly else (1e-4, 2e-6)
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours.tensors(), theirs.tensors(), rtol=rtol, atol=atol)


def moved(model: nn.Module, draw: Draw) -> float:
    """How far the weights of a draw are from those of a model."""
    tensors = draw.tensors()
    return max(
        float((tensors[name] - value).abs().max()) for name, value in model.state_dict().items()
    )

"""The posterior over a LoRA adapter of a small language model, in about a minute on one core.

A small Llama, made from a config, learns a language. Then an adapter learns another one from twenty
sentences, with the base model fixed: once trained and once sampled, with the same cycles, each with
a weak and with a strong weight decay. The languages are Markov chains, so the best possible result
is known.

The quality of a trained adapter depends on its weight decay: with the weak one it memorises the
twenty sentences, with the strong one it is the best of all. The average over sampled adapters
hardly depends on it.

    pip install 'csgmcmc[transformers,peft]'
    python examples/adapters.py
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

import csgmcmc
from csgmcmc.draws import keep_trainable
from csgmcmc.integrations.transformers import (
    model_loss,
    next_token_logits,
    next_token_targets,
    num_targets,
)

WORDS, LENGTH = 12, 16
WEAK, STRONG = 0.03, 0.1


def language(seed: int) -> Tensor:
    """Transition probabilities between words."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(WORDS, WORDS, generator=generator)).softmax(-1)


def sentences(chances: Tensor, count: int, seed: int) -> Any:
    """Sentences of a language, as a data set for transformers."""
    generator = torch.Generator().manual_seed(seed)
    words = [torch.randint(WORDS, (count, 1), generator=generator)]
    for _ in range(LENGTH - 1):
        following = chances[words[-1].flatten()]
        words.append(torch.multinomial(following, 1, generator=generator))
    return [{"input_ids": ids, "labels": ids} for ids in torch.cat(words, dim=1)]


def best_nll(chances: Tensor, data: Any) -> float:
    """NLL under the language itself: no model can beat it except by chance."""
    ids = torch.stack([one["input_ids"] for one in data])
    return -chances[ids[:, :-1], ids[:, 1:]].log().mean().item()


def pretrained(epochs: int) -> LlamaForCausalLM:
    """A small Llama trained on the first language."""
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(sentences(language(0), 2000, seed=0), batch_size=50, shuffle=True)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            model_loss(model, batch).backward()
            optimizer.step()
    return model


def adapters(
    base: nn.Module, data: Any, temperature: float, decay: float, steps: int, folder: Path
) -> csgmcmc.Posterior:
    """Draws of an adapter; at temperature 0 these are snapshots of its training."""
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    torch.manual_seed(1)  # the same initial adapter for all runs
    model = get_peft_model(copy.deepcopy(base), config)
    sampler = csgmcmc.SGHMC(
        [param for param in model.parameters() if param.requires_grad],
        lr=0.05,
        momentum=0.9,
        weight_decay=decay,  # a prior of standard deviation (decay * 300)^-0.5
        num_data=num_targets(data, model),  # tokens, not sentences
        temperature=temperature,
        seed=0,
    )
    schedule = csgmcmc.Cyclical(steps, cycles=4, exploration=0.6, draws_per_cycle=steps // 50)
    store = csgmcmc.DrawStore(folder, only=keep_trainable(model))
    loader = DataLoader(data, batch_size=10, shuffle=True)
    csgmcmc.Chain(model, model_loss, loader, sampler, schedule, store).run()
    return csgmcmc.Posterior(
        model, store, forward=next_token_logits, split=next_token_targets, progress=False
    )


def nll(posterior: csgmcmc.Posterior, data: Any) -> float:
    """Mean negative log-likelihood per token under the posterior predictive."""
    found: Any = posterior.predict_loader(DataLoader(data, batch_size=100))
    return nn.functional.nll_loss(found.log_probs, found.targets).item()


def main(steps: int = 800, epochs: int = 5) -> dict[tuple[str, float], float]:
    """Print a table; returns its numbers by row and weight decay."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    base, scores, size = pretrained(epochs), {}, 0.0
    train, test = sentences(language(1), 20, seed=1), sentences(language(1), 500, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        for decay in (WEAK, STRONG):
            trained = adapters(base, train, 0.0, decay, steps, Path(folder) / f"trained-{decay}")
            sampled = adapters(base, train, 1.0, decay, steps, Path(folder) / f"sampled-{decay}")
            last = trained.with_draws(trained.draws[-1:])
            scores["one adapter, trained", decay] = nll(last, test)
            scores["many, from one training", decay] = nll(trained, test)
            scores["many, sampled", decay] = nll(sampled, test)
            store = csgmcmc.DrawStore(Path(folder) / f"sampled-{decay}")
            size = store.size_on_disk() / len(store)
    print(f"N is {num_targets(train, causal=True)} tokens, not {len(train)} sentences.")
    print(f"Held-out NLL per token      decay {WEAK}   decay {STRONG}")
    for row in dict.fromkeys(row for row, _ in scores):
        print(f"  {row:24} {scores[row, WEAK]:11.3f} {scores[row, STRONG]:11.3f}")
    print(f"  {'the language itself':24} {best_nll(language(1), test):11.3f}")
    print(f"A draw takes {size / 1000:.0f} kB on disk.")
    return scores


if __name__ == "__main__":
    main()

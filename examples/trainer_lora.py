"""The Hugging Face `Trainer`, LoRA: draws of an adapter, each a few kilobytes on disk.

The base model stays as it is and is stored once. Both are made here: nothing is downloaded.
`examples/adapters.py` compares trained and sampled adapters at length.

    pip install '.[transformers,peft]'
    python examples/trainer_lora.py [FOLDER]         # about 10 seconds
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

import csgmcmc
from csgmcmc.draws import keep_trainable
from csgmcmc.integrations.transformers import (
    next_token_logits,
    next_token_targets,
    trainer_parts,
)

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/trainer_lora"
set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
config = LlamaConfig(vocab_size=12, num_attention_heads=2, max_position_embeddings=12, **sizes)
base, start = LlamaForCausalLM(config), torch.randint(12, (60, 1))
optimizer = torch.optim.AdamW(base.parameters(), lr=5e-3)
counting = (start + torch.arange(12)) % 12
for _ in range(100):  # the base model learns to count
    optimizer.zero_grad()
    base(input_ids=counting, labels=counting).loss.backward()
    optimizer.step()

steps = torch.randint(1, 3, (60, 11))  # the adapter learns to count up by one or by two
tokens = torch.cat([start, start + steps.cumsum(1)], dim=1) % 12
data = [{"input_ids": ids, "labels": ids} for ids in tokens]
adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
model = get_peft_model(base, adapter)
schedule = csgmcmc.Cyclical(steps=300, cycles=2, exploration=0.6, draws_per_cycle=5)
store = csgmcmc.DrawStore(f"{folder}/draws", only=keep_trainable(model))
parts = trainer_parts(model, data[:40], schedule, store, lr=0.05, weight_decay=0.03, seed=0)
size = {"max_steps": schedule.steps, "per_device_train_batch_size": 20}
quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
args = TrainingArguments(f"{folder}/trainer", max_grad_norm=0, use_cpu=True, **size, **quiet)
Trainer(model, args, train_dataset=data[:40], **parts).train()

posterior = csgmcmc.Posterior(model, store, forward=next_token_logits, split=next_token_targets)
held_out = DataLoader(data[40:], batch_size=20)
for name, draws in {"one adapter": posterior.draws[-1:], "ten": posterior.draws}.items():
    p = posterior.with_draws(draws).predict_loader(held_out)
    nll = torch.nn.functional.nll_loss(p.log_probs, p.targets).item()
    print(f"{name}: held-out NLL {nll:.3f} per token; the best possible is log 2 = 0.693")
print(f"a draw takes {store.size_on_disk() / len(store) / 1000:.0f} kB on disk")
model.save_pretrained(f"{folder}/adapter", state_dict=posterior.draws[0].tensors())
print(f"draw 0 for peft: {folder}/adapter")

"""The Hugging Face `Trainer`, regression: predicted numbers with an honest standard deviation.

The loss of a regression head is the mean squared error, so that N is the number of targets divided
by twice the variance of the noise. The model is made here: nothing is downloaded.

    pip install '.[transformers]'
    python examples/trainer_regression.py [FOLDER]       # about 10 seconds
"""

import sys

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import csgmcmc
from csgmcmc.integrations.transformers import logits, trainer_parts
from csgmcmc.posterior import Gaussian

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/trainer_regression"
NOISE = 0.05  # variance
torch.manual_seed(0)
tokens = torch.randint(2, 20, (500, 8))
wanted = 4 * (tokens < 8).float().mean(1) + NOISE**0.5 * torch.randn(500)  # how many are small
wanted = wanted[:, None]  # outputs and labels of one shape, (batch, 1)
data = [{"input_ids": ids, "labels": number} for ids, number in zip(tokens, wanted, strict=True)]
config = BertConfig(
    vocab_size=20,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    hidden_dropout_prob=0.0,  # dropout would be another likelihood
    attention_probs_dropout_prob=0.0,
    num_labels=1,
)
model = BertForSequenceClassification(config)
schedule = csgmcmc.Cyclical(steps=300, cycles=2, exploration=0.6, draws_per_cycle=10)
store = csgmcmc.DrawStore(f"{folder}/draws")
options = {"lr": 0.02, "weight_decay": 1e-4, "num_data": 400 / (2 * NOISE), "seed": 0}
parts = trainer_parts(model, data[:400], schedule, store, **options)
size = {"max_steps": schedule.steps, "per_device_train_batch_size": 50}
quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
args = TrainingArguments(f"{folder}/trainer", max_grad_norm=0, use_cpu=True, **size, **quiet)
Trainer(model, args, train_dataset=data[:400], **parts).train()

posterior = csgmcmc.Posterior(
    model,
    store,
    likelihood=Gaussian(variance=NOISE),
    forward=logits,
    split=lambda batch: (batch, batch["labels"]),
)
held_out = DataLoader(data[400:], batch_size=100)
p = posterior.predict_loader(held_out, members=True)
low, high = p.interval(0.9)
inside = ((low < p.targets) & (p.targets < high)).float().mean()
print(f"RMSE {(p.mean - p.targets).square().mean().sqrt():.3f}, noise alone {NOISE**0.5:.3f}")
print(f"{inside:.0%} of held-out numbers lie in the 90% intervals")

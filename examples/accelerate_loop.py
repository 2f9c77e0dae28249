"""Accelerate: a loop with accumulated gradients that is stopped and resumed.

pip install '.[accelerate]'
python examples/accelerate_loop.py [FOLDER]      # about 5 seconds
accelerate launch examples/accelerate_loop.py    # the same, on what `accelerate config` says
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.integrations.accelerate import AcceleratedRun

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/accelerate_loop"
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
train = TensorDataset(images[:400], labels[:400])
schedule = csgmcmc.Cyclical(steps=400, cycles=4, exploration=0.8, draws_per_cycle=3)


def sample(stop_at: int | None = None, resume: bool = False) -> csgmcmc.Posterior:
    seeded = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
    accelerator = Accelerator(gradient_accumulation_steps=2, dataloader_config=seeded)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 3e-4, "num_data": len(train)}
    sampler = csgmcmc.SGHMC(model.parameters(), temperature=1.0, seed=0, **options)
    loader = DataLoader(train, batch_size=25, shuffle=True)
    model, sampler, loader = accelerator.prepare(model, sampler, loader)
    store = csgmcmc.DrawStore(f"{folder}/draws")
    run = AcceleratedRun(accelerator, model, sampler, schedule, store)
    if resume:
        accelerator.load_state(f"{folder}/saved")
        print(f"resumed at step {run.taken} with {len(store)} draws")
    for x, y in run.batches(loader):
        with accelerator.accumulate(model):
            accelerator.backward(cross_entropy(model(x), y))
            tick = run.step()  # None while gradients are accumulated
        if tick is not None and run.taken == stop_at:
            accelerator.save_state(f"{folder}/saved")
            break
    return csgmcmc.Posterior(accelerator.unwrap_model(model), store)


sample(stop_at=250)
posterior = sample(resume=True)
for count in (1, schedule.total_draws):
    p = posterior.with_draws(posterior.draws[-count:]).predict(images[1000:])
    nll = nn.functional.nll_loss(p.log_probs, labels[1000:])
    print(f"the last {count} of {len(posterior.draws)} draws: NLL {nll:.3f}")

"""Accelerate: a loop with accumulated gradients that is stopped and resumed.

pip install . accelerate
accelerate launch examples/accelerate_loop.py [FOLDER]    # or python, for one process
"""

import sys

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import GradientAccumulationPlugin
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/accelerate_loop"
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
train = TensorDataset(images[:400].float() / 16, labels[:400])
schedule = csgmcmc.Cyclical(steps=400, cycles=4, exploration=0.8, draws_per_cycle=3)


def sample(stop_at: int | None = None, resume: bool = False) -> nn.Module:
    # A step is the mean of two batches, also where an epoch ends after an odd number of them.
    twos = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=twos)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    # With a generator, checkpoints restore the order of the data with several processes, too.
    loader = DataLoader(train, batch_size=25, shuffle=True, generator=torch.Generator())
    model, loader = accelerator.prepare(net, loader)  # not the sampler: the stepper steps it
    sampler = csgmcmc.SGHMC(net.parameters(), lr=0.1, weight_decay=3e-4, num_data=400, seed=0)
    process, processes = accelerator.process_index, accelerator.num_processes
    layout = csgmcmc.ProcessLayout(replica_id=process, replicas=processes)
    store = csgmcmc.DrawStore(f"{folder}/draws")
    stepper = csgmcmc.Stepper(net, sampler, schedule, store, layout=layout)
    accelerator.register_for_checkpointing(stepper)
    if resume:
        accelerator.load_state(f"{folder}/saved")
        accelerator.print(f"resumed at step {stepper.taken} with {len(store)} draws")
    for x, y in stepper.batches(loader):
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
        if accelerator.sync_gradients:
            stepper.step()
            sampler.zero_grad()
            if stepper.taken == stop_at:
                accelerator.save_state(f"{folder}/saved")
                break
    accelerator.wait_for_everyone()
    return net


sample(stop_at=250)
posterior = csgmcmc.Posterior(sample(resume=True), csgmcmc.DrawStore(f"{folder}/draws"))
p = posterior.predict(images[1000:].float() / 16)
nll = nn.functional.nll_loss(p.log_probs, labels[1000:])
PartialState().print(f"{len(posterior.draws)} draws: NLL {nll:.3f}")
PartialState().destroy_process_group()

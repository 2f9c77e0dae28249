"""Two chains in two processes that start apart, in one store.

pip install .
torchrun --nproc-per-node=2 examples/torchrun_chains.py [FOLDER]     # about 15 seconds
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/torchrun_chains"
torch.set_num_threads(1)
layout = csgmcmc.init_distributed()  # as many chains as processes
torch.manual_seed(layout.chain_id)  # chains start apart; replicas of one chain would not
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
train = TensorDataset(images[:400], labels[:400])
loader = DataLoader(train, batch_size=50, sampler=layout.data_sampler(train))
test = DataLoader(TensorDataset(images[1000:], labels[1000:]), batch_size=400)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(layout.device)
options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "num_data": len(train)}
sampler = csgmcmc.SGHMC(
    model.parameters(), temperature=0.1, seed=0, chain_id=layout.chain_id, **options
)
schedule = csgmcmc.Cyclical(steps=600, cycles=2, exploration=0.8, draws_per_cycle=6)
store = csgmcmc.DrawStore(folder)
start = model[0].weight.detach().clone()
chain = csgmcmc.Chain(
    model, cross_entropy, loader, sampler, schedule, store, layout=layout, progress=False
)
chain.run(resume=True)

starts = [torch.empty_like(start) for _ in range(layout.chains)]
if layout.chains > 1:
    distributed.all_gather(starts, start)  # also waits until all chains have ended
if layout.chain_id == 0:
    print(f"{csgmcmc.DrawStore(folder)!r}")
    print(f"the chains start {(starts[0] - starts[-1]).norm():.1f} apart")
    posterior = csgmcmc.Posterior(model, csgmcmc.DrawStore(folder))
    for chain_id in range(layout.chains):
        own = posterior.with_draws(csgmcmc.DrawStore(folder).of_chain(chain_id))
        print(f"chain {chain_id}: NLL {own.check(test).numbers['nll']:.3f}")
    print(f"all chains: NLL {posterior.check(test, show=True).numbers['nll']:.3f}")
csgmcmc.shutdown_distributed()

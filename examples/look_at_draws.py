"""What to do with draws: ArviZ, TensorBoard, and one file that needs torch alone.

pip install '.[arviz,tensorboard]'
python examples/look_at_draws.py [FOLDER]        # about 15 seconds
tensorboard --logdir runs/look_at_draws
"""

import sys
from pathlib import Path

import arviz_base
import arviz_plots
import arviz_stats
import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import csgmcmc
from csgmcmc.diagnostics import cycles_as_chains
from csgmcmc.loop import read_scalars

matplotlib.use("agg")  # to files, without a window
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/look_at_draws")
torch.manual_seed(0)
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
loader = DataLoader(TensorDataset(images[:1000], labels[:1000]), batch_size=50, shuffle=True)
held_out = DataLoader(TensorDataset(images[1400:], labels[1400:]), batch_size=400)
model = nn.Sequential(nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 10))
options = {"num_data": 1000, "temperature": 0.1, "weight_decay": 1e-4, "seed": 0}
sampler = csgmcmc.SGHMC(model.parameters(), lr=0.2, **options)
schedule = csgmcmc.Cyclical(steps=480, cycles=4, exploration=0.5, draws_per_cycle=10)
store, loss = csgmcmc.DrawStore(folder / "store"), nn.functional.cross_entropy
board = SummaryWriter(str(folder / "tensorboard"))
chain = csgmcmc.Chain(
    *(model, loss, loader, sampler, schedule, store),
    callbacks=lambda info: board.add_scalar("loss", info.loss, info.tick.step),
)
posterior = csgmcmc.Posterior(model, chain.run(resume=True))

# ArviZ: functions of the weights, since the weights themselves have no meaning one by one.
p = posterior.predict_loader(held_out, members=True)
unsure = p.entropy.topk(3).indices
probs = p.members[:, unsure, p.targets[unsure]]
values = {"log_score": posterior.log_scores(held_out).mean(1), "probs": probs}
by_cycle = {name: cycles_as_chains(each, posterior.cycles) for name, each in values.items()}
tree = arviz_base.from_dict({"posterior": by_cycle}, dims={"probs": ["image"]})
print(arviz_stats.summary(tree, kind="diagnostics"))
arviz_plots.plot_forest(tree, combined=False).savefig(str(folder / "forest.png"))
# The store has a log too, which needs no package.
scalars = read_scalars(folder / "store" / "logs" / "0000.jsonl")
print(f"{len(scalars['loss'])} steps logged, loss {scalars['loss'][-1]:.3f} at the last")
# Export: model, draws and averaging in one program.
posterior.export(folder / "digits.pt2", images[:8])
program = torch.export.load(folder / "digits.pt2").module()
difference = (program(images[1400:])["probs"] - p.probs).abs().max().item()
print(f"probabilities of the exported program differ by at most {difference:.1e}")

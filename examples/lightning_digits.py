"""Lightning: checkpoints that resume exactly, and what `EarlyStopping` does to a cyclical run.

pip install '.[lightning]'
python examples/lightning_digits.py [FOLDER]     # about 10 seconds
"""

import sys
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import csgmcmc
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/lightning_digits"
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
data = TensorDataset(images.float() / 16, labels)
train, held_out = Subset(data, range(400)), DataLoader(Subset(data, range(1000, 1797)), 400)
schedule = csgmcmc.Cyclical(steps=400, cycles=4, exploration=0.7, draws_per_cycle=5)


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch):
        self.log("loss", loss := nn.functional.cross_entropy(self.net(batch[0]), batch[1]))
        return loss

    def configure_optimizers(self):
        return csgmcmc.SGHMC(self.parameters(), lr=0.1, weight_decay=3e-4, num_data=400, seed=0)


def fit(name: str, *callbacks, ckpt_path: str | None = None) -> csgmcmc.Posterior:
    lightning.seed_everything(0, verbose=False)
    module, store = Digits(), csgmcmc.DrawStore(f"{folder}/{name}")
    checkpoints = ModelCheckpoint(f"{folder}/saved", "{step}", every_n_train_steps=300)
    own = [SamplingCallback(schedule, store), checkpoints, *callbacks]
    quiet = {"logger": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_steps=schedule.steps, callbacks=own, **quiet)
    loader = ResumableLoader(DataLoader(train, batch_size=50, shuffle=True))
    trainer.fit(module, loader, ckpt_path=ckpt_path)
    print(f"{name}: {len(store)} of {schedule.total_draws} draws")
    return csgmcmc.Posterior(module, store, forward=lambda module, inputs: module.net(inputs))


whole = fit("whole")
# Draws that are stored already are compared: one that differs would be an error.
fit("whole", ckpt_path=f"{folder}/saved/step=300.ckpt")
whole.check(held_out, show=True)
warnings.simplefilter("default")  # of what EarlyStopping does when a cycle raises the loss
fit("stopped", EarlyStopping("loss", patience=2))

"""A search for lr, cycles, exploration and temperature with Optuna, in one process or in several.

    pip install . optuna
    python examples/tune_with_optuna.py [FOLDER]     # about 10 seconds
    python examples/tune_with_optuna.py [FOLDER] &   # started twice, two processes share the trials

Each trial is a whole run; its score is the held-out NLL of the posterior predictive. Trials are
kept in a journal, from which a stopped search continues. Never search on the test data.
"""

import sys
from pathlib import Path

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

TRIALS, EPOCHS = 6, 16
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tune_with_optuna")
torch.set_num_threads(1)
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
train = TensorDataset(images[:600].float() / 16, labels[:600])
validation = [(images[600:1000].float() / 16, labels[600:1000])]


def held_out_nll(trial: optuna.Trial) -> float:
    torch.manual_seed(0)  # the same initial weights and batches in all trials
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    loader = DataLoader(train, batch_size=50, shuffle=True)
    suggested = csgmcmc.suggest_lr(model, cross_entropy, loader).lr
    lr = suggested * trial.suggest_float("lr_factor", 0.3, 2, log=True)
    temperature = trial.suggest_float("temperature", 1e-3, 1, log=True)
    sampler = csgmcmc.SGHMC(model.parameters(), lr, num_data=600, temperature=temperature, seed=0)
    cycles = trial.suggest_categorical("cycles", [1, 2, 4])
    exploration = trial.suggest_float("exploration", 0.2, 0.8)
    steps = EPOCHS * len(loader)
    schedule = csgmcmc.Cyclical(steps, cycles, exploration=exploration, draws_per_cycle=3)
    try:
        draws = csgmcmc.Chain(model, cross_entropy, loader, sampler, schedule, progress=False).run()
    except csgmcmc.DivergedError as error:
        raise optuna.TrialPruned from error
    return csgmcmc.Posterior(model, draws, progress=False).check(validation).numbers["nll"]


folder.mkdir(parents=True, exist_ok=True)
storage = JournalStorage(JournalFileBackend(str(folder / "trials.jsonl")))
study = optuna.create_study(storage=storage, study_name="digits", load_if_exists=True)
stop = optuna.study.MaxTrialsCallback(TRIALS)
study.optimize(held_out_nll, callbacks=[stop])
print(f"{len(study.trials)} trials, best NLL {study.best_value:.3f}: {study.best_params}")

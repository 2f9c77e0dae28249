"""A Trainer whose optimizer is a sampler keeps the draws of `Chain`, also after a resume."""

import importlib
import sys
import warnings
from typing import Any

import pytest
import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerState

import csgmcmc
from csgmcmc import (
    SGHMC,
    SGLD,
    Chain,
    Constant,
    DrawStore,
    Keep,
    MemoryDraws,
)
from csgmcmc.errors import DivergedError, SettingsMismatchError
from csgmcmc.integrations.transformers import (
    SamplingCallback,
    logits,
    model_loss,
    next_token_logits,
    next_token_targets,
    num_targets,
    trainer_parts,
)
from tests.integrations.tiny import (
    assert_same_draws,
    bert,
    gpt2,
    llama,
    moved,
    reviews,
    sentences,
)
from tests.integrations.trainer_support import (
    KEPT,
    OPTIONS,
    SCHEDULE,
    Stop,
    arguments,
    chained,
    manual,
    trained,
)

# Draws equal those of Chain


def test_draws_equal_those_of_chain(tmp_path):
    draws = trained(tmp_path, gpt2(), sentences())
    assert_same_draws(draws, chained(gpt2(), sentences()))
    assert [draw.step for draw in draws] == KEPT
    assert moved(gpt2(), draws[0]) > 0.01


@pytest.mark.parametrize("make", [gpt2, llama])
def test_accumulated_gradients_are_means_over_tokens(tmp_path, make):
    model, data, draws = make(), sentences(), MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, **OPTIONS)
    trained(tmp_path, model, data, parts=parts, gradient_accumulation_steps=2)
    assert parts["callbacks"][0].stepper.batches_per_step == 2
    # Batches of unequal numbers of tokens: only a mean over tokens equals that of the whole batch.
    assert_same_draws(draws, chained(make(), sentences(), batch_size=4))


def test_num_data_of_classifier_is_number_of_sequences(tmp_path):
    data = reviews()
    parts = trainer_parts(bert(), data, SCHEDULE, MemoryDraws(), **OPTIONS)
    assert parts["optimizers"][0].param_groups[0]["num_data"] == len(data)
    assert_same_draws(trained(tmp_path, bert(), data), chained(bert(), data))


def test_torch_optimizer_gives_snapshot_ensemble(tmp_path, capsys):
    model, data, draws = llama(), sentences(), MemoryDraws()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    callback = SamplingCallback(model, optimizer, SCHEDULE, draws)
    parts = {"optimizers": (optimizer, callback.scheduler), "callbacks": [callback]}
    trained(tmp_path, model, data, parts=parts, disable_tqdm=False)
    assert "AdamW: 12 steps, 6 draws" in capsys.readouterr().err
    assert [draw.step for draw in draws] == KEPT
    assert moved(llama(), draws[0]) > 0.001


def test_optimizer_arguments_of_trainer_have_no_effect(tmp_path):
    others = {"learning_rate": 1.0, "weight_decay": 10.0, "lr_scheduler_type": "cosine"}
    draws = trained(tmp_path, llama(), sentences(), warmup_steps=5, **others)
    assert_same_draws(draws, trained(tmp_path, llama(), sentences()), exactly=True)


# Checkpoints


@pytest.mark.parametrize("saved", [4, 6])
def test_resumed_run_gives_the_same_draws(tmp_path, saved):
    """In the middle of an epoch of three steps, and between two."""

    def run(name, resume=None, **options):
        store = DrawStore(tmp_path / name / "draws")
        model, folder = gpt2(dropout=0.1), tmp_path / name
        options |= {"train_sampling_strategy": "random", "gradient_accumulation_steps": 2}
        options |= {"save_strategy": "steps", "save_steps": saved}
        return trained(folder, model, sentences(), draws=store, resume=resume, **options)

    whole = run("whole")
    stopped = run("stopped", callbacks=[Stop(7)])  # a draw past the checkpoint
    assert [draw.step for draw in stopped] == [2, 3, 6]
    resumed = run("stopped", resume=str(tmp_path / "stopped" / f"checkpoint-{saved}"))
    assert_same_draws(resumed, whole, exactly=True)
    assert resumed.headers()[0]["provenance"]["seed"] == 3


def test_resume_with_different_settings_raises(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 4}
    store = DrawStore(tmp_path / "draws")
    trained(tmp_path, llama(), sentences(), draws=store, callbacks=[Stop(5)], **saved)
    checkpoint = str(tmp_path / "checkpoint-4")
    changes: list[dict[str, Any]] = [{"lr": 0.1}, {"schedule": Constant(12, keep=Keep(every=4))}]
    for change in changes:
        model = llama()
        parts = manual(model, sentences(), DrawStore(tmp_path / "draws"), **change)
        with pytest.raises(SettingsMismatchError, match=r"schedule|groups.0.*lr"):
            trained(tmp_path, model, sentences(), parts=parts, resume=checkpoint)


def test_missing_draws_warn(tmp_path):
    saved = {"save_strategy": "steps", "save_steps": 4}
    trained(tmp_path, llama(), sentences(), callbacks=[Stop(5)], **saved)
    with pytest.warns(UserWarning, match="draws before step 4"):
        trained(tmp_path, llama(), sentences(), resume=str(tmp_path / "checkpoint-4"), **saved)


def test_starting_a_chain_twice_raises(tmp_path):
    store = DrawStore(tmp_path / "draws")
    trained(tmp_path, llama(), sentences(), draws=store)
    with pytest.raises(ValueError, match="chain 0 has draws already"):
        trained(tmp_path, llama(), sentences(), draws=DrawStore(tmp_path / "draws"))
    model = llama()
    parts = trainer_parts(model, sentences(), SCHEDULE, MemoryDraws(), **OPTIONS)
    trainer = Trainer(model, arguments(tmp_path), train_dataset=sentences(), **parts)
    trainer.train()
    with pytest.raises(ValueError, match="12 steps"):
        trainer.train()


# Errors


def test_clipping_requires_allow_clipping(tmp_path):
    model, data = llama(), sentences()
    parts = trainer_parts(model, data, SCHEDULE, MemoryDraws(), **OPTIONS)
    with pytest.raises(ValueError, match="max_grad_norm="):
        trained(tmp_path, model, data, parts=parts, max_grad_norm=1.0)
    draws = MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, allow_clipping=True, **OPTIONS)
    trained(tmp_path, model, data, draws=draws, parts=parts, max_grad_norm=0.1)
    assert len(draws) == len(KEPT)


def test_trainer_with_other_optimizer_or_length_raises(tmp_path, monkeypatch):
    model, data = llama(), sentences()
    sampler, _ = trainer_parts(model, data, SCHEDULE, MemoryDraws(), **OPTIONS)["optimizers"]
    for optimizers in ((None, None), (sampler, None)):
        parts = trainer_parts(model, data, SCHEDULE, MemoryDraws(), **OPTIONS)
        parts["optimizers"] = optimizers
        with pytest.raises(ValueError, match="optimizers="):
            trained(tmp_path, model, data, parts=parts)
    with pytest.raises(ValueError, match="max_steps must be 12"):
        trained(tmp_path, model, data, max_steps=10)
    args, two = arguments(tmp_path), arguments(tmp_path)
    two._n_gpu = 2  # as on a machine with two
    parts = trainer_parts(model, data, SCHEDULE, MemoryDraws(), **OPTIONS)
    trainer = Trainer(model, args, train_dataset=data, **parts)
    begun = TrainerState(max_steps=SCHEDULE.steps)
    with pytest.raises(ValueError, match="n_gpu must be 1"):
        trainer.callback_handler.on_train_begin(two, begun, trainer.control)
    monkeypatch.setitem(PartialState._shared_state, "distributed_type", DistributedType.FSDP)
    with pytest.raises(ValueError, match="FSDP shards"):
        trainer.callback_handler.on_train_begin(args, begun, trainer.control)


def test_invalid_arguments_raise():
    model, data = llama(), sentences()
    with pytest.raises(TypeError, match="momentum"):
        trainer_parts(model, data, SCHEDULE, MemoryDraws(), sampler=SGLD, lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="empty parameter list"):
        trainer_parts(llama().requires_grad_(False), data, SCHEDULE, MemoryDraws(), lr=0.1)
    with pytest.raises(ValueError, match="schedule must be"):
        trainer_parts(model, data, "cosine", MemoryDraws(), lr=0.1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="draws must be"):
        trainer_parts(model, data, SCHEDULE, "runs", lr=0.1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="sampler must be"):
        SamplingCallback(model, SGHMC, SCHEDULE, MemoryDraws())  # pyright: ignore[reportArgumentType]


def test_bfloat16_weights_warn(tmp_path):
    with pytest.warns(UserWarning, match="torch.bfloat16"):
        trained(tmp_path, llama().bfloat16(), sentences())


def test_missing_package_names_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "csgmcmc.integrations.transformers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[transformers\]'"):
        importlib.import_module("csgmcmc.integrations.transformers")


# During the run


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    model, data, draws = llama(), sentences(), MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, lr=1e30, seed=0)
    with pytest.raises(DivergedError, match="a weight is not finite at step"):
        trained(tmp_path, model, data, parts=parts)
    assert not len(draws)


def test_skipped_steps_do_not_count(tmp_path, capsys):
    model, data, draws = llama(), sentences(), MemoryDraws()
    parts = trainer_parts(model, data, SCHEDULE, draws, **OPTIONS)
    trainer = Trainer(model, arguments(tmp_path), train_dataset=data, **parts)
    # As in half precision: scaled gradients overflow until the scale is small enough.
    trainer.accelerator.scaler = torch.amp.GradScaler(
        "cpu", init_scale=2.0**127, backoff_factor=2.0**-45
    )
    trainer.train()
    (sampler, _), (callback,) = parts["optimizers"], parts["callbacks"]
    taken = callback.stepper.taken
    skipped = SCHEDULE.steps - taken
    assert 0 < skipped < 6
    assert sampler.param_groups[0]["lr"] == 0.05 * SCHEDULE(taken - 1).lr_scale
    assert f"{skipped} steps were skipped" in capsys.readouterr().err
    # The steps that were taken are those of a chain that has not seen the first batches.
    rest = data[2 * skipped :] + data[: 2 * skipped]
    sampler = SGHMC((again := llama()).parameters(), num_data=num_targets(data, again), **OPTIONS)
    chain = Chain(again, model_loss, DataLoader(rest, 2), sampler, SCHEDULE, progress=False)
    assert_same_draws(draws, chain.run()[: len(draws)])
    assert [draw.step for draw in draws] == [step for step in KEPT if step < taken]


def test_early_end_prints_number_of_draws(tmp_path, capsys):
    draws = trained(tmp_path, llama(), sentences(), callbacks=[Stop(7)])
    said = capsys.readouterr().err
    assert f"ended at step 7 of 12 with {len(draws)} of 6 draws" in said
    assert len(draws) == 3


def test_start_prints_num_data(tmp_path, capsys):
    trained(tmp_path, llama(), sentences(masked=False), disable_tqdm=False)
    assert "SGHMC with N=84: 12 steps, 6 draws" in capsys.readouterr().err


# Posterior


def test_predictions_are_averages_over_draws(tmp_path):
    model, data = bert(), reviews()
    draws = trained(tmp_path, model, data)
    loader = DataLoader(data, batch_size=5)
    posterior = csgmcmc.Posterior(
        model,
        draws,
        forward=logits,
        split=lambda batch: (batch, batch["labels"]),
        progress=False,
    )
    found: Any = posterior.predict_loader(loader)
    whole = next(iter(DataLoader(data, batch_size=12)))
    assert torch.equal(found.targets, whole["labels"])
    expected = torch.zeros(12, 3)
    for draw in draws:
        draw.load_into(model)
        with torch.no_grad():
            expected += model.eval()(**whole).logits.softmax(-1) / len(draws)
    torch.testing.assert_close(found.probs, expected)


def test_token_scores_equal_loss(tmp_path):
    model, data = llama(), sentences()
    draws = trained(tmp_path, model, data)
    posterior = csgmcmc.Posterior(
        model, draws, forward=next_token_logits, split=next_token_targets, progress=False
    )
    loader = DataLoader(data, batch_size=5)
    scores = posterior.log_scores(loader)
    assert scores.shape == (len(KEPT), num_targets(data, model))
    draws[2].load_into(model)
    with torch.no_grad():
        loss = model.eval()(**next(iter(DataLoader(data, batch_size=12)))).loss
    assert -float(scores[2].mean()) == pytest.approx(float(loss), rel=1e-5)


def test_next_token_logits_without_labels():
    model = llama().eval()
    ids = sentences()[0]["input_ids"][None]
    padded = torch.cat([ids, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    mask = (torch.arange(11) < 8).long()[None]
    expected = model(input_ids=ids).logits[:, -1]
    torch.testing.assert_close(next_token_logits(model, {"input_ids": ids}), expected)
    found = next_token_logits(model, {"input_ids": padded, "attention_mask": mask})
    torch.testing.assert_close(found, expected)


def test_check_of_language_model(tmp_path):
    model, data = llama(), sentences(masked=False)
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), **OPTIONS)
    chain = Chain(
        model, model_loss, DataLoader(data, batch_size=4), sampler, SCHEDULE, progress=False
    )
    chain.run()
    posterior = csgmcmc.Posterior(
        model, chain.draws, forward=next_token_logits, split=next_token_targets, progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws: not what is tested here
        found = posterior.check(DataLoader(data, batch_size=4), run=chain)
    assert found.numbers["nll"] > 0
    assert found.sampling.holds is not None

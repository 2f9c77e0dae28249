"""Draws of an adapter: kept alone, read as whole models, written as adapters of peft."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore, MemoryDraws, Posterior
from csgmcmc.draws import keep_trainable
from csgmcmc.integrations.transformers import (
    model_loss,
    next_token_logits,
    num_targets,
    trainer_parts,
)
from tests.integrations.tiny import assert_same_draws, llama, sentences

SCHEDULE = Cyclical(steps=12, cycles=3, exploration=0.25, draws_per_cycle=2)
KEPT = [2, 3, 6, 7, 10, 11]
OPTIONS = {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.01, "seed": 3}


def adapted(dropout=0.0):
    base = llama()
    config = LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], lora_dropout=dropout, task_type="CAUSAL_LM"
    )
    return get_peft_model(base, config)


def trainable(model):
    return [param for param in model.parameters() if param.requires_grad]


def chained(model, draws):
    data = sentences()
    sampler = SGHMC(trainable(model), num_data=num_targets(data, model), **OPTIONS)
    loader = DataLoader(data, batch_size=2)
    return Chain(model, model_loss, loader, sampler, SCHEDULE, draws, progress=False).run()


@pytest.fixture
def sampled(tmp_path):
    model = adapted()
    return model, chained(model, DrawStore(tmp_path / "draws", only=keep_trainable(model)))


def test_draws_keep_only_the_adapter(sampled, tmp_path):
    model, store = sampled
    weights = sum(param.numel() for param in trainable(model))
    assert weights * 10 < sum(param.numel() for param in model.parameters())
    for file in (tmp_path / "draws" / "draws").iterdir():
        assert 4 * weights < file.stat().st_size < 4 * weights + 2000  # names and shapes besides
    assert store.size_on_disk() < len(KEPT) * (4 * weights + 2000)
    # What is read is the whole model, with the base as it was.
    before, after = adapted().state_dict(), store[-1].tensors()
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == ("lora_" not in name), name


def test_draws_that_keep_all_are_the_same(sampled):
    model = adapted()
    assert_same_draws(sampled[1], chained(model, MemoryDraws()), exactly=True)


def test_predictions_are_averages_over_adapters(sampled):
    model, store = sampled
    batch = {"input_ids": torch.stack([one["input_ids"] for one in sentences()])}
    found: Any = Posterior(model, store, forward=next_token_logits, progress=False).predict(batch)
    expected = torch.zeros_like(found.probs)
    with torch.no_grad():
        for draw in store:
            draw.load_into(model)
            expected += model.eval()(**batch).logits[:, -1].softmax(-1) / len(store)
    torch.testing.assert_close(found.probs, expected)
    assert found.mutual_information.min() > 0


def test_draws_are_adapters_that_peft_loads(sampled, tmp_path):
    model, store = sampled
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.save_pretrained(tmp_path / "adapter", state_dict=store[1].tensors())
    torch.testing.assert_close(dict(model.state_dict()), state, rtol=0, atol=0)
    loaded = PeftModel.from_pretrained(llama(), str(tmp_path / "adapter"))
    batch = next(iter(DataLoader(sentences(), batch_size=3)))
    store[1].load_into(model)
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, model.eval()(**batch).logits)


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **parts):
        control.should_training_stop = state.global_step == 7


def test_a_trainer_samples_adapters_and_goes_on(sampled, tmp_path):
    def run(name: str, dropout: float, resume: Path | None = None, stop: bool = False):
        model = adapted(dropout)
        store = DrawStore(tmp_path / name / "draws", only=keep_trainable(model))
        parts = trainer_parts(model, sentences(), SCHEDULE, store, **OPTIONS)
        args = TrainingArguments(
            str(tmp_path / name),
            max_steps=SCHEDULE.steps,
            max_grad_norm=0,
            per_device_train_batch_size=2,
            train_sampling_strategy="sequential" if name == "plain" else "random",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no" if name == "plain" else "steps",
            save_steps=4,
        )
        parts["callbacks"] += [Stop()] if stop else []
        trainer = Trainer(model, args, train_dataset=sentences(), **parts)
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        return store

    assert_same_draws(run("plain", 0.0), sampled[1])
    whole = run("whole", 0.1)
    run("stopped", 0.1, stop=True)
    resumed = run("stopped", 0.1, resume=tmp_path / "stopped" / "checkpoint-4")
    assert_same_draws(resumed, whole, exactly=True)


# The example


def example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "adapters.py"
    spec: Any = importlib.util.spec_from_file_location("adapters_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs(capsys):
    scores = example().main(steps=50, epochs=1)
    assert len(scores) == 6
    assert "N is 300 tokens, not 20 sentences" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_shows_what_it_says():
    module = example()
    scores = module.main()
    one, many, sampled = (
        [scores[row, decay] for decay in (module.WEAK, module.STRONG)]
        for row in ("one adapter, trained", "many, from one training", "many, sampled")
    )
    assert sampled[0] < many[0] < one[0]  # by heart
    assert min(*one, *many) < min(sampled)  # the right decay is the best of all
    assert abs(sampled[0] - sampled[1]) < 0.3 * abs(many[0] - many[1])

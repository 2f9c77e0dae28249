import pickle
from dataclasses import asdict

import pytest

from csgmcmc.errors import DivergedError
from csgmcmc.schedules import Constant
from paper.experiments import find_experiments, reproduce
from paper.experiments.changes import change
from paper.tests.experiments.tiny import Tiny

EXPERIMENTS = find_experiments()
VALUES = {
    "sampler": "SGHMC",
    "lr": 0.7,
    "temperature": 1.0,
    "weight_decay": 1e-4,
    "sampler_options": {"momentum": 0.4},
    "epochs": 600,
    "cycles": 5,
    "exploration": 0.9,
    "draws_per_cycle": 2,
    "weight_decay_scales": None,
    "temperature_scales": None,
    "seed": 0,
}


def differing(one, other):
    """Paths of the settings in which two configs differ, and their new values."""
    if isinstance(one, dict):
        return {
            f"{name}.{path}".rstrip("."): value
            for name in one
            for path, value in differing(one[name], other[name]).items()
        }
    if isinstance(one, (list, tuple)) and one and isinstance(one[0], dict):
        return differing(dict(enumerate(one)), dict(enumerate(other)))
    return {} if one == other else {"": other}


def changed_by(name, preset, values):
    config = EXPERIMENTS[name].presets[preset]
    changed, unused = change(config, values)
    return differing(asdict(config), asdict(changed)), unused


def test_a_recipe_is_told_in_the_words_of_each_experiment():
    plan = {"cycles": 5, "exploration": 0.9, "draws_per_cycle": 2, "epochs": 600}
    network = {"weight_decay": 1e-4, "momentum": 0.4}
    own = ["sampler", "temperature", "seed"]

    found, unused = changed_by("imagenet", "paper", VALUES)
    of_network = {f"network.{name}": value for name, value in network.items()}
    assert found == {**plan, **of_network, "lr_cyclical": 0.7}
    assert unused == own

    found, unused = changed_by("uncertainty", "paper", VALUES)
    expected = {f"plan.{name}": value for name, value in plan.items()}
    assert found.items() >= {**expected, "lr_sghmc": 0.7}.items()
    assert not [name for name in found if name.startswith(("search", "tuned", "lr_sgld"))]

    found, unused = changed_by("cifar", "paper", VALUES)
    for number in range(2):
        settings = {name: found[f"settings.{number}.{name}"] for name in plan}
        assert settings == plan
        assert found[f"settings.{number}.lrs.cSGHMC"] == 0.7
        assert f"settings.{number}.lrs.cSGLD" not in found
    assert unused == own

    found, unused = changed_by("cifar", "laptop", VALUES)  # which searches for step sizes
    assert "lr" in unused
    assert found["settings.0.network.momentum"] == 0.4

    found, unused = changed_by("schedule", "smoke", VALUES)
    assert found == {"cycles": 5, "exploration": 0.9, "cyclical_lr": 0.7}


def test_any_setting_can_be_named():
    found, unused = changed_by(
        "cifar-tempering", "smoke", {"temperatures": [1, 0.5], "train": 50, "beta": 1}
    )
    assert found == {"temperatures": (1, 0.5), "settings.0.train": 50}
    assert unused == ["beta"]
    found, _ = changed_by("cifar-sensitivity", "smoke", {"pairs": [[3, 0.5]], "seeds": 4})
    assert found == {"pairs": ((3, 0.5),), "seeds": 4, "settings.0.seeds": 4}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("imagenet", {"epochs": 1.5}, "epochs must be a whole number here, got 1.5"),
        ("imagenet", {"exploration": "much"}, "exploration must be a number, got 'much'"),
        ("imagenet", {"cycles": "5"}, "cycles must be a number, got '5'"),
        ("imagenet", {"kind": 3}, "kind must be a str, got 3"),
        ("imagenet", {"kind": "vast"}, "kind must be one of"),
        ("uncertainty", {"epochs": 10}, "epochs=10 must be above burn_in=50: give both"),
        ("logistic", {"steps": 100}, "steps=100 must be above burn_in=5000: give both"),
    ],
)
def test_values_that_do_not_fit_are_refused(name, values, words):
    with pytest.raises(ValueError, match=words):
        change(EXPERIMENTS[name].presets["paper"], values)


def test_the_file_tells_what_was_changed(tmp_path):
    changes = tmp_path / "some.json"
    changes.write_text('{"numbers": [5, 6], "pause": 0}')
    results = reproduce(Tiny(), "paper", tmp_path, changes=changes, seeds=2)
    assert results.config == {"seeds": 2, "numbers": [5, 6], "pause": 0.0}
    assert list(results.records) == ["square of 5", "square of 6", "sum"]
    assert results.command == "python -m paper run tiny --preset paper --seeds 2 --config FILE"
    with pytest.raises(ValueError, match=r"holds a run with other settings \(numbers, seeds\)"):
        reproduce(Tiny(), "paper", tmp_path)
    changes.write_text('{"lr": 1}')
    with pytest.raises(ValueError, match="is a setting of tiny: seeds, numbers, pause"):
        reproduce(Tiny(), "paper", tmp_path, changes=changes)


class Hot(Tiny):
    def run(self, config, data, **options):
        raise DivergedError("the loss", Constant(9)(5), 0.1, [0])


def test_a_job_that_diverges_is_named_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="of 1: chain 0 diverged: the loss is not fini") as caught:
        reproduce(Hot(), "paper", tmp_path)
    back = pickle.loads(pickle.dumps(caught.value))  # the way that it comes from a worker
    assert str(back) == str(caught.value)

"""The gate that pages of the experiments on networks show, from made-up records."""

from paper.pages import make_page
from paper.tests.report.test_deep_pages import chain, results, table_of


def gate_note(train_error):
    tried = ((1, 1.5, 0.001), (2, 1.3, 0.004), (3, 1.1, train_error), (4, None, None))
    searches = [
        {"part": "search", "source": "cifar10", "method": "cSGLD", "lr": lr, "seed": 0,
         "epochs": 20, "validation_nll": nll, "train_error": error}
        for lr, nll, error in tried
    ]  # fmt: skip
    fit = {"size": 5000, "cycles": [0, 1], "errors": [0.05, train_error], "nlls": [0.1, 0.1]}
    chains = [chain("cSGLD", seed, 0.3, train=fit) for seed in range(2)]
    return table_of(make_page(results("cifar", [*searches, *chains])), "The gate").note


def test_a_step_size_whose_cycles_do_not_pass_the_gate_has_a_reason():
    assert (
        "The step size of cSGLD, 3, is taken though its run ends with a training error of 4.00 %: "
        "with 2, which ends at 0.40 %, the NLL on validation data is 1.300 in place of 1.100."
    ) in gate_note(0.04)
    assert "is taken though" not in gate_note(0.002)


def test_plain_training_is_compared_with_itself():
    """Rivals change it, or its step size, in runs of the same length and seed."""
    fit = {"size": 5000, "cycles": [0, 1], "errors": [0.0, 0.0], "nlls": [0.1, 0.1]}
    plain = [chain("SGDM", 0, 0.30), chain("SGDM", 0, 0.32, epochs=5)]
    others = [
        chain("SGDM", 0, 0.9, dropout=0.5),
        chain("SGDM", 0, 0.9, level=0.2),
        chain("SGDM", 0, 0.9, lr=0.4, epochs=5),
    ]
    page = make_page(results("cifar", [*plain, *others, chain("cSGLD", 0, 0.3, train=fit)]))
    said = "SGDM has 32.00 % test error after the epochs of one cycle and 30.00 % after all: within"
    assert said in table_of(page, "The gate").note


def test_step_sizes_of_rivals_have_rows_of_their_own():
    fits = {lr: {"size": 9, "cycles": [0], "errors": [lr / 10], "nlls": [0.1]} for lr in (0.2, 0.4)}
    chains = [chain("cSGHMC", seed, 0.3, lr=lr, train=fits[lr]) for lr in fits for seed in (0, 1)]
    page = make_page(results("cifar-converged-rivals", chains))
    assert [row[:3] for row in table_of(page, "The gate").rows] == [
        ["cSGHMC at 1/N, step size 0.2", "2", "2.00"],
        ["cSGHMC at 1/N, step size 0.4", "2", "4.00"],
    ]

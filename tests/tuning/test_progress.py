import io
import math

from rich.console import Console

from csgmcmc.tuning import Trial
from csgmcmc.tuning.progress import SearchDisplay

TRIALS = [
    Trial(1, 4, 0.8, 0.01, -0.51, "complete", 1.0),
    Trial(2, 2, 0.5, 1.0, -1.2, "pruned", 0.5),
    Trial(3, 1, 0.3, 0.1, math.nan, "diverged", 0.1),
]


def shown(*, terminal: bool, progress: bool = True) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    with SearchDisplay(20, TRIALS[:1], progress, console) as display:
        display.say("scored on 10 [of them]")
        display.advance(0.5)
        for trial in TRIALS[1:]:
            display.end(trial)
    return stream.getvalue()


def test_without_a_terminal_each_trial_is_a_line():
    assert shown(terminal=False).splitlines() == [
        "scored on 10 [of them]",
        "trial 2 of 20: cycles 2, exploration 0.50, temperature 1: pruned after 50%, log score "
        "-1.2000, best -0.5100",
        "trial 3 of 20: cycles 1, exploration 0.30, temperature 0.1: diverged, best -0.5100",
    ]


def test_on_a_terminal_there_is_a_bar():
    text = shown(terminal=True)
    assert "3/20 trials, best -0.5100" in text
    assert "scored on 10 [of them]" in text


def test_where_nothing_is_to_be_shown_nothing_is():
    assert shown(terminal=False, progress=False) == ""
    assert shown(terminal=True, progress=False) == ""

"""docs/how-it-works.md says what the run of its picture does."""

import pytest

pytest.importorskip("matplotlib")

from scripts.how_it_works import SCHEDULE, run
from tests.docs.support import DOCS

PAGE = (DOCS / "how-it-works.md").read_text(encoding="utf-8")


def test_the_page_names_the_step_of_the_picture():
    ticks = [SCHEDULE(step) for step in range(SCHEDULE.steps)]
    step = next(tick.step for tick in ticks if tick.cycle == 2 and tick.collect)
    assert f"what step {step:,} will do" in PAGE
    assert f"`draws/0000-{step:09}.safetensors`" in PAGE
    assert f"best of {SCHEDULE.total_draws} draws" in PAGE


@pytest.mark.slow
def test_the_answers_are_those_that_the_page_explains():
    check = run()["check"]
    names = ("learned", "sampling", "mixing", "calibrated", "better")
    answers = {name: getattr(check, name).answer for name in names}
    unknown = {name for name, answer in answers.items() if answer == "unknown"}
    assert unknown == {"mixing", "better"}
    assert {answers[name] for name in answers.keys() - unknown} == {"yes"}

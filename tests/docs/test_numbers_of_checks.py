"""docs/posterior.md names all that `check` measures."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASSIGNED = re.compile(r"numbers(?:\[| \|= {)(f?)\"([^\"]+)\"(?:\] =|\],|:)")
VALUES = {
    "key": ("picked_draw", "start"),
    "where": ("within", "between"),
    "way.replace(' ', '_')": ("too_cold", "too_hot"),
    "end": ("value", "low", "high", "target"),
}


def measured() -> set[str]:
    """The names that the code assigns to."""
    names = set()
    for path in (ROOT / "src/csgmcmc/checks").glob("*.py"):
        for formatted, name in ASSIGNED.findall(path.read_text()):
            field = re.search(r"{(.+)}", name)
            assert bool(formatted) == bool(field)
            names |= {name.replace(field[0], one) for one in VALUES[field[1]]} if field else {name}
    return names


def test_every_number_is_on_the_page():
    text = (ROOT / "docs/posterior.md").read_text()
    table = text.split("`found.numbers` has")[1].split("\n\n")[1]
    told = {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert told == measured()
    assert len(told) > 15

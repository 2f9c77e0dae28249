"""How the fuzzers run: fixed examples in CI, others for as long as one likes by hand.

    CSGMCMC_FUZZ_MINUTES=10 python -m pytest -m slow -n0 -s -k fuzz

runs each fuzzer for ten minutes with new random examples, and prints how many it has tried. Without
the variable every run has the same examples, about a minute's worth.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MINUTES = float(os.environ.get("CSGMCMC_FUZZ_MINUTES", "0"))
BY_HAND = 300  # examples between two looks at the clock


def fuzz(cases: st.SearchStrategy[Any], test: Callable[[Any], None], examples: int) -> None:
    """Call `test` with many of the `cases`."""
    options: dict[str, Any] = {
        "database": None,
        "deadline": None,
        "suppress_health_check": list(HealthCheck),
    }

    tried = 0

    def run(case: Any) -> None:
        nonlocal tried
        tried += 1
        test(case)

    if not MINUTES:
        fixed = settings(derandomize=True, max_examples=examples, **options)
        fixed(given(case=cases)(run))()
        return
    ends = time.monotonic() + 60 * MINUTES
    while time.monotonic() < ends:
        free = settings(derandomize=False, max_examples=BY_HAND, **options)
        free(given(case=cases)(run))()
    print(f"\n{tried} examples in {MINUTES:g} minutes, no failure")  # noqa: T201

"""How the fuzzers run, and the values that they draw: those of the documented types.

    CSGMCMC_FUZZ_MINUTES=10 python -m pytest -m slow -n0 -s -k fuzz

runs each fuzzer for ten minutes with new random examples, and prints how many it has tried. Without
the variable every run has the same examples, about a minute's worth.
"""

import inspect
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from csgmcmc.errors import CsgmcmcError

MINUTES = float(os.environ.get("CSGMCMC_FUZZ_MINUTES", "0"))
BETWEEN_LOOKS = 300  # examples between two looks at the clock

COUNTS = st.sampled_from([-1, 0, 1, 2, 3, 10, np.int64(2), torch.tensor(2)])
NUMBERS = COUNTS | st.sampled_from(
    [
        *(-0.5, 0.0, 1e-8, 0.5, 1.0, 2.5, 1e8, float("nan"), float("inf")),
        *(np.float64(0.5), np.float32(2.0), np.array(0.5), torch.tensor(0.5)),
    ]
)
WORDS = st.sampled_from(["", "x", "0.1", "uniform", "categorical", "cpu", "SGLD", "mean"])
BY_TYPE = {"int": COUNTS, "float": NUMBERS, "bool": st.booleans() | COUNTS, "str": WORDS}


def values_of(parameter: inspect.Parameter) -> st.SearchStrategy[Any] | None:
    """Values in and out of range of the types in an annotation; None if it has no such type."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    names = {part.strip() for part in text.split("|")}
    found = [values for name, values in BY_TYPE.items() if name in names]
    if not found:
        return None
    return st.one_of(*found, st.none()) if "None" in names else st.one_of(*found)


def raises_only_named_errors(call: Callable[[], object], names: Iterable[str]) -> None:
    """Call it in a folder of its own: it succeeds, or its error names an argument."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        os.chdir(folder)
        try:
            call()
        except CsgmcmcError:
            pass
        except ValueError as error:
            assert any(name in str(error) for name in names), error
        finally:
            os.chdir(before)


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
        free = settings(derandomize=False, max_examples=BETWEEN_LOOKS, **options)
        free(given(case=cases)(run))()
    print(f"\n{tried} examples in {MINUTES:g} minutes, no failure")  # noqa: T201

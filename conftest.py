"""Runs the Python snippets of README and docs as tests, each page in a folder of its own."""

import os
import tempfile
from typing import Any

# Products in bfloat16 end the process on some processors; before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Small tensors run faster on one thread, and the test workers share the cores.
torch.set_num_threads(1)

# Tests see plain text in 80 columns, whatever the terminal is.
for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)


def enter_empty_folder(namespace: dict[str, Any]) -> None:
    namespace["_home"] = os.getcwd()
    namespace["_folder"] = tempfile.TemporaryDirectory()
    os.chdir(namespace["_folder"].name)


def leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["*.md"],
    setup=enter_empty_folder,
    teardown=leave_folder,
).pytest()

"""Devices and dtypes that a user gives."""

from typing import Any

import torch
from torch import nn

from csgmcmc.arguments import check_kind, shown

NARROW_DTYPES = (torch.bfloat16, torch.float16)


def device_for_batches(model: nn.Module) -> torch.device | None:
    """Where batches are moved to by default; None for a model on the CPU or on several devices."""
    devices = {param.device for param in model.parameters()}
    return devices.pop() if len(devices) == 1 and torch.device("cpu") not in devices else None


def check_dtype(name: str, dtype: Any) -> torch.dtype:
    """A floating point dtype, or a `ValueError`."""
    found = check_kind(name, dtype, torch.dtype, "a torch.dtype, such as torch.float32")
    if not found.is_floating_point:
        raise ValueError(f"{name} must be a floating point dtype, got {dtype}")
    return found


def check_autocast(dtype: Any) -> torch.dtype | None:
    """A dtype of mixed precision, or None for None; otherwise a `ValueError`."""
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype in NARROW_DTYPES):
        return dtype
    raise ValueError(f"autocast must be torch.bfloat16, torch.float16 or None, got {shown(dtype)}")

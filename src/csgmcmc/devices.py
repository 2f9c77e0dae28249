"""Devices and dtypes that a user gives."""

from typing import Any

import torch

from csgmcmc.arguments import check_kind, shown

NARROW_DTYPES = (torch.bfloat16, torch.float16)


def check_device(device: Any) -> torch.device | None:
    """A device, or None for None; torch's own error for another name names the devices."""
    return None if device is None else torch.device(device)


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

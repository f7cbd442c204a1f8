"""Tensors in float64 on any device. Apple's MPS has none: there they are computed on the CPU and go back as float32."""

from typing import Any

import torch


def float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU if it has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def in_float64(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, on `float64_device` of its device."""
    return tensor.to(float64_device(tensor.device)).double()


def float64_tensor(values: Any, device: torch.device) -> torch.Tensor:
    """A float64 tensor of numbers, as ``torch.tensor`` takes them, on `float64_device` of a device."""
    return torch.tensor(values, dtype=torch.float64, device=float64_device(device))

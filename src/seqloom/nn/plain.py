"""Every fast path has a readable twin; this is the switch between them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.kernels.compiling import can_compile


def use_plain_paths(module: nn.Module, plain: bool = True) -> None:
    """Make every part of a module that has two ways (an attribute `plain`) take the readable one, or the fast one."""
    for part in module.modules():
        if hasattr(part, "plain"):
            part.plain = plain  # type: ignore[assignment]


def can_be_compiled(values: Tensor) -> bool:
    """Whether a compiled loop, which runs in one thread, is the fast way for these values: in training, on one core."""
    return (
        values.requires_grad
        and torch.is_grad_enabled()
        and values.device.type == "cpu"
        and values.dtype == torch.float32
        and torch.get_num_threads() == 1
        and can_compile()
    )

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


def suits_a_loop(values: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether a compiled loop over numbers of this type, which runs in one thread, is the fast way through these."""
    one_thread = values.device.type == "cpu" and torch.get_num_threads() == 1
    return one_thread and values.dtype == dtype and can_compile()


def can_be_compiled(values: Tensor) -> bool:
    """The same for loops that are made for training."""
    return values.requires_grad and torch.is_grad_enabled() and suits_a_loop(values)

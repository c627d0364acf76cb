"""Every fast path has a readable twin; this is the switch between them."""

from __future__ import annotations

from torch import nn


def use_plain_paths(module: nn.Module, plain: bool = True) -> None:
    """Make every part of a module that has two ways (an attribute `plain`) take the readable one, or the fast one."""
    for part in module.modules():
        if hasattr(part, "plain"):
            part.plain = plain  # type: ignore[assignment]

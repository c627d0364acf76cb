"""torch's optimisers without torch's compiler, which nothing here uses.

They load it all the same, on their first step and before, only to keep it away from some of their code: 70 MB of memory
and about a second at the start of every training.
"""

from __future__ import annotations

import inspect
from typing import TypeVar, cast

import torch

READY = "__dynamo_disable"  # where torch keeps what it made of a function that its compiler shall leave alone

Kind = TypeVar("Kind", bound=type[torch.optim.Optimizer])


def uncompiled(kind: Kind) -> Kind:
    """The same optimiser, step for step; hooks are called as ever."""
    for method in vars(torch.optim.Optimizer).values():
        inside = getattr(method, "__wrapped__", None)
        if inside is not None and not hasattr(inside, READY):
            setattr(inside, READY, inside)
    return cast(Kind, type(kind.__name__, (kind,), {"step": torch.no_grad()(inspect.unwrap(kind.step))}))

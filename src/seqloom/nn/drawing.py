"""Where the random numbers of a training come from: torch's own generator, or one that belongs to a thread.

Threads that compute side by side must not share a generator: which of them draws first is decided by chance of another
kind, and no run could be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_own = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Within this, this thread draws from `generator`; None stands for torch's own."""
    before = own_generator()
    _own.generator = generator
    try:
        yield
    finally:
        _own.generator = before


def drop_units(values: Tensor, rate: float) -> Tensor:
    """A share of the numbers at zero, the others larger by as much (Srivastava et al. 2014): the plain formula."""
    kept = torch.rand(values.shape, generator=own_generator(), device=values.device) >= rate
    return values * kept / (1 - rate)


def own_generator() -> torch.Generator | None:
    """What this thread draws from, as torch's functions take it."""
    return getattr(_own, "generator", None)

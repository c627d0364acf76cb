"""Loops compiled by Numba, where torch has no operation that does the same in one pass.

Every kernel has a twin written with torch or NumPy, which computes the same without Numba and is what tests compare it
with. A kernel runs in the calling thread and lets other threads run. It is compiled when first used, once a machine:
the result is kept beside the module, or in the user's cache where that cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def can_compile() -> bool:
    """Whether Numba is there and works with what else is installed."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is compiled when it is first called; importing it does not import Numba."""

    @cache
    def compiled() -> Any:
        import numba

        return numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")(function)

    def call(*arguments: Any) -> Any:
        return compiled()(*arguments)

    call.__doc__ = function.__doc__
    return call

"""Gradients of large tables, added where they are kept.

A table of symbols, often shared by embeddings and output layer, is the largest weight of a small model. torch would
make a gradient of its size for every use of it in every piece of a batch, most of it zeros, and add them up. Where a
training asks for it (`with adding_to_tables():` around a loss and its gradients), those who use a table add to its
`grad` themselves: the rows that they looked at, or all of them once. It is a matter of the thread that asks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from seqloom.kernels.rows import add_rows_to
from seqloom.nn.plain import suits_a_loop
from seqloom.nn.switches import Switch

_asked = Switch()


def adding_to_tables(wanted: bool = True) -> AbstractContextManager[None]:
    """Within this, this thread adds gradients of tables where they are kept; nothing but `grad` holds them."""
    return _asked.turned(wanted)


def adds_to(table: Tensor) -> bool:
    """Whether a gradient of this table is to be added where it is kept."""
    return _asked.on and table.is_leaf and table.requires_grad and torch.is_grad_enabled()


def gradient_of(table: Tensor) -> Tensor:
    """Where it is kept."""
    if table.grad is None:
        table.grad = torch.zeros_like(table)
    return table.grad


def add_rows(into: Tensor, places: Tensor, rows: Tensor, factor: float) -> None:
    """into[places[i]] += factor * rows[i]; into (symbols, d), places (count,), rows (count, d)."""
    if suits_a_loop(into) and into.is_contiguous() and rows.dtype == torch.float32:
        add_rows_to(into.numpy(), places.contiguous().numpy(), rows.contiguous().numpy(), factor)
    else:
        into.index_add_(0, places, rows, alpha=factor)

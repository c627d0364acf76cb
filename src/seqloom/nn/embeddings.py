"""Tables of vectors, one row a symbol."""

from __future__ import annotations

from torch import nn


def symbol_embedding(num_symbols: int, size: int, padding_id: int = 0) -> nn.Embedding:
    """Rows of unit expected length, so that a tied output layer starts with logits of about unit size; padding is zero."""
    table = nn.Embedding(num_symbols, size, padding_idx=padding_id)
    nn.init.normal_(table.weight, std=size**-0.5)
    table.weight.data[padding_id].zero_()
    return table

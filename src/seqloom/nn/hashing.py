"""Tables of vectors for what is too much to be listed, such as all pairs of words: what is met is hashed to a row.

Weinberger et al. 2009; Joulin et al. 2017 (fastText). Of a table with a million rows a batch uses a few thousand, so
gradients are sparse tensors, and the optimiser changes only these rows (`training/rows.py`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MULTIPLIER = 116049371  # fastText's, of the numbers of earlier words
SPREAD = 0x5851F42D4C957F2D  # Knuth's, of MMIX: neighbouring numbers become distant ones


class HashedTable(nn.Module):
    """(…) rows -> (…, size) vectors. Row 0 is nothing, and stays zero.

    All vectors are zero at the start: one that training never met says nothing.
    """

    def __init__(self, buckets: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(buckets + 1, size))
        self.scale = math.sqrt(size)  # as symbols have it, so that both learn equally fast

    def forward(self, rows: Tensor) -> Tensor:
        return F.embedding(rows, self.weight, padding_idx=0, sparse=True) * self.scale


def ngram_rows(symbols: Tensor, longest: int, buckets: int, padding_id: int = 0) -> Tensor:
    """(batch, time) symbols -> (batch, time, longest - 1) rows of a table, for the n-grams that end at each symbol.

    Of 2, 3, … symbols; 0 where there are not so many, or one of them is padding.
    """
    found = []
    hashed, real = symbols * SPREAD, symbols != padding_id  # int64 numbers wrap around
    for length in range(2, longest + 1):
        earlier, whole = torch.zeros_like(symbols), torch.zeros_like(real)
        earlier[:, 1:], whole[:, 1:] = hashed[:, :-1], real[:, :-1]
        hashed = earlier * MULTIPLIER + symbols * SPREAD + length
        real = whole & (symbols != padding_id)
        found.append((hashed >> 17).remainder(buckets).add_(1).where(real, 0))
    return torch.stack(found, -1)

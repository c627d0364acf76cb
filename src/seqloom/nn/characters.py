"""Words from their letters: convolutions of several widths, the strongest answer of each, highway layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.connections import Highway
from seqloom.nn.embeddings import SymbolEmbedding


class CharacterEncoder(nn.Module):
    """(words, letters) numbers of letters, 0 after the end -> (words, size) vectors (Kim et al. 2016).

    Each filter looks at a few neighbouring letters; the strongest of its answers over the word is kept. Answers that
    begin after the word's end do not count, so the vector does not depend on how much a row is padded.
    """

    def __init__(
        self,
        *,
        num_letters: int,
        letter_size: int,
        filters: Sequence[tuple[int, int]],
        num_highways: int,
        size: int,
    ) -> None:
        """`filters`: widths, and how many of each."""
        super().__init__()
        total = sum(count for _, count in filters)
        self.embedding = SymbolEmbedding(num_letters, letter_size)
        self.filters = nn.ModuleList(nn.Conv1d(letter_size, count, width) for width, count in filters)
        self.changes = nn.ModuleList(nn.Linear(total, total) for _ in range(num_highways))
        self.highways = nn.ModuleList(Highway(size=total, num_seen=1) for _ in range(num_highways))
        self.projection = nn.Linear(total, size)
        self.widest = max(width for width, _ in filters)

    def forward(self, letters: Tensor) -> Tensor:
        real = letters != 0  # (words, letters)
        real[:, 0] = True  # of a word without letters the first answer counts: a largest one of none is not defined
        embedded = F.pad(self.embedding(letters).transpose(1, 2), (0, self.widest - 1))  # (words, size, letters + …)
        strongest = []
        for convolution in self.filters:
            answers = convolution(embedded)[:, :, : letters.shape[1]]  # (words, filters, letters)
            strongest.append(answers.masked_fill(~real[:, None], float("-inf")).amax(-1))
        hidden = F.relu(torch.cat(strongest, -1))
        for change, gate in zip(self.changes, self.highways, strict=True):
            hidden = gate([hidden], F.relu(change(hidden)))
        return self.projection(hidden)

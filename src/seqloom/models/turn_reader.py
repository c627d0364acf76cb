"""How turns of a conversation enter an encoder: each is read by an encoder of its own, which gives one vector."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from seqloom.batches.collate import Tokens
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.masks import length_mask


class TurnReader(nn.Module):
    """(batch, turns, words) -> (batch, turns, size): what an encoder of texts makes of each turn, summarised."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def embedding(self) -> SymbolEmbedding:
        """The table of word vectors."""
        table: SymbolEmbedding = self.encoder.reader.embedding
        return table

    def forward(self, turns: Any) -> Tensor:
        real = length_mask(turns.lengths, turns.ids.shape[1])
        sizes = turns.sizes[real]
        memory = self.encoder.encode(Tokens(turns.ids[real], sizes))
        found: Tensor = memory.summarise()  # (all turns, size)
        vectors = found.new_zeros(*turns.ids.shape[:2], found.shape[1])
        vectors[real] = found
        return vectors

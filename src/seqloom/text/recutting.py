"""BPE dropout (Provilkov et al. 2020): the same words cut into other pieces each time a model meets them.

A BPE tokenizer glues characters together, the earliest learned pair first. Here each possible gluing is passed over
with a small chance, at every step:

    ▁unrelated    (no chance)        ▁un related,  ▁un rel ated,  ▁u n related,  ...

A model that has seen many cuts of a word knows its parts and memorises fewer whole sentences. Only training text is cut
like this; what a model reads and writes later is cut in the one usual way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from seqloom.text.tokenizers import Tokenizer

CUTS_KEPT = 32  # of each word: once so many are drawn, one of them is taken
WORDS_KEPT = 200_000


class Recutter:
    """Encodes texts with BPE dropout; the cuts follow from the seed and from the texts asked for so far."""

    def __init__(self, tokenizer: Tokenizer, rate: float, seed: int) -> None:
        self.tokenizer, self.rate = tokenizer, rate
        self.ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges())}
        self.random = random.Random(seed).random
        self.kept: dict[str, list[list[int]]] = {}

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Like `Tokenizer.encode_many`, every time anew."""
        return [[index for word in self.tokenizer.chunks(text) for index in self._cut(word)] for text in texts]

    def _cut(self, word: str) -> list[int]:
        kept = self.kept.get(word)
        if kept is None:
            if len(self.kept) >= WORDS_KEPT:
                self.kept.clear()
            kept = self.kept[word] = []
        if len(kept) == CUTS_KEPT:
            return kept[int(self.random() * CUTS_KEPT)]
        kept.append(self.tokenizer.ids(self.pieces(word)))
        return kept[-1]

    def pieces(self, word: str) -> list[str]:
        """One random cut of a word."""
        pieces = list(word)
        while True:
            best, place = len(self.ranks), -1
            for index in range(len(pieces) - 1):
                rank = self.ranks.get((pieces[index], pieces[index + 1]), best)
                if rank < best and self.random() >= self.rate:
                    best, place = rank, index
            if place < 0:
                return pieces
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]

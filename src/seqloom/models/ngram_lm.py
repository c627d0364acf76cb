"""Counted n-grams behind the same door as networks, so that they can be searched, sampled and measured like these."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqloom.ngrams.model import NGramModel
from seqloom.text.special import BOS_ID, EOS_ID


class NGramLanguageModel:
    """The next word given the few before it, from counts."""

    attends = False
    output = None  # features are log probabilities already

    def __init__(self, ngrams: NGramModel) -> None:
        self.ngrams, self.settings = ngrams, ngrams.settings

    def num_ngrams(self) -> list[int]:
        """How many there are of each order."""
        return self.ngrams.num_ngrams()

    def eval(self) -> NGramLanguageModel:
        return self

    def __call__(
        self, inputs: Tensor, state: Tensor | None = None, lengths: Tensor | None = None, trace: Any = None
    ) -> tuple[Tensor, Tensor]:
        """(rows, time) symbols read -> (rows, time, symbols) log probabilities of the next one; the last few symbols.

        The end of a text is what comes before the next.
        """
        reach = max(1, self.ngrams.order - 1)
        read = inputs.masked_fill(inputs == EOS_ID, BOS_ID)
        before = read.new_full((len(read), reach), -1) if state is None else state
        known = torch.cat([before, read], 1)  # (rows, reach + time)
        contexts = known.unfold(1, reach, 1)[:, 1:]  # (rows, time, reach): each ends with the symbol just read
        begins = (contexts == BOS_ID).int().flip(-1).cumsum(-1).flip(-1) - (contexts == BOS_ID).int()
        contexts = contexts.masked_fill(begins > 0, -1)  # nothing is known from before the last beginning
        found = self.ngrams.next(contexts.flatten(0, 1).numpy())
        return torch.from_numpy(found).float().unflatten(0, contexts.shape[:2]), known[:, -reach:]

"""A causal language model as something that can be searched: it goes on from what stands there already."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.nn.recurrent import select_rows


class PromptState(NamedTuple):
    """Where the text stands; every tensor has a row a hypothesis.

    `recent` (rows, time): what was read, where the model can only look back so far and must begin a new window at
    times; `inner`: the model's own state.
    """

    recent: Tensor | None
    inner: Any

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> PromptState:
        return PromptState(*(select_rows(part, rows) for part in self))


class Continuation:
    """`Stepper` around a causal language model."""

    attends = False

    def __init__(self, model: Any) -> None:
        self.model = model
        # The layer that features go through; None where they are logits already, as those of counted n-grams are.
        self.output: nn.Linear | None = getattr(model, "output", None)
        self.context: int | None = getattr(model.settings, "context", None)

    def start(self, symbols: list[int], rows: int) -> tuple[PromptState, Tensor]:
        """So many rows that all go on from the same symbols -> the state, and the last symbol, which is read next."""
        read = torch.tensor([symbols[:-1]], dtype=torch.long).expand(rows, -1)
        if self.context is not None:
            read = read[:, -(self.context - 1) :] if self.context > 1 else read[:, :0]
        inner = self.model(read)[1] if read.shape[1] else None
        state = PromptState(read if self.context is not None else None, inner)
        return state, torch.full((rows,), symbols[-1])

    def advance(
        self, tokens: Tensor, state: PromptState, *, attention: bool = True
    ) -> tuple[Tensor, PromptState, None]:
        read, (recent, inner) = tokens[:, None], state
        if recent is not None and self.context is not None:
            if recent.shape[1] >= self.context:  # a new window, with half of the old one to look back at
                recent = recent[:, recent.shape[1] - self.context // 2 :]
                inner = self.model(recent)[1] if recent.shape[1] else None
            recent = torch.cat([recent, read], 1)
        features, inner = self.model(read, inner)
        return features[:, 0], PromptState(recent, inner), None

"""A language model as something that can be searched: it goes on from what has been said already."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.batches.collate import SourceBatch
from seqloom.nn.recurrent import select_rows


class PromptState(NamedTuple):
    """Where the text stands; every tensor has a row a hypothesis.

    `pending` (rows,): the last symbol of the prompt, until it has been read; `recent` (rows, time): what was read,
    where the model can only look back so far and must begin a new window at times; `inner`: the model's own state.
    """

    pending: Tensor | None
    recent: Tensor | None
    inner: Any

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> PromptState:
        pending, recent, inner = (select_rows(part, rows) for part in self)
        return PromptState(pending, recent, inner)


class Continuation:
    """`Steppable` around a language model. The source of a batch is all that was said before, of one length."""

    attends = False

    def __init__(self, model: Any) -> None:
        self.model, self.output = model, _output_of(model)
        self.context: int | None = getattr(model.settings, "context", None)

    def start(self, batch: SourceBatch) -> PromptState:
        read, pending = batch.source[:, :-1], batch.source[:, -1]
        if self.context is not None:
            read = read[:, -(self.context - 1) :] if self.context > 1 else read[:, :0]
        inner = self.model(read)[1] if read.shape[1] else None
        return PromptState(pending, read if self.context is not None else None, inner)

    def advance(
        self, tokens: Tensor, state: PromptState, *, attention: bool = True
    ) -> tuple[Tensor, PromptState, None]:
        read = (tokens if state.pending is None else state.pending)[:, None]
        recent, inner = state.recent, state.inner
        if recent is not None and self.context is not None:
            if recent.shape[1] >= self.context:  # a new window, with half of the old one to look back at
                recent = recent[:, recent.shape[1] - self.context // 2 :]
                inner = self.model(recent)[1] if recent.shape[1] else None
            recent = torch.cat([recent, read], 1)
        features, inner = self.model(read, inner)
        return features[:, 0], PromptState(None, recent, inner), None


def _output_of(model: Any) -> nn.Linear | None:
    """The layer that features go through; None where they are logits already, as those of counted n-grams are."""
    found = getattr(model, "output", None)
    assert found is None or isinstance(found, nn.Linear)
    return found


def prompts(symbols: list[int], first: int, rows: int, room: int) -> SourceBatch:
    """So many rows that all go on from the same symbols, each with room for so many more."""
    source = torch.tensor([[first, *symbols]]).expand(rows, -1)
    return SourceBatch(source, torch.full((rows,), room))

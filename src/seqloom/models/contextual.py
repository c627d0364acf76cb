"""Which language model reads the source beside a translator, said in its settings."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from seqloom.batches.collate import SourceBatch
from seqloom.nn.contextual import ContextualVectors
from seqloom.settings import Settings


class ContextualSettings(Settings):
    """Vectors of words in their context, added to the source embeddings. A finished model has all of it inside."""

    source: str = Field(
        min_length=1, description="run or model folder of a bidirectional_lm or masked_lm of the source language"
    )
    freeze: bool = Field(True, description="the language model stays as it is; false: it learns along")


def contextual_vectors(
    settings: ContextualSettings | None, reader: nn.Module | None, size: int
) -> ContextualVectors | None:
    """The part of a model that its settings ask for, around the language model that they name."""
    assert (settings is None) == (reader is None), "the task brings the language model that settings name, and no other"
    if settings is None or reader is None:
        return None
    return ContextualVectors(reader, size=size, freeze=settings.freeze)


def with_context(embedded: Tensor, contextual: ContextualVectors | None, batch: SourceBatch) -> Tensor:
    """(batch, source, size) embeddings of the source, and added to each what the language model makes of its word."""
    if contextual is None:
        return embedded
    read = batch.context
    assert read is not None, "the task reads every source twice"
    return embedded + contextual(read.symbols, read.lengths, read.first, read.last)

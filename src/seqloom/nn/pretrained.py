"""Embeddings that start from vectors learned elsewhere, and rows of them that stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.errors import UserError

WORD_START = "▁"


class Vectors(Protocol):
    """What is needed of word vectors."""

    @property
    def size(self) -> int: ...

    @property
    def index(self) -> Mapping[str, int]: ...

    def knows(self, word: str) -> bool: ...

    def vector(self, word: str) -> np.ndarray: ...


class Filled(NamedTuple):
    """How many rows were set, of how many that stand for text; and which."""

    found: int
    total: int
    rows: Tensor


@torch.no_grad()
def fill_embedding(weight: Tensor, pieces: Sequence[str], vectors: Vectors) -> Filled:
    """Set the rows of an embedding whose symbols have a vector; the others keep their random start.

    A symbol is looked up without the mark of a word's beginning (▁), then in lower case, then by its pieces where the
    vectors have any. All vectors are multiplied by the same number, so that the rows set have on average the length of
    those that were there: angles stay, and the model sees numbers of the size it was made for.

    Args:
        weight: (symbols, size), changed in place.
        pieces: The text of each symbol; an empty one stands for none and is left alone.
        vectors: Of the same size.

    Raises:
        UserError: The sizes differ, or no symbol has a vector.
    """
    assert len(pieces) == len(weight), f"{len(pieces)} symbols, {len(weight)} rows"
    size = weight.shape[1]
    if vectors.size != size:
        raise UserError(
            f"the vectors have {vectors.size} numbers, the embedding {size}: give the model the size {vectors.size}, "
            f"or take vectors of {size}"
        )
    words = {row: _spelled(piece.removeprefix(WORD_START), vectors) for row, piece in enumerate(pieces)}
    found = {row: vectors.vector(word) for row, word in words.items() if word is not None}
    total = sum(bool(piece.removeprefix(WORD_START)) for piece in pieces)
    if not found:
        raise UserError(f"none of {total:,} symbols has a vector: are the vectors of this language and of this case?")
    rows = torch.tensor(list(found), dtype=torch.int64)
    values = torch.from_numpy(np.stack(list(found.values())).astype(np.float32))
    own, theirs = (float(table.square().sum(1).mean().sqrt()) for table in (weight[rows], values))
    weight[rows] = values * (own / theirs) if theirs > 0 else values
    return Filled(len(rows), total, rows)


def _spelled(word: str, vectors: Vectors) -> str | None:
    """The word as the vectors know it, or None."""
    if not word:
        return None
    for spelling in (word, word.lower()):
        if spelling in vectors.index:
            return spelling
    return word if vectors.knows(word) else None


def freeze_rows(embedding: nn.Module, rows: Tensor) -> None:
    """Let rows of an embedding's weight have no gradient; `keep_frozen_rows` keeps them from everything else."""
    weight = embedding.weight
    assert isinstance(weight, Tensor)

    def silence(table: Tensor) -> None:
        assert table.grad is not None
        table.grad.index_fill_(0, rows, 0.0)

    weight.register_post_accumulate_grad_hook(silence)
    embedding.frozen_rows = rows


def keep_frozen_rows(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put frozen rows back after every step: weight decay and momentum change a row that has no gradient, too."""
    parts: list[Any] = [part for part in model.modules() if getattr(part, "frozen_rows", None) is not None]
    frozen: list[tuple[Tensor, Tensor]] = [(part.weight, part.frozen_rows) for part in parts]
    if not frozen:
        return
    kept: list[Tensor] = []

    @torch.no_grad()
    def before(*_: Any) -> None:
        kept[:] = [weight[rows].clone() for weight, rows in frozen]

    @torch.no_grad()
    def after(*_: Any) -> None:
        for (weight, rows), values in zip(frozen, kept, strict=True):
            weight[rows] = values

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)

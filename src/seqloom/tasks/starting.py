"""Embeddings that start from vectors which somebody has learned already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqloom.corpus.lines import expand_path
from seqloom.errors import UserError
from seqloom.nn.pretrained import fill_embedding, freeze_rows
from seqloom.text.special import SPECIAL
from seqloom.text.tokenizers import Tokenizer
from seqloom.vectors.opening import open_vectors


def start_embedding(
    embedding: Any, tokenizer: Tokenizer, path: str, side: str, *, freeze: bool, told: Callable[[str], None]
) -> None:
    """Set the rows of symbols that have a vector in a file; `freeze` keeps these rows as they are."""
    pieces = tokenizer.pieces(range(len(tokenizer)))
    pieces[: len(SPECIAL)] = [""] * len(SPECIAL)  # they stand for no text
    vectors = open_vectors(expand_path(path), told=told)
    try:
        filled = fill_embedding(embedding.weight, pieces, vectors)
    except UserError as error:
        raise UserError(f"model.pretrained.{side} ({path}): {error}") from None
    if freeze:
        freeze_rows(embedding, filled.rows)
    kept = " and keep it" if freeze else ""
    told(f"{filled.found:,} of {filled.total:,} {side} symbols have a vector in {path}{kept}")

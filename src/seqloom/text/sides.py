"""The tokenizers of both sides of a pair: their files, and the road from an answer's symbols to natural text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.text.special import UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.words import split_words

if TYPE_CHECKING:
    import numpy as np


def save_sides(folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """One file where both sides are one tokenizer, else two."""
    for name, side in sides_by_file(source, target).items():
        side.save(folder / name)


def sides_by_file(source: Tokenizer, target: Tokenizer) -> dict[str, Tokenizer]:
    """Which file is which tokenizer's."""
    if source is target:
        return {"tokenizer.json": source}
    return {"tokenizer.source.json": source, "tokenizer.target.json": target}


def load_sides(folder: Path, known: Mapping[str, Any] | None = None) -> tuple[Tokenizer, Tokenizer]:
    """What `save_sides` wrote: source, target. `known` has their settings by file, where nothing must be checked."""

    def load(name: str) -> Tokenizer:
        path = folder / name
        return Tokenizer.load(path) if known is None else Tokenizer.as_saved(path.read_bytes(), known[name])

    if (folder / "tokenizer.json").is_file():
        both = load("tokenizer.json")
        return both, both
    return load("tokenizer.source.json"), load("tokenizer.target.json")


def natural_text(
    text: str, tokens: Sequence[int], attention: np.ndarray | None, source: Tokenizer, target: Tokenizer
) -> str:
    """An answer as text; an unknown symbol becomes the source word it was looking at, where attention tells.

    Args:
        text: what was asked.
        tokens: what was answered.
        attention: (tokens or more, source symbols or more), or None.
        source: the tokenizer of the question.
        target: the tokenizer of the answer.
    """
    if attention is None or UNK_ID not in tokens:
        return target.decode(tokens)
    words, of_piece = split_words(text), source.encode_detailed(text).words
    replacements = {}
    for position in (i for i, token in enumerate(tokens) if token == UNK_ID):
        best = int(attention[position, : len(of_piece)].argmax())  # never the end symbol
        replacements[position] = words[of_piece[best]]
    return target.decode(tokens, replacements)

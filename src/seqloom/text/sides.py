"""The tokenizers of both sides of a pair: their files, and the road from an answer's symbols to natural text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.text.special import UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.words import split_words

if TYPE_CHECKING:
    import numpy as np


def save_sides(folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """One file where both sides are one tokenizer, else two."""
    if source is target:
        source.save(folder / "tokenizer.json")
    else:
        source.save(folder / "tokenizer.source.json")
        target.save(folder / "tokenizer.target.json")


def load_sides(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """What `save_sides` wrote: source, target."""
    if (folder / "tokenizer.json").is_file():
        both = Tokenizer.load(folder / "tokenizer.json")
        return both, both
    return Tokenizer.load(folder / "tokenizer.source.json"), Tokenizer.load(folder / "tokenizer.target.json")


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

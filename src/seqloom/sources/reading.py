"""A language model that reads a source beside an encoder: which pieces get its vectors, how both cuts of a text meet.

The language model keeps its own tokenizer. A piece of the other model is given the mean of the vectors of all pieces
that the language model cuts the same word into; the end is given that of the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seqloom.settings import ModelSettings
from seqloom.sources.running_text import RunningText
from seqloom.text.spans import pieces_of_words
from seqloom.text.tokenizers import Tokenizer


class Read(NamedTuple):
    """A text for the language model, beginning and end included, and from where to where each piece looks at it."""

    symbols: list[int]
    places: list[int]  # from, to, from, to, …: one pair for each piece of the other tokenizer, one for the end


@dataclass(frozen=True)
class Beside:
    """A language model's way of reading, and the settings to build it by."""

    text: RunningText
    settings: ModelSettings

    @property
    def num_symbols(self) -> int:
        return len(self.text.tokenizer)

    def key(self) -> str:
        """What its encoded texts depend on."""
        return self.text.tokenizer.to_json()

    def read(self, text: str, pieces: Tokenizer) -> Read:
        """A text as the language model reads it, and where the pieces of the other tokenizer find their words."""
        own = self.text.tokenizer.encode_detailed(text)
        end = self.text.first  # between two texts there is one symbol, an end and a beginning
        ranges = pieces_of_words(text, pieces.encode_detailed(text), own)
        places = [(first + 1, last + 1) if last else (0, 0) for first, last in ranges]  # after the beginning
        places.append((len(own.ids) + 1, len(own.ids) + 2))
        return Read([end, *own.ids, end], [number for pair in places for number in pair])

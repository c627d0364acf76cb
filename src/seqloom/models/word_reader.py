"""How words enter an encoder: a vector of the word's own, and beside it one that is made of its letters; CHARACTERS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from seqloom.nn.characters import CharacterEncoder
from seqloom.nn.dropout import WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.masks import length_mask
from seqloom.nn.spelling_lstm import RecurrentCharacterEncoder
from seqloom.settings import ModelSettings, one_of_kinds
from seqloom.text.special import UNK_ID


class ConvolutionalLettersSettings(ModelSettings):
    """Letters read by filters (Ma & Hovy 2016)."""

    kind: Literal["cnn"] = "cnn"
    size: int = Field(30, ge=1, le=4096, description="of what the letters add to a word's vector")
    letter_size: int = Field(25, ge=1, le=1024, description="of a letter's vector")
    width: int = Field(3, ge=1, le=20, description="neighbouring letters that a filter looks at")

    def build(self, num_letters: int) -> nn.Module:
        return CharacterEncoder(
            num_letters=num_letters,
            letter_size=self.letter_size,
            filters=[(self.width, self.size)],
            num_highways=0,
            size=self.size,
        )


class RecurrentLettersSettings(ModelSettings):
    """Letters read by an LSTM from both ends (Lample et al. 2016)."""

    kind: Literal["lstm"] = "lstm"
    size: int = Field(50, ge=2, le=4096, description="of what the letters add to a word's vector, both ends together")
    letter_size: int = Field(25, ge=1, le=1024, description="of a letter's vector")

    @field_validator("size")
    @classmethod
    def _halves(cls, size: int) -> int:
        if size % 2:
            raise ValueError(f"must be even, for two directions; got {size}")
        return size

    def build(self, num_letters: int) -> nn.Module:
        return RecurrentCharacterEncoder(num_letters=num_letters, letter_size=self.letter_size, size=self.size)


CHARACTERS: dict[str, tuple[type[ModelSettings], Any]] = {
    "cnn": (ConvolutionalLettersSettings, CharacterEncoder),
    "lstm": (RecurrentLettersSettings, RecurrentCharacterEncoder),
}
if TYPE_CHECKING:
    LettersSettings = Any
else:
    LettersSettings = one_of_kinds(CHARACTERS)


class WordReader(nn.Module):
    """Words -> vectors of `size`: the word's own, and where letters are read, what these say of it beside that."""

    def __init__(
        self,
        *,
        num_symbols: int,
        num_letters: int,
        size: int,
        characters: LettersSettings | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.from_letters = 0 if characters is None else characters.size
        self.embedding = SymbolEmbedding(num_symbols, size - self.from_letters)
        self.word_dropout = WordDropout(word_dropout)
        self.characters: nn.Module | None = None if characters is None else characters.build(num_letters)

    def forward(self, words: Any) -> Tensor:
        """-> (batch, time, size). A word that dropout leaves out is read as an unknown one, which still has letters."""
        embedded: Tensor = self.embedding(self.word_dropout(words.ids, UNK_ID))
        if self.characters is None:
            return embedded
        spelled = length_mask(words.lengths - 1, words.ids.shape[1])  # the end has no letters
        found = self.characters(words.letters[spelled])
        letters = found.new_zeros(*words.ids.shape, self.from_letters)
        letters[spelled] = found
        return torch.cat([embedded, letters], -1)

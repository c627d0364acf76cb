"""The choices a user has about how text is cut into tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqloom.settings import Settings


class TextSettings(Settings):
    """How text is cut into tokens.

    Attributes:
        tokenizer: the kind of token.
        vocabulary_size: all tokens, the 4 reserved ones included; None keeps all words or characters.
        min_frequency: words and characters rarer than this are unknown; BPE merges no pair rarer than this.
        joint: one tokenizer for both languages of a pair.
        normalise: the Unicode form of the text.
        lowercase: whether case is dropped.
        dropout: for BPE, the chance that two pieces of a training text stay apart that are else glued together.
        segmentations: with dropout, how many times the training texts are cut, each time in another way.
    """

    tokenizer: Literal["word", "spaces", "character", "verbatim", "bpe", "unigram"] = "bpe"
    vocabulary_size: int | None = Field(default=8000, ge=8)
    min_frequency: int = Field(default=1, ge=1)
    joint: bool = True
    normalise: Literal["nfc", "nfkc", "none"] = "nfc"
    lowercase: bool = False
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    segmentations: int = Field(default=16, ge=1, le=1000)

    @model_validator(mode="after")
    def _consistent(self) -> TextSettings:
        if self.vocabulary_size is None and self.tokenizer in ("bpe", "unigram"):
            raise ValueError(
                f"tokenizer {self.tokenizer} needs a vocabulary_size, such as 8000; only words and characters "
                "can all be kept"
            )
        if self.min_frequency > 1 and self.tokenizer == "unigram":
            raise ValueError("min_frequency does nothing for tokenizer unigram; remove it or choose bpe")
        if self.dropout and self.tokenizer != "bpe":
            raise ValueError(f"dropout is for tokenizer bpe and does nothing for {self.tokenizer}; remove it")
        return self

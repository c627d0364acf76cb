"""The choices a user has about how text is cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from seqloom.settings import Settings


class TextSettings(Settings):
    """How text is cut into tokens.

    Attributes:
        tokenizer: the kind of token.
        vocabulary_size: all tokens, the 4 reserved ones included; None keeps all words or characters.
        min_frequency: words and characters rarer than this are unknown; BPE merges no pair rarer than this.
        whole: for characters, a regular expression of what stays one token, within what stands between two spaces.
        normalise: the Unicode form of the text.
        lowercase: whether case is dropped.
        dropout: for BPE, the chance that two pieces of a training text stay apart that are else glued together.
        segmentations: with dropout, how many times the training texts are cut, each time in another way.
    """

    tokenizer: Literal["word", "spaces", "character", "verbatim", "bpe", "unigram"] = "bpe"
    vocabulary_size: int | None = Field(default=8000, ge=8)
    min_frequency: int = Field(default=1, ge=1)
    whole: str | None = Field(default=None, min_length=1, max_length=200)
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
        if self.whole is not None:
            if self.tokenizer != "character":
                raise ValueError(f"whole is for tokenizer character and does nothing for {self.tokenizer}; remove it")
            from tokenizers import Regex  # most texts need none, and the library is large

            try:
                matches_nothing = re.compile(self.whole).match("") is not None
                Regex(self.whole)  # what Python understands and the library does not
            except Exception as error:  # the library raises nothing narrower
                raise ValueError(f"whole must be a regular expression; got {self.whole!r}: {error}") from None
            if matches_nothing:
                raise ValueError(f"whole must match at least one character; got {self.whole!r}")
        if self.dropout and self.tokenizer != "bpe":
            raise ValueError(f"dropout is for tokenizer bpe and does nothing for {self.tokenizer}; remove it")
        return self


SIDES = ("source", "target")


class PairTextSettings(TextSettings):
    """How both sides of a pair are cut: in one way, or each side with settings of its own beside the common ones.

    Attributes:
        joint: one tokenizer for both sides (default: where neither side has settings of its own).
        source: what is different for the source.
        target: what is different for the target.
    """

    joint: bool = True
    source: TextSettings | None = None
    target: TextSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _each_side(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        own = {side: values[side] for side in SIDES if isinstance(values.get(side), Mapping)}
        common = {name: value for name, value in values.items() if name not in ("joint", "source", "target")}
        merged = {side: {**common, **settings} for side, settings in own.items()}
        if len(own) == 2:  # what is common is then of no side, and need not make sense by itself
            common = merged["source"]
        return {**common, "joint": values.get("joint", not own), **{s: values.get(s) for s in SIDES}, **merged}

    @model_validator(mode="after")
    def _one_or_two(self) -> PairTextSettings:
        if self.joint and self.side("source") != self.side("target"):
            raise ValueError("joint: true gives both sides one tokenizer, but their settings differ: leave joint out")
        return self

    def side(self, name: Literal["source", "target"]) -> TextSettings:
        """The settings of one side."""
        own = self.source if name == "source" else self.target
        common = {field: getattr(self, field) for field in TextSettings.model_fields}
        return TextSettings(**common) if own is None else own

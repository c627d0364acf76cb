"""How well a text was foreseen: perplexity a word and bits a character, whatever symbols the model reads.

A model over pieces or characters has more symbols to foresee, each easier than a word, so its perplexity a symbol says
nothing beside that of a model over words. The probability of the whole text does: it is divided by the same number of
words and of characters for every model. The end of a line counts as one word and as one character.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seqloom.evaluation.figures import Report

MOST_NATS = 50.0  # a perplexity above exp(50) is shown as that


@dataclass(frozen=True)
class TextSize:
    """Of a text, as a reader counts: words between spaces, characters with runs of spaces as one."""

    lines: int
    words: int
    characters: int

    @classmethod
    def of(cls, lines: Iterable[str]) -> TextSize:
        count = words = characters = 0
        for line in lines:
            found = line.split()
            count, words, characters = count + 1, words + len(found), characters + len(" ".join(found))
        return cls(count, words + count, characters + count)

    @classmethod
    def verbatim(cls, parts: Iterable[str]) -> TextSize:
        """Of a text that is foreseen character by character, spaces and line breaks as they are."""
        breaks = words = characters = 0
        for part in parts:
            words, characters = words + len(part.split()), characters + len(part)
            breaks += part.count("\n")
        return cls(breaks, words + breaks, characters)


@dataclass(frozen=True)
class LanguageReport(Report):
    """What a model made of a text: `nll` is minus the log probability of all of it, in nats."""

    name: str
    nll: float
    symbols: int
    unknown: int
    size: TextSize
    reading: str

    @property
    def loss(self) -> float:
        """Nats a symbol."""
        return self.nll / self.symbols

    @property
    def perplexity(self) -> float:
        """A word, ends of lines included."""
        return math.exp(min(MOST_NATS, self.nll / self.size.words))

    @property
    def symbol_perplexity(self) -> float:
        return math.exp(min(MOST_NATS, self.loss))

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / self.size.characters

    @property
    def figures(self) -> dict[str, float]:
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
        }

    @property
    def coverage(self) -> dict[str, int]:
        return {"unknown words": self.unknown}

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "perplexity": self.perplexity,
            "bits_per_character": self.bits_per_character,
            "loss": self.loss,
            "symbol_perplexity": self.symbol_perplexity,
            "symbols": self.symbols,
            "unknown": self.unknown,
            "lines": self.size.lines,
            "words": self.size.words,
            "characters": self.size.characters,
            "reading": self.reading,
        }

    def render(self) -> str:
        rows = [
            ("perplexity", f"{self.perplexity:.2f}", f"a word; {self.size.words:,} of them, ends of lines included"),
            ("bits", f"{self.bits_per_character:.3f}", f"a character; {self.size.characters:,} of them"),
            (
                "loss",
                f"{self.loss:.4f}",
                f"nats a symbol; {self.symbols:,} of them, perplexity a symbol {self.symbol_perplexity:.2f}",
            ),
        ]
        if self.unknown:
            share = f"{100 * self.unknown / self.symbols:.1f} % of the symbols are unknown words"
            rows.append(("unknown", f"{self.unknown:,}", f"{share}: compare only with models that know the same words"))
        lines = [f"{title:<11} {figure:>9}  {about}" for title, figure, about in rows]
        return "\n".join([f"{self.name}: read {self.reading}", *lines])


@dataclass(frozen=True)
class LastSymbolReport(Report):
    """What a model made of the last symbols of lines, where nothing else was asked for.

    `nll` is minus the log probability of all of them, in nats; `right` counts those that it found the likeliest.
    """

    name: str
    nll: float
    asked: int
    right: int

    @property
    def loss(self) -> float:
        """Nats a symbol that was asked for."""
        return self.nll / self.asked

    @property
    def perplexity(self) -> float:
        return math.exp(min(MOST_NATS, self.loss))

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100.0 * self.right / self.asked

    @property
    def figures(self) -> dict[str, float]:
        return {"loss": self.loss, "perplexity": self.perplexity, "accuracy": self.accuracy}

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **self.figures, "symbols": self.asked, "reading": "the last symbol of each line"}

    def render(self) -> str:
        rows = [
            ("accuracy", f"{self.accuracy:.2f} %", f"{self.right:,} of {self.asked:,} were the likeliest"),
            ("loss", f"{self.loss:.4f}", f"nats a symbol, perplexity {self.perplexity:.2f}"),
        ]
        lines = [f"{title:<11} {figure:>9}  {about}" for title, figure, about in rows]
        return "\n".join([f"{self.name}: asked for the last symbol of each line", *lines])


@dataclass(frozen=True)
class ScoredLine:
    """How likely a line is: `tokens` are its symbols and its end, with a log probability each."""

    text: str
    tokens: list[str] = field(repr=False)
    token_log_probabilities: list[float] = field(repr=False)
    size: TextSize

    @property
    def log_probability(self) -> float:
        return sum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """A word, the end of the line included."""
        return math.exp(min(MOST_NATS, -self.log_probability / self.size.words))

    @property
    def bits_per_character(self) -> float:
        return -self.log_probability / math.log(2) / self.size.characters

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "log_probability": round(self.log_probability, 6),
            "perplexity": round(self.perplexity, 6),
            "bits_per_character": round(self.bits_per_character, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
        }

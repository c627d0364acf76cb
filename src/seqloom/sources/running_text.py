"""Running text: files and folders read line by line, for models of what stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.batches.shards import Field, Sequences, write_shard
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines, read_parts
from seqloom.errors import UserError
from seqloom.evaluation.language import TextSize
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID
from seqloom.text.tokenizers import Tokenizer

FILE = "tokenizer.json"


@dataclass(frozen=True)
class RunningText:
    """The road from running text to symbols and back."""

    tokenizer: Tokenizer

    @classmethod
    def learn(cls, corpus: PlainTextSettings, text: TextSettings) -> RunningText:
        """Learn the vocabulary from the training text."""
        texts = read_parts(corpus) if text.tokenizer == "verbatim" else read_lines(corpus)
        return cls(Tokenizer.train(texts, text))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> RunningText:
        return cls(Tokenizer.load(folder / FILE))

    @property
    def verbatim(self) -> bool:
        """Whether line breaks are symbols like others; else every line ends with EOS."""
        return self.tokenizer.kind == "verbatim"

    @property
    def first(self) -> int:
        """What is read before the first symbol of a text: the end of another one."""
        return self.tokenizer.encode("\n")[0] if self.verbatim else EOS_ID

    def texts(self, corpus: PlainTextSettings) -> Iterator[str]:
        """The text as it is encoded, a line at a time."""
        return read_parts(corpus) if self.verbatim else read_lines(corpus)

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """The symbols of each line, its end included."""
        found = self.tokenizer.encode_many(lines)
        return found if self.verbatim else [[*ids, EOS_ID] for ids in found]

    def encode(self, corpus: PlainTextSettings) -> Sequences:
        """The text as numbers, line by line and all in a row, from the cache where it was encoded before."""
        key = "\n".join(["language", fingerprint(corpus), self.tokenizer.to_json()])
        examples = ((line,) for line in self.texts(corpus))
        return write_shard(examples, {"text": Field(self.encode_lines, size=len(self.tokenizer))}, key)["text"]

    def encode_something(self, corpus: PlainTextSettings) -> Sequences:
        """The same of a text that must not be empty."""
        lines = self.encode(corpus)
        if not len(lines.tokens):
            raise UserError(f"{describe(corpus)}: there is no text in it")
        return lines

    def size(self, corpus: PlainTextSettings) -> TextSize:
        return TextSize.verbatim(read_parts(corpus)) if self.verbatim else TextSize.of(read_lines(corpus))

    def sizes(self, settings: Any) -> dict[str, Any]:
        """What a model with these settings must know of the vocabulary."""
        num_symbols = len(self.tokenizer)
        if getattr(settings, "characters", None) is None:
            return {"num_symbols": num_symbols}
        return {"num_symbols": num_symbols, "pieces": self.tokenizer.pieces(range(num_symbols))}

    def describe_vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} symbols ({self.tokenizer.kind})"

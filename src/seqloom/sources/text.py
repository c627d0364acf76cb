"""Text as a source: a tokenizer, and where one is wanted a language model that reads every text beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.batches.collate import Tokens, collate_context, collate_sources, collate_subwords
from seqloom.batches.shards import Field
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.evaluation.text_baseline import TextBaseline
from seqloom.sources.reading import Beside, Read
from seqloom.sources.word_pieces import WordPieces
from seqloom.text.recutting import Recutter
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.unknown import warnings_about
from seqloom.training.progress import Progress as Bar
from seqloom.vectors.settings import SubwordSettings

FILE = "tokenizer.json"
PLACES = 2**32  # a place may be anywhere in a line


@dataclass(frozen=True)
class TextSource:
    """Texts as symbols, each with an end."""

    tokenizer: Tokenizer
    beside: Beside | None = None
    subwords: SubwordSettings | None = None
    ends = 1
    is_text = True

    @classmethod
    def learn(cls, corpus: CorpusSettings, settings: TextSettings) -> TextSource:
        """The vocabulary of the sources of a corpus."""
        return cls(Tokenizer.train((pair.source for pair in read_pairs(corpus)), settings))

    def save(self, folder: Path) -> dict[str, Any]:
        self.tokenizer.save(folder / FILE)
        return {"symbols": {"text": len(self.tokenizer)}}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> TextSource:
        return cls(Tokenizer.load(folder / FILE))

    def sizes(self) -> dict[str, int]:
        return {"num_symbols": len(self.tokenizer)}

    def vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} symbols ({self.tokenizer.kind})"

    def key(self) -> str:
        beside = "" if self.beside is None else self.beside.key()
        subwords = [] if self.subwords is None else [self.subwords.model_dump_json()]
        return "\n".join([self.tokenizer.to_json(), beside, *subwords])

    def kept(self) -> dict[str, Any]:
        """What must be known besides the tokenizer to read texts in the same way."""
        return {} if self.subwords is None else {"subwords": self.subwords.model_dump()}

    def fields(self, recut: int | None = None) -> dict[str, Field]:
        """`recut`: a seed, to cut words of training texts into other pieces each time (BPE dropout)."""
        encode = self.tokenizer.encode_many
        if recut is not None:
            encode = Recutter(self.tokenizer, self.tokenizer.settings.dropout, recut).encode_many
        found = {"ids": Field(encode, size=len(self.tokenizer))}
        if self.beside is not None:
            both = _ReadOnce(self.beside, self.tokenizer)
            found["symbols"] = Field(both.symbols, size=self.beside.num_symbols)
            found["places"] = Field(both.places, size=PLACES)
        if self.subwords is not None:
            pieces = WordPieces(self.tokenizer, self.subwords)
            found["pieces"] = Field(pieces.rows, size=self.subwords.buckets + 1)
            found["piece_counts"] = Field(pieces.counts, size=PLACES)
        return found

    def encode(self, raw: Sequence[str]) -> dict[str, list[Any]]:
        return {name: list(field.encode(raw)) for name, field in self.fields().items()}

    def unknown_rate(self, raw: Sequence[str]) -> tuple[int, int]:
        """How many symbols of texts are unknown, and how many there are."""
        return self.tokenizer.unknown_rate(raw)

    def warnings(self, raw: str) -> list[str]:
        """What somebody should know before believing an answer to a text."""
        return warnings_about(raw, self.tokenizer)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Tokens:
        context = None if self.beside is None else collate_context(rows["symbols"], rows["places"])
        subwords = None if self.subwords is None else collate_subwords(rows["pieces"], rows["piece_counts"])
        return collate_sources(rows["ids"], context, subwords)

    def batch(self, texts: Sequence[str]) -> Tokens:
        """Raw texts -> what an encoder reads."""
        return self.collate(self.encode(texts))

    def shown(self, raw: str) -> str:
        return raw

    def inputs(self, given: Sequence[str]) -> list[str]:
        return list(given)

    def baseline(self, sources: Sequence[str], labels: Sequence[str], asked: Sequence[str]) -> tuple[str, list[str]]:
        """TF-IDF and logistic regression."""
        name = "TF-IDF + logistic regression"
        with Bar(name) as bar:
            linear = TextBaseline.fit(list(sources), list(labels), lambda share: bar.update(share, ""))
        return name, linear.predict(list(asked))

    def labels(self, raw: str) -> list[str]:
        return [*self.tokenizer.labels_of(raw), EOS]

    def is_empty(self, raw: str) -> bool:
        return not self.tokenizer.encode(raw)


class _ReadOnce:
    """Texts as the language model reads them, and their places: asked for one after the other, read once."""

    def __init__(self, beside: Beside, pieces: Tokenizer) -> None:
        self.beside, self.pieces = beside, pieces
        self.last: list[Read] = []

    def symbols(self, texts: Sequence[str]) -> list[list[int]]:
        self.last = [self.beside.read(text, self.pieces) for text in texts]
        return [one.symbols for one in self.last]

    def places(self, texts: Sequence[str]) -> list[list[int]]:
        assert len(texts) == len(self.last), "a shard asks for one field of a chunk after the other"
        return [one.places for one in self.last]

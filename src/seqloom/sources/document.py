"""A document as a source: sentences of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.collate import padded
from seqloom.batches.shards import Field
from seqloom.sources.text import TextSource
from seqloom.text.sentences import SentenceSettings, split_sentences
from seqloom.text.special import EOS, EOS_ID
from seqloom.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Sentences:
    """Documents that are read: all their sentences one below the other.

    `ids` (sentences, words) ending in EOS, `lengths` (sentences,); `counts` (documents,): how many sentences each has.
    """

    ids: Tensor
    lengths: Tensor
    counts: Tensor

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> Sentences:
        return Sentences(*(torch.cat([tensor, tensor]) for tensor in (self.ids, self.lengths, self.counts)))

    def part(self, rows: slice) -> Sentences:
        number = torch.arange(len(self.counts)).repeat_interleave(self.counts)
        chosen = torch.zeros(len(self.counts), dtype=torch.bool)
        chosen[rows] = True
        kept = chosen[number]
        lengths = self.lengths[kept]
        width = int(lengths.max()) if len(lengths) else 0
        return Sentences(self.ids[kept, :width], lengths, self.counts[rows])


@dataclass(frozen=True)
class DocumentSource:
    """Documents as sentences of symbols, each with an end; one without any word is one sentence that only ends."""

    tokenizer: Tokenizer
    settings: SentenceSettings
    ends = 0  # they are in the rows already
    is_text = True

    def save(self, folder: Path) -> dict[str, Any]:
        return TextSource(self.tokenizer).save(folder)

    def sizes(self) -> dict[str, int]:
        return TextSource(self.tokenizer).sizes()

    def vocabulary(self) -> str:
        return TextSource(self.tokenizer).vocabulary()

    def shown(self, raw: str) -> str:
        return raw

    def inputs(self, given: Sequence[str]) -> list[str]:
        return list(given)

    def baseline(self, sources: Sequence[str], labels: Sequence[str], asked: Sequence[str]) -> tuple[str, list[str]]:
        return TextSource(self.tokenizer).baseline(sources, labels, asked)

    def key(self) -> str:
        return "\n".join([self.tokenizer.to_json(), self.settings.model_dump_json()])

    def kept(self) -> dict[str, Any]:
        return {"sentences": self.settings.model_dump()}

    def fields(self) -> dict[str, Field]:
        return {"sentences": Field(self.sentences, size=len(self.tokenizer), depth=2)}

    def sentences(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The symbols of every sentence of every text."""
        s, found = self.settings, []
        for text in texts:
            room = s.longest - 1
            cut = [
                [*ids[start : start + room], EOS_ID]
                for ids in self.tokenizer.encode_many(split_sentences(text, s.split))
                for start in range(0, len(ids), room)
            ]
            found.append(cut[: s.most] or [[EOS_ID]])
        return found

    def encode(self, raw: Sequence[str]) -> dict[str, list[Any]]:
        return {"sentences": self.sentences(raw)}

    def unknown_rate(self, raw: Sequence[str]) -> tuple[int, int]:
        """How many symbols of texts are unknown, and how many there are."""
        return self.tokenizer.unknown_rate(raw)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Sentences:
        documents = rows["sentences"]
        flat = [sentence for document in documents for sentence in document]
        lengths = torch.tensor([len(sentence) for sentence in flat], dtype=torch.long)
        counts = torch.from_numpy(np.fromiter(map(len, documents), np.int64, len(documents)))
        return Sentences(padded(flat), lengths, counts)

    def batch(self, texts: Sequence[str]) -> Sentences:
        """Raw texts -> what a model reads."""
        return self.collate(self.encode(texts))

    def parts(self, raw: str) -> list[list[str]]:
        """The words of each sentence, as they are shown."""
        [document] = self.sentences([raw])
        return [[*self.tokenizer.labels(sentence[:-1]), EOS] for sentence in document]

    def labels(self, raw: str) -> list[str]:
        return [word for sentence in self.parts(raw) for word in sentence]

    def is_empty(self, raw: str) -> bool:
        return self.sentences([raw]) == [[[EOS_ID]]]

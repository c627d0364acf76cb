"""Any encoder, and for each word a score of every tag; a linear chain may judge each tag beside its neighbour."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.models.encoders import ENCODERS, EncoderSettings
from seqloom.models.settings import TextVectorsSettings
from seqloom.models.turn_reader import TurnReader
from seqloom.models.word_reader import LettersSettings, WordReader
from seqloom.nn.crf import Chain, LinearChain
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.settings import ModelSettings


class TaggerSettings(ModelSettings):
    """Settings of the tagger."""

    kind: Literal["tagger"] = "tagger"
    encoder: EncoderSettings
    output: Literal["crf", "softmax"] = Field(
        "crf", description="crf: the tags of a text are judged together; softmax: each for itself"
    )
    characters: LettersSettings | None = Field(
        None, description="a part of every word's vector is made of its letters; what remains is the word's own"
    )
    turns: EncoderSettings | None = Field(
        None, description="a source is a list of texts, such as the turns of a conversation; this encoder reads each"
    )
    word_dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="share of words that training reads as unknown ones; their letters stay"
    )
    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the words' own start from")

    @model_validator(mode="after")
    def _fits(self) -> TaggerSettings:
        size = self.encoder.embedding_size
        if self.characters is not None and self.characters.size >= size:
            raise ValueError(
                f"characters.size is a part of the {size} numbers of a word's vector; it must be below that; "
                f"got {self.characters.size}"
            )
        if self.turns is not None and self.characters is not None:
            raise ValueError("characters are of words that are tagged; with turns there are none: leave one out")
        if self.turns is not None and self.turns.memory.size != size:
            raise ValueError(
                f"turns gives vectors of {self.turns.memory.size}, but the encoder above reads vectors of {size}: make "
                "them equal"
            )
        return self


class Scores(NamedTuple):
    """`tags` (batch, time, tags), at the end of a source too, which has none; `labels` (batch, labels) or None."""

    tags: Tensor
    labels: Tensor | None


class Tagger(nn.Module):
    """Encoder, and one product with a weight vector a tag for every word; another for a label of the whole text."""

    attends = False

    def __init__(
        self, settings: TaggerSettings, *, num_symbols: int, num_letters: int, num_tags: int, num_labels: int = 0
    ) -> None:
        super().__init__()
        s = self.settings = settings
        reader: nn.Module = WordReader(
            num_symbols=num_symbols,
            num_letters=num_letters,
            size=(s.turns or s.encoder).embedding_size,
            characters=s.characters,
            word_dropout=s.word_dropout,
        )
        if s.turns is not None:
            reader = TurnReader(ENCODERS[s.turns.kind][1](s.turns, reader))
        self.encoder: Any = ENCODERS[s.encoder.kind][1](s.encoder, reader)
        self.output = nn.Linear(s.encoder.memory.size, num_tags)
        nn.init.zeros_(self.output.bias)
        self.label = nn.Linear(s.encoder.memory.size, num_labels) if num_labels else None
        self.neighbours = LinearChain(num_tags) if s.output == "crf" else None

    @property
    def embeddings(self) -> dict[str, SymbolEmbedding]:
        """The tables of vectors by side."""
        return {"text": self.encoder.reader.embedding}

    @property
    def chain(self) -> Chain | None:
        """What neighbouring tags add to a score; None where each is judged for itself."""
        return None if self.neighbours is None else self.neighbours.chain()

    def forward(self, batch: Batch, trace: Any = None) -> Scores:
        """The scores of every tag at every word, and where texts are labelled, of every label."""
        memory = self.encoder.encode(batch.source, trace)
        labels = None if self.label is None else self.label(memory.summarise())
        return Scores(self.output(memory.values), labels)

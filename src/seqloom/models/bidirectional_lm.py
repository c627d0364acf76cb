"""The bidirectional language model of Peters et al. 2018 (ELMo): two recurrent stacks, one reading on, one back.

    forward     <eos> the cat sat          must say    the cat sat <eos>
    backward    the cat sat <eos>          must say    <eos> the cat sat      (read from the right)

Neither sees what it must say. Side by side, their layers are vectors of a word in its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.running import TextBatch
from seqloom.models.settings import TextVectorsSettings
from seqloom.nn.characters import CharacterEncoder
from seqloom.nn.dropout import Dropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.recurrent import RecurrentStack
from seqloom.settings import ModelSettings, Settings
from seqloom.text.special import PAD_ID
from seqloom.text.spelling import spell

Width = Annotated[int, Field(ge=1, le=20)]
Count = Annotated[int, Field(ge=1, le=4096)]


class CharacterSettings(Settings):
    """How a word's vector is made from its letters."""

    size: int = Field(16, ge=1, le=1024, description="of a letter's vector")
    filters: tuple[tuple[Width, Count], ...] = Field(
        ((1, 32), (2, 32), (3, 64), (4, 64), (5, 64)), min_length=1, max_length=20, description="[width, how many] each"
    )
    highways: int = Field(1, ge=0, le=8, description="highway layers after the filters")
    most: int = Field(24, ge=1, le=200, description="letters of a word that are read")


class BidirectionalLanguageModelSettings(ModelSettings):
    """Settings of the bidirectional language model."""

    kind: Literal["bidirectional_lm"] = "bidirectional_lm"
    size: int = Field(128, ge=1, description="of a word's vector, and of every layer of either direction")
    num_layers: int = Field(2, ge=1)
    characters: CharacterSettings | None = Field(
        None, description="words are read letter by letter; without it, every word has a vector of its own"
    )
    tie: bool = Field(False, description="the output layer is the embedding (not with characters)")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="on word vectors, between layers, before the output layer")

    pretrained: TextVectorsSettings | None = Field(
        None, description="vectors that the embedding starts from (not with characters)"
    )

    @model_validator(mode="after")
    def _fits(self) -> BidirectionalLanguageModelSettings:
        if self.tie and self.characters is not None:
            raise ValueError("tie needs an embedding of words; with characters there is none")
        if self.pretrained is not None and self.characters is not None:
            raise ValueError("pretrained needs an embedding of words; with characters there is none: leave one out")
        return self


class BidirectionalLanguageModel(nn.Module):
    """Bidirectional LSTM language model (ELMo), of words or of words spelled out."""

    attends = False

    def __init__(
        self, settings: BidirectionalLanguageModelSettings, *, num_symbols: int, pieces: Sequence[str] | None = None
    ) -> None:
        """`pieces` are the symbols' texts, which a model that reads letters needs."""
        super().__init__()
        s = self.settings = settings
        self.embedding: SymbolEmbedding | CharacterEncoder
        self.letters: Tensor | None
        if s.characters is None:
            self.embedding = SymbolEmbedding(num_symbols, s.size)
            self.letters = None
        else:
            assert pieces is not None, "letters need the text of every symbol"
            assert len(pieces) == num_symbols
            c, spelled = s.characters, spell(pieces, s.characters.most)
            self.register_buffer("letters", torch.from_numpy(spelled.letters), persistent=False)
            self.embedding = CharacterEncoder(
                num_letters=spelled.num_letters,
                letter_size=c.size,
                filters=c.filters,
                num_highways=c.highways,
                size=s.size,
            )
        self.forwards, self.backwards = (
            RecurrentStack(
                cell="lstm",
                input_size=s.size,
                hidden_size=s.size,
                num_layers=s.num_layers,
                connections="residual",
                dropout=s.dropout,
            )
            for _ in range(2)
        )
        self.output = nn.Linear(s.size, num_symbols)
        nn.init.zeros_(self.output.bias)
        if s.tie:
            assert isinstance(self.embedding, SymbolEmbedding)
            self.output.weight = self.embedding.weight
        self.dropout = Dropout(s.dropout)
        self.num_vectors, self.vector_size = s.num_layers + 1, 2 * s.size

    def embed(self, symbols: Tensor) -> Tensor:
        """(rows, time) -> (rows, time, size); every word of a batch is spelled once."""
        if self.letters is None:
            return self.embedding(symbols)
        different, places = symbols.unique(return_inverse=True)
        letters = self.letters[different]
        letters = letters[:, : max(1, int((letters != 0).sum(1).max()))]  # as long as the longest of them
        vectors = self.embedding(letters).masked_fill((different == PAD_ID)[:, None], 0.0)
        return F.embedding(places, vectors)

    def vectors(self, symbols: Tensor, lengths: Tensor) -> list[Tensor]:
        """(rows, time) symbols, beginning and end included -> (rows, time, 2 * size) of each layer.

        Half of a vector has seen the text up to and with the symbol, half the text from there to the end; in the first
        layer both are the word's own vector.
        """
        embedded = self.dropout(self.embed(symbols))
        forwards, backwards = list[Tensor](), list[Tensor]()
        self.forwards(embedded, None, lengths, collect=forwards)
        self.backwards(reverse_rows(embedded, lengths), None, lengths, collect=backwards)
        back = [reverse_rows(layer, lengths) for layer in backwards]
        return [torch.cat(pair, -1) for pair in zip([embedded, *forwards], [embedded, *back], strict=True)]

    def guesses(self, batch: TextBatch, generator: torch.Generator | None = None) -> list[tuple[Tensor, Tensor]]:
        """What each direction knows (symbols, size) of the symbols that it must say (symbols,): forward, backward."""
        whole = torch.cat([batch.inputs[:, :1], batch.targets], 1)  # (rows, 1 + time)
        embedded = self.dropout(self.embed(whole))
        lengths = batch.lengths
        if lengths is None:
            lengths = torch.full((len(batch),), batch.inputs.shape[1])
        forward, _ = self.forwards(embedded[:, :-1], None, lengths)
        backward, _ = self.backwards(reverse_rows(embedded[:, 1:], lengths), None, lengths)
        real = batch.targets.flatten().nonzero()[:, 0]  # PAD is 0
        both = ((forward, batch.targets), (reverse_rows(backward, lengths), batch.inputs))
        return [(self.dropout(seen.flatten(0, 1)[real]), said.flatten()[real]) for seen, said in both]


def reverse_rows(values: Tensor, lengths: Tensor) -> Tensor:
    """(rows, time, size) with the first `length` steps of each row in reverse; padding stays where it is."""
    time = torch.arange(values.shape[1], device=values.device)
    ends = lengths.to(values.device)[:, None]
    places = torch.where(time < ends, ends - 1 - time, time)
    return values.gather(1, places[..., None].expand_as(values))

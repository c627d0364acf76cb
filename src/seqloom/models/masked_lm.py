"""The masked language model of Devlin et al. 2019 (BERT): some symbols are hidden, and guessed from all around them."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.running import TextBatch
from seqloom.models.settings import TextVectorsSettings, TransformerSettings
from seqloom.nn.drawing import own_generator
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.masks import length_mask
from seqloom.text.special import EOS_ID, PAD_ID, SPECIAL

MASKED, RANDOM = 0.8, 0.1  # of the symbols to guess: replaced by the mask, by any symbol; the rest is left as it is


class Hidden(NamedTuple):
    """What is read, and where symbols must be guessed: (rows, time) both."""

    symbols: Tensor
    chosen: Tensor


def hide(
    symbols: Tensor, candidates: Tensor, *, share: float, num_symbols: int, generator: torch.Generator | None = None
) -> Hidden:
    """Choose symbols to be guessed and hide most of them (Devlin et al. 2019, section 3.1).

    Of the chosen ones 80 % become the mask, whose number is `num_symbols`, 10 % any symbol that is not reserved, and
    10 % stay: a model that always met a mask would have nothing to say about texts without one.

    Args:
        symbols: (rows, time).
        candidates: (rows, time), True where a symbol may be chosen.
        share: of the candidates that is chosen, each by itself.
        num_symbols: of the vocabulary.
        generator: of the draws; what this thread draws from if None.
    """
    generator = own_generator() if generator is None else generator
    chosen = (torch.rand(symbols.shape, generator=generator) < share) & candidates
    fate = torch.rand(symbols.shape, generator=generator)
    others = torch.randint(len(SPECIAL), num_symbols, symbols.shape, generator=generator)
    read = torch.where(chosen & (fate < MASKED), num_symbols, symbols)
    return Hidden(torch.where(chosen & (fate >= MASKED) & (fate < MASKED + RANDOM), others, read), chosen)


class MaskedLanguageModelSettings(TransformerSettings):
    """Settings of the masked language model."""

    kind: Literal["masked_lm"] = "masked_lm"
    num_layers: int = Field(4, ge=1)
    context: int = Field(256, ge=1, le=100_000, description="most symbols that are read together")
    tie: bool = Field(True, description="the output layer is the embedding")
    hidden: float = Field(0.15, gt=0.0, lt=1.0, description="share of symbols that must be guessed")

    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> MaskedLanguageModelSettings:
        if self.max_positions is not None:
            raise ValueError(
                f"max_positions: here context says how many positions there are; set context: {self.max_positions}"
            )
        return self


class MaskedLanguageModel(nn.Module):
    """Masked language model (BERT) on a Transformer that looks both ways."""

    attends = False

    def __init__(self, settings: MaskedLanguageModelSettings, *, num_symbols: int) -> None:
        super().__init__()
        s = self.settings = settings
        self.num_symbols = num_symbols
        self.window = s.context + 1  # and the symbol before them
        self.embedding = SymbolEmbedding(num_symbols, s.size)
        # One row more than there are symbols; by itself, so that an output layer can be tied to the rest.
        self.mask = nn.Parameter(nn.init.normal_(torch.empty(s.size), std=s.size**-0.5))
        learned = {"max_positions": self.window} if s.positions == "learned" else {}
        self.encoder = s.model_copy(update=learned).stack(s.num_layers)
        self.output = nn.Linear(s.size, num_symbols)
        nn.init.normal_(self.output.weight, std=s.size**-0.5)
        nn.init.zeros_(self.output.bias)
        if s.tie:
            self.output.weight = self.embedding.weight
        self.num_vectors, self.vector_size = s.num_layers + 1, s.size

    def embed(self, symbols: Tensor) -> Tensor:
        """(rows, time) symbols, `num_symbols` for the mask -> (rows, time, size)."""
        masked = symbols == self.num_symbols
        embedded = self.embedding(symbols.masked_fill(masked, PAD_ID))
        return torch.where(masked[..., None], self.mask * math.sqrt(self.settings.size), embedded)

    def vectors(self, symbols: Tensor, lengths: Tensor) -> list[Tensor]:
        """(rows, time) symbols, beginning and end included -> (rows, time, size) of each layer.

        The first has neither context nor position. A text longer than `context` is read in pieces.
        """
        pieces = [
            self._read(piece, (lengths - number * self.window).clamp(1, piece.shape[1]))
            for number, piece in enumerate(symbols.split(self.window, 1))
        ]
        return pieces[0] if len(pieces) == 1 else [torch.cat(parts, 1) for parts in zip(*pieces, strict=True)]

    def _read(self, symbols: Tensor, lengths: Tensor) -> list[Tensor]:
        mask = length_mask(lengths, symbols.shape[1])
        embedded, layers = self.embed(symbols), list[Tensor]()
        last, _ = self.encoder(embedded, None if bool(mask.all()) else mask[:, None, None], collect=layers)
        return [embedded, *layers[:-1], last]  # the last with the norm after it, as the output layer sees it

    def guesses(self, batch: TextBatch, generator: torch.Generator | None = None) -> list[tuple[Tensor, Tensor]]:
        """What is known (chosen, size) of the symbols that were hidden, and these (chosen,).

        Ends of lines are not hidden: where a text ends can be seen.
        """
        whole = torch.cat([batch.inputs[:, :1], batch.targets], 1)  # (rows, 1 + time)
        candidates = (whole != PAD_ID) & (whole != EOS_ID)
        candidates[:, 0] = False  # it is a symbol of another text
        read, chosen = hide(
            whole, candidates, share=self.settings.hidden, num_symbols=self.num_symbols, generator=generator
        )
        lengths = torch.full((len(batch),), whole.shape[1]) if batch.lengths is None else batch.lengths + 1
        return [(self.vectors(read, lengths)[-1][chosen], whole[chosen])]

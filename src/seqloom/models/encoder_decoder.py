"""Any encoder with any decoder: what reads a source, what makes a target of its memory, and what both share.

`encoder_decoder` names its parts. The commonest pairs have short forms, `recurrent_translator` and
`transformer_translator`; each is expanded into its parts before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.errors import UserError
from seqloom.models.encoders import ENCODERS, EncoderSettings
from seqloom.models.memory import HasHeads
from seqloom.models.recurrent_decoder import RecurrentDecoder, RecurrentDecoderSettings
from seqloom.models.recurrent_encoder import RecurrentEncoderSettings
from seqloom.models.settings import (
    CellName,
    ConnectionName,
    ContextualSettings,
    PretrainedSettings,
    ScoreName,
    TransformerSettings,
)
from seqloom.models.text_reader import TextReader
from seqloom.models.transformer_decoder import TransformerDecoder, TransformerDecoderSettings
from seqloom.models.transformer_encoder import TransformerEncoderSettings
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.settings import ModelSettings, one_of_kinds

DECODERS: dict[str, tuple[type[ModelSettings], Any]] = {
    "recurrent": (RecurrentDecoderSettings, RecurrentDecoder),
    "transformer": (TransformerDecoderSettings, TransformerDecoder),
}
if TYPE_CHECKING:
    DecoderSettings = Any
else:
    DecoderSettings = one_of_kinds(DECODERS)
Table = Literal["source", "target", "output"]


class EncoderDecoderSettings(ModelSettings):
    """Settings of an encoder and a decoder of any kinds."""

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    encoder: EncoderSettings
    decoder: DecoderSettings
    tie: tuple[Table, ...] = Field(
        (), description="which tables are one: source and target embedding (needs text.joint), output layer"
    )
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words of either side that are not seen")
    pretrained: PretrainedSettings | None = Field(None, description="vectors that the embeddings start from")
    contextual: ContextualSettings | None = Field(None, description="a language model that reads the source too")

    @model_validator(mode="after")
    def _fits(self) -> EncoderDecoderSettings:
        e, d = self.encoder, self.decoder
        if len(set(self.tie)) != len(self.tie) or len(self.tie) == 1:
            raise ValueError(f"tie names two or three different tables, or none; got {list(self.tie)}")
        sizes = {"source": e.embedding_size, "target": d.embedding_size, "output": d.features_size}
        if len({sizes[name] for name in self.tie}) > 1:
            listed = ", ".join(f"{name} {sizes[name]}" for name in self.tie)
            raise ValueError(f"tied tables must be equally wide (output: readout_size or hidden_size); got {listed}")
        refuse_two_for_one(self.pretrained, {"source", "target"} <= set(self.tie))
        if (problem := d.problem_with(e.memory)) is not None:
            raise ValueError(problem)
        return self

    @property
    def one_vocabulary(self) -> bool:
        """Whether one table serves symbols of both sides, which therefore must have one vocabulary."""
        return {"source", "target"} <= set(self.tie) or {"source", "output"} <= set(self.tie)

    def expanded(self) -> EncoderDecoderSettings:
        """These settings, part by part."""
        return self


class RecurrentTranslatorSettings(ModelSettings):
    """Settings of the recurrent encoder-decoder: the short form for two recurrent parts of one cell and size."""

    kind: Literal["recurrent_translator"] = "recurrent_translator"
    cell: CellName = "lstm"
    embedding_size: int = Field(256, ge=1)
    hidden_size: int = Field(512, ge=2, description="of the decoder, and of the encoder's two directions together")
    encoder_layers: int = Field(1, ge=1)
    decoder_layers: int = Field(1, ge=1)
    bidirectional: bool = True
    connections: ConnectionName = Field(
        "plain", description="what leads around each layer of encoder and decoder but the first"
    )
    decoder: Literal["state", "context", "attention"] = "attention"
    attention: ScoreName = "multiplicative"
    order: Literal["luong", "bahdanau"] = "luong"
    input_feeding: bool = Field(False, description="feed the last attentional vector into the next step")
    readout_size: int | None = Field(None, ge=1, description="width before the output layer (default: hidden size)")
    tie_output: bool = Field(False, description="the output layer is the target embedding")
    share_embeddings: bool = Field(False, description="one embedding for both sides (needs text.joint)")
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words of either side that are not seen")
    pretrained: PretrainedSettings | None = Field(None, description="vectors that the embeddings start from")
    contextual: ContextualSettings | None = Field(None, description="a language model that reads the source too")

    @model_validator(mode="after")
    def _sizes_fit(self) -> RecurrentTranslatorSettings:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even when bidirectional; got {self.hidden_size}")
        if self.tie_output and self.readout_size not in (None, self.embedding_size):
            raise ValueError("tie_output needs readout_size equal to embedding_size (or leave readout_size out)")
        refuse_two_for_one(self.pretrained, self.share_embeddings)
        if self.input_feeding and self.decoder != "attention":
            raise ValueError(f"input_feeding needs decoder: attention; got decoder: {self.decoder}")
        unconnected = 1 if self.decoder == "attention" else 2  # without attention only the top layer's state is used
        if self.connections != "plain" and self.encoder_layers <= unconnected and self.decoder_layers == 1:
            raise ValueError(
                f"connections: {self.connections} has no layer to lead around with encoder_layers: "
                f"{self.encoder_layers} and decoder_layers: 1; raise one of them, or leave connections plain"
            )
        return self

    def expanded(self) -> EncoderDecoderSettings:
        """These settings, part by part."""
        common = self.model_dump(include={"cell", "embedding_size", "hidden_size", "connections", "dropout"})
        tables = [("source", self.share_embeddings), ("output", self.tie_output)]
        tied = [name for name, is_tied in tables if is_tied]
        return EncoderDecoderSettings(
            encoder=RecurrentEncoderSettings(
                **common, num_layers=self.encoder_layers, bidirectional=self.bidirectional
            ),
            decoder=RecurrentDecoderSettings(
                **common,
                num_layers=self.decoder_layers,
                looks=self.decoder,
                attention=self.attention,
                order=self.order,
                input_feeding=self.input_feeding,
                readout_size=self.embedding_size if self.tie_output else self.readout_size,
            ),
            tie=("target", *tied) if tied else (),
            word_dropout=self.word_dropout,
            pretrained=self.pretrained,
            contextual=self.contextual,
        )


class TransformerTranslatorSettings(TransformerSettings):
    """Settings of the Transformer encoder-decoder: the short form for two Transformers of one size."""

    kind: Literal["transformer_translator"] = "transformer_translator"
    encoder_layers: int = Field(4, ge=1)
    decoder_layers: int = Field(4, ge=1)
    tie: tuple[Table, ...] = Field(
        ("target", "output"), description="which tables are one: source and target embedding, output layer"
    )
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words of either side that are not seen")
    alignment_layer: int | None = Field(
        None, ge=0, description="decoder layer whose mean attention is the alignment (default: the last but one)"
    )
    pretrained: PretrainedSettings | None = Field(None, description="vectors that the embeddings start from")
    contextual: ContextualSettings | None = Field(None, description="a language model that reads the source too")

    @model_validator(mode="after")
    def _parts_fit(self) -> TransformerTranslatorSettings:
        try:
            self.expanded()
        except ValidationError as error:  # every field has been checked: what is left is how they fit together
            raise ValueError(str(error.errors()[0]["ctx"]["error"])) from None
        return self

    def expanded(self) -> EncoderDecoderSettings:
        """These settings, part by part."""
        common = {name: getattr(self, name) for name in TransformerSettings.model_fields if name != "kind"}
        return EncoderDecoderSettings(
            encoder=TransformerEncoderSettings(**common, num_layers=self.encoder_layers),
            decoder=TransformerDecoderSettings(
                **common, num_layers=self.decoder_layers, alignment_layer=self.alignment_layer
            ),
            tie=self.tie,
            word_dropout=self.word_dropout,
            pretrained=self.pretrained,
            contextual=self.contextual,
        )


AnySettings = EncoderDecoderSettings | RecurrentTranslatorSettings | TransformerTranslatorSettings


def refuse_two_for_one(pretrained: PretrainedSettings | None, one_table: bool) -> None:
    """One table cannot start from two sets of vectors."""
    if one_table and pretrained is not None and len(pretrained.paths()) == 2:
        raise ValueError("pretrained: both sides are one table here; name vectors for source or for target, not both")


class EncoderDecoder(nn.Module):
    """Encoder and decoder of any kinds, from text to text."""

    def __init__(
        self,
        settings: AnySettings,
        *,
        source_symbols: int,
        target_symbols: int,
        reader: nn.Module | None = None,
    ) -> None:
        """`reader` is the language model that `settings.contextual` names."""
        super().__init__()
        self.settings, s = settings, settings.expanded()
        assert (s.contextual is None) == (reader is None), "the task brings the language model that settings name"
        if s.one_vocabulary and source_symbols != target_symbols:
            raise UserError(
                f"one table for both sides needs one vocabulary (text.joint); there are {source_symbols:,} source and "
                f"{target_symbols:,} target symbols"
            )
        source = SymbolEmbedding(source_symbols, s.encoder.embedding_size)
        target = source
        if not {"source", "target"} <= set(s.tie):
            target = SymbolEmbedding(target_symbols, s.decoder.embedding_size)
        read, make = ENCODERS[s.encoder.kind][1], DECODERS[s.decoder.kind][1]
        self.encoder: Any = read(s.encoder, TextReader(source, word_dropout=s.word_dropout))
        self.decoder: Any = make(
            s.decoder,
            target,
            num_symbols=target_symbols,
            memory=s.encoder.memory,
            word_dropout=s.word_dropout,
        )
        if "output" in s.tie:  # embeddings first: their padding is zero
            self.decoder.output.weight = (target if "target" in s.tie else source).weight
        if s.contextual is not None and reader is not None:
            self.encoder.reader.read_beside(s.contextual, reader)

    @property
    def output(self) -> nn.Linear:
        """Features -> logits."""
        found: nn.Linear = self.decoder.output
        return found

    @property
    def attends(self) -> bool:
        return bool(self.decoder.attends)

    @property
    def piece_tokens(self) -> int:
        """Target symbols that are computed with at once in training."""
        return int(self.decoder.piece_tokens)

    @property
    def embeddings(self) -> dict[str, SymbolEmbedding]:
        """The tables of vectors by side."""
        return {"source": self.encoder.reader.embedding, "target": self.decoder.embedding}

    def forward(self, batch: Batch, trace: Any = None) -> Tensor:
        """Teacher forcing: features (batch, target, size) for the output layer; the first row may be traced."""
        features: Tensor = self.decoder(self.encoder.encode(batch.source, trace), batch.target, trace)
        return features

    def align(self, batch: Batch) -> Tensor | None:
        """Attention while the decoder is led along a known target: (batch, target, source), or None without it."""
        found: Tensor | None = self.decoder.align(self.encoder.encode(batch.source), batch.target)
        return found

    def start(self, source: Any) -> Any:
        """Read the source; the state of the decoder before the first symbol."""
        return self.decoder.start(self.encoder.encode(source))

    def advance(self, tokens: Tensor, state: Any, *, attention: bool = True) -> tuple[Tensor, Any, Tensor | None]:
        """As `Decoder.advance`."""
        found: tuple[Tensor, Any, Tensor | None] = self.decoder.advance(tokens, state, attention=attention)
        return found

    # -- looking inside ----------------------------------------------------------------------------------------------

    def heads(self) -> list[tuple[str, int, int]]:
        """Every attention head: (`encoder`, `decoder` or `cross`; layer; head); none of recurrent parts."""
        return [head for part in (self.encoder, self.decoder) if isinstance(part, HasHeads) for head in part.heads()]

    @contextmanager
    def without_head(self, site: str, layer: int, head: int) -> Iterator[None]:
        """Within this, a head adds nothing: the columns of the output map that read it are zero."""
        weight, width = (self.encoder if site == "encoder" else self.decoder).head_weight(site, layer)
        columns = slice(head * width, (head + 1) * width)
        with torch.no_grad():
            kept = weight[:, columns].clone()
            weight[:, columns] = 0.0
        try:
            yield
        finally:
            with torch.no_grad():
                weight[:, columns] = kept

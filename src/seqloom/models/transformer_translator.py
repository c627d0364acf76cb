"""The Transformer of Vaswani et al. 2017: an encoder and a decoder made of attention alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import PairBatch, SourceBatch
from seqloom.models.contextual import ContextualSettings, contextual_vectors, with_context
from seqloom.models.pretrained import PretrainedSettings, refuse_two_for_one
from seqloom.nn.dropout import WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.masks import length_mask
from seqloom.nn.multihead import KeysValues, Past
from seqloom.nn.recurrent import select_rows
from seqloom.nn.transformer import TransformerLayer, TransformerStack
from seqloom.settings import ModelSettings

PositionName = Literal["alibi", "learned", "none", "relative", "rotary", "sinusoidal"]


class TransformerSettings(ModelSettings):
    """What all Transformers have in common."""

    size: int = Field(256, ge=2, description="width of every layer")
    num_heads: int = Field(4, ge=1)
    feed_forward_size: int = Field(1024, ge=1)
    feed_forward: Literal["geglu", "gelu", "relu", "swiglu"] = "relu"
    norm: Literal["layer", "rms"] = "layer"
    norm_first: bool = Field(True, description="norms before each sublayer (pre-norm); false: after, as in 2017")
    connections: Literal["dense", "highway", "plain", "residual"] = "residual"
    positions: PositionName = "sinusoidal"
    max_positions: int | None = Field(None, ge=1, le=100_000, description="learned positions: how many (default 512)")
    max_distance: int | None = Field(None, ge=1, le=10_000, description="relative: clipped here (default 16)")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="on embeddings and on what each sublayer adds")
    attention_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on attention weights")
    activation_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="inside the feed-forward layer")

    @model_validator(mode="after")
    def _fits(self) -> TransformerSettings:
        if self.size % self.num_heads:
            raise ValueError(f"size must be a multiple of num_heads; got {self.size} and {self.num_heads}")
        if self.positions == "rotary" and self.size // self.num_heads % 2:
            raise ValueError(f"rotary positions need an even size of each head; got {self.size // self.num_heads}")
        if self.max_positions is not None and self.positions != "learned":
            raise ValueError(f"max_positions is for learned positions; got positions: {self.positions}")
        if self.max_distance is not None and self.positions != "relative":
            raise ValueError(f"max_distance is for relative positions; got positions: {self.positions}")
        return self

    def stack(self, num_layers: int, *, causal: bool = False, cross: bool = False) -> TransformerStack:
        """Layers with these settings."""
        return TransformerStack(
            size=self.size,
            num_layers=num_layers,
            num_heads=self.num_heads,
            feed_forward_size=self.feed_forward_size,
            feed_forward=self.feed_forward,
            norm=self.norm,
            norm_first=self.norm_first,
            connections=self.connections,
            positions=self.positions,
            max_positions=self.max_positions,
            max_distance=self.max_distance,
            causal=causal,
            cross=cross,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
        )


class TransformerTranslatorSettings(TransformerSettings):
    """Settings of the Transformer encoder-decoder."""

    kind: Literal["transformer_translator"] = "transformer_translator"
    encoder_layers: int = Field(4, ge=1)
    decoder_layers: int = Field(4, ge=1)
    tie: tuple[Literal["source", "target", "output"], ...] = Field(
        ("target", "output"), description="which tables are one: source and target embedding, output layer"
    )
    word_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words of either side that are not seen")
    alignment_layer: int | None = Field(
        None, ge=0, description="decoder layer whose mean attention is the alignment (default: the last but one)"
    )
    pretrained: PretrainedSettings | None = Field(None, description="vectors that the embeddings start from")
    contextual: ContextualSettings | None = Field(None, description="a language model that reads the source too")

    @model_validator(mode="after")
    def _ties(self) -> TransformerTranslatorSettings:
        if len(set(self.tie)) != len(self.tie) or len(self.tie) == 1:
            raise ValueError(f"tie names two or three different tables, or none; got {list(self.tie)}")
        refuse_two_for_one(self.pretrained, {"source", "target"} <= set(self.tie))
        if self.alignment_layer is not None and self.alignment_layer >= self.decoder_layers:
            raise ValueError(
                f"alignment_layer counts from 0 and there are {self.decoder_layers} decoder layers; "
                f"got {self.alignment_layer}"
            )
        return self

    @property
    def share_embeddings(self) -> bool:
        """Whether one table serves symbols of both languages, which therefore must have one vocabulary."""
        return "source" in self.tie


class DecoderState(NamedTuple):
    """All the decoder needs to go on: each layer's keys and values of what was said, and of the source.

    `past` has a row a hypothesis; `memory` and `mask` have one a sentence, however many hypotheses look at it.
    """

    past: tuple[KeysValues, ...] | Past | None
    memory: tuple[KeysValues, ...]
    mask: Tensor | None

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        past = self.past.follow(rows) if isinstance(self.past, Past) else select_rows(self.past, rows)
        if sentences is None:
            return self._replace(past=past)
        return DecoderState(past, select_rows(self.memory, sentences), select_rows(self.mask, sentences))


class TransformerTranslator(nn.Module):
    """Transformer encoder-decoder."""

    attends = True
    piece_tokens = 640  # computed with at once in training: more is somewhat faster, but the memory is felt

    def __init__(
        self,
        settings: TransformerTranslatorSettings,
        *,
        source_symbols: int,
        target_symbols: int,
        reader: nn.Module | None = None,
    ) -> None:
        """`reader` is the language model that `settings.contextual` names."""
        super().__init__()
        s = self.settings = settings
        self.source_embedding = SymbolEmbedding(source_symbols, s.size)
        self.target_embedding = SymbolEmbedding(target_symbols, s.size)
        self.word_dropout = WordDropout(s.word_dropout)
        self.encoder = s.stack(s.encoder_layers)
        self.decoder = s.stack(s.decoder_layers, causal=True, cross=True)
        self.output = nn.Linear(s.size, target_symbols)
        nn.init.normal_(self.output.weight, std=s.size**-0.5)
        nn.init.zeros_(self.output.bias)
        tables: dict[str, SymbolEmbedding | nn.Linear] = {
            "source": self.source_embedding,
            "target": self.target_embedding,
            "output": self.output,
        }
        tied = [name for name in tables if name in s.tie]  # embeddings first: their padding is zero
        for name in tied[1:]:
            assert not s.share_embeddings or source_symbols == target_symbols, "checked where the recipe is read"
            tables[name].weight = tables[tied[0]].weight
        self.alignment_layer = max(0, s.decoder_layers - 2) if s.alignment_layer is None else s.alignment_layer
        self.contextual = contextual_vectors(s.contextual, reader, s.size)

    # -- reading the source ------------------------------------------------------------------------------------------

    def start(self, batch: SourceBatch, trace: Any = None) -> DecoderState:
        """Read the source; the state holds what every decoder layer will look at."""
        mask = _key_mask(batch.source_lengths, batch.source.shape[1])
        watch = None if trace is None else _watcher(trace, "encoder", "source", "source")
        embedded = with_context(self.source_embedding(self.word_dropout(batch.source)), self.contextual, batch)
        encoded, _ = self.encoder(embedded, mask, watch=watch)
        past = None if torch.is_grad_enabled() else self._no_past(encoded)  # gradients need tensors of their own
        return DecoderState(past, self.decoder.prepare(encoded), mask)

    def _no_past(self, encoded: Tensor) -> Past:
        s = self.settings
        return Past.empty(encoded, len(encoded), size=s.size, num_layers=s.decoder_layers, num_heads=s.num_heads)

    # -- writing the target ------------------------------------------------------------------------------------------

    def forward(self, batch: PairBatch, trace: Any = None) -> Tensor:
        """Teacher forcing: (batch, target) symbols in -> features (batch, target, size) for the output layer.

        With a trace, the first sentence's attention is put into it: of every layer and head, and as one alignment.
        """
        watch = None if trace is None else _watcher(trace, "decoder", "target", "target_in")
        features, weights = self._force(batch, trace, watch)
        if trace is not None:
            trace.add("decoder.attention", weights[0], rows="target", columns="source")
        return features

    def align(self, batch: PairBatch) -> Tensor:
        """Mean attention of the alignment layer's heads along a known target: (batch, target, source)."""
        return self._force(batch, None, lambda name, weights: None)[1]

    def _force(self, batch: PairBatch, trace: Any, watch: Any) -> tuple[Tensor, Tensor]:
        state = self.start(batch, trace)
        found: list[Tensor] = []
        heard = None if watch is None else self._hearing(found, watch)
        features, _ = self.decoder(
            self.target_embedding(self.word_dropout(batch.target_in)),
            memory=state.memory,
            memory_mask=state.mask,
            watch=heard,
        )
        return features, found[0] if found else features.new_empty(0)

    def advance(
        self, tokens: Tensor, state: DecoderState, *, attention: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step: (rows,) symbols -> features (rows, size), next state, attention (rows, source) where it is wanted.

        Rows are the sentences of the state's memory, or as many for each, standing together.
        """
        found: list[Tensor] = []
        past = state.past.with_room() if isinstance(state.past, Past) else state.past
        features, kept = self.decoder(
            self.target_embedding(self.word_dropout(tokens[:, None])),
            past=past.layers() if isinstance(past, Past) else past,
            memory=state.memory,
            memory_mask=state.mask,
            watch=self._hearing(found, None) if attention else None,
        )
        if isinstance(past, Past):
            past.length += 1
        else:
            past = kept
        weights = found[0].flatten(0, 1) if attention else None  # (sentences, width, source) -> (rows, source)
        return features[:, 0], state._replace(past=past), weights

    def _hearing(self, found: list[Tensor], also: Any) -> Any:
        """Keeps the mean over heads of the alignment layer's attention."""
        wanted = f"{self.alignment_layer}.cross"

        def hear(name: str, weights: Tensor) -> None:
            if name == wanted:
                found.append(weights.mean(1))
            if also is not None:
                also(name, weights)

        return hear

    # -- looking inside ----------------------------------------------------------------------------------------------

    def heads(self) -> list[tuple[str, int, int]]:
        """Every attention head: (`encoder`, `decoder` or `cross`; layer; head)."""
        s = self.settings
        sites = [("encoder", layer) for layer in range(s.encoder_layers)]
        sites += [(site, layer) for layer in range(s.decoder_layers) for site in ("decoder", "cross")]
        return [(site, layer, head) for site, layer in sites for head in range(s.num_heads)]

    @contextmanager
    def without_head(self, site: str, layer: int, head: int) -> Iterator[None]:
        """Within this, a head says nothing: the columns of the output map that read it are zero."""
        stack = self.encoder if site == "encoder" else self.decoder
        block = stack.layers[layer]
        assert isinstance(block, TransformerLayer)
        attention = block.cross if site == "cross" else block.attention
        assert attention is not None
        weight, width = attention.output.weight, self.settings.size // self.settings.num_heads
        columns = slice(head * width, (head + 1) * width)
        with torch.no_grad():
            kept = weight[:, columns].clone()
            weight[:, columns] = 0.0
        try:
            yield
        finally:
            with torch.no_grad():
                weight[:, columns] = kept


def _key_mask(lengths: Tensor, size: int) -> Tensor | None:
    """(batch, 1, 1, keys), or None where no row is padded: the fused kernel is faster without."""
    mask = length_mask(lengths, size)
    return None if bool(mask.all()) else mask[:, None, None]


def _watcher(trace: Any, side: str, rows: str, columns: str) -> Any:
    """Puts the attention of all heads into the trace, for the first sentence of the batch."""

    def watch(name: str, weights: Tensor) -> None:
        across = "source" if name.endswith("cross") else columns
        trace.add(f"{side}.{name}", weights[0], axes=("head", rows, across))

    return watch

"""Recurrent encoder-decoder, with and without attention.

encoder   embed -> (bi)recurrent stack -> memory (batch, source time, hidden)
decoder   `state`      starts from the encoder's last state and is on its own (Sutskever et al. 2014)
          `context`    sees the encoder's last state again at every step (Cho et al. 2014)
          `attention`  looks back at the memory at every step,
                       with the state it has reached (`luong` order: Luong et al. 2015) or
                       with the state it comes from, feeding what it saw in (`bahdanau` order: Bahdanau et al. 2015)
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import PairBatch, SourceBatch
from seqloom.models.contextual import ContextualSettings, contextual_vectors, with_context
from seqloom.models.pretrained import PretrainedSettings, refuse_two_for_one
from seqloom.nn.attention import SCORES, Attended, attend
from seqloom.nn.cells import State
from seqloom.nn.dropout import Dropout, WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.fused_decoder import can_decode, decode
from seqloom.nn.masks import length_mask
from seqloom.nn.narrow import linear
from seqloom.nn.recurrent import RecurrentLayer, RecurrentStack, Watch, select_rows
from seqloom.settings import ModelSettings

CellName = Literal["elman", "elman_sigmoid", "gru", "lstm", "lstm_coupled", "lstm_peephole"]


class RecurrentTranslatorSettings(ModelSettings):
    """Settings of the recurrent encoder-decoder."""

    kind: Literal["recurrent_translator"] = "recurrent_translator"
    cell: CellName = "lstm"
    embedding_size: int = Field(256, ge=1)
    hidden_size: int = Field(512, ge=2, description="of the decoder, and of the encoder's two directions together")
    encoder_layers: int = Field(1, ge=1)
    decoder_layers: int = Field(1, ge=1)
    bidirectional: bool = True
    connections: Literal["dense", "highway", "plain", "residual"] = Field(
        "plain", description="what leads around each layer of encoder and decoder but the first"
    )
    decoder: Literal["state", "context", "attention"] = "attention"
    attention: Literal["additive", "dot", "multiplicative", "scaled_dot"] = "multiplicative"
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

    @property
    def features_size(self) -> int:
        return self.embedding_size if self.tie_output else (self.readout_size or self.hidden_size)


class Memory(NamedTuple):
    """The encoded source: `values` (batch, source, hidden), `keys` prepared by the score, `mask`, and a `summary`."""

    values: Tensor
    keys: Tensor | None
    mask: Tensor | None  # None where no row is padded
    summary: Tensor


class DecoderState(NamedTuple):
    """All a decoder needs to go on: its layers' states, the last attentional vector if it is fed, the memory.

    `layers` and `fed` have a row a hypothesis; `memory` has one a sentence, however many hypotheses look at it.
    """

    layers: tuple[State, ...]
    fed: Tensor | None
    memory: Memory

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        memory = self.memory if sentences is None else select_rows(self.memory, sentences)
        return DecoderState(select_rows(self.layers, rows), select_rows(self.fed, rows), memory)


class RecurrentTranslator(nn.Module):
    """Recurrent encoder-decoder, with attention or without."""

    piece_tokens = 2048  # computed with at once in training: its steps need many rows

    def __init__(
        self,
        settings: RecurrentTranslatorSettings,
        *,
        source_symbols: int,
        target_symbols: int,
        reader: nn.Module | None = None,
    ) -> None:
        """`reader` is the language model that `settings.contextual` names."""
        super().__init__()
        s = self.settings = settings
        self.plain = False
        self.source_embedding = SymbolEmbedding(source_symbols, s.embedding_size)
        if s.share_embeddings:
            assert source_symbols == target_symbols, "checked where the recipe is read"
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = SymbolEmbedding(target_symbols, s.embedding_size)
        self.encoder = RecurrentStack(
            cell=s.cell,
            input_size=s.embedding_size,
            hidden_size=s.hidden_size,
            num_layers=s.encoder_layers,
            bidirectional=s.bidirectional,
            connections=s.connections,
            dropout=s.dropout,
        )
        self.attends = s.decoder == "attention"
        self.context_first = s.decoder == "context" or (self.attends and s.order == "bahdanau")
        context_size = s.hidden_size if self.context_first else 0
        fed_size = s.features_size if s.input_feeding else 0
        self.decoder = RecurrentStack(
            cell=s.cell,
            input_size=s.embedding_size + context_size + fed_size,
            hidden_size=s.hidden_size,
            num_layers=s.decoder_layers,
            connections=s.connections,
            dropout=s.dropout,
        )
        if self.attends:
            self.score = SCORES[s.attention](query_size=s.hidden_size, memory_size=s.hidden_size)
        seen = s.hidden_size * (1 if s.decoder == "state" else 2) + (s.embedding_size if self.context_first else 0)
        needs_readout = s.decoder != "state" or s.features_size != s.hidden_size
        self.readout = nn.Linear(seen, s.features_size) if needs_readout else None
        self.output = nn.Linear(s.features_size, target_symbols)
        nn.init.zeros_(self.output.bias)
        if s.tie_output:
            self.output.weight = self.target_embedding.weight
        self.dropout, self.word_dropout = Dropout(s.dropout), WordDropout(s.word_dropout)
        self.contextual = contextual_vectors(s.contextual, reader, s.embedding_size)

    # -- reading the source ------------------------------------------------------------------------------------------

    def encode(self, batch: SourceBatch, trace: Any = None) -> tuple[Memory, tuple[State, ...]]:
        """The source as a memory, and the encoder's last states, one a layer."""
        watch = None if trace is None else _gate_watcher(trace, "encoder", "source")
        embedded = self.source_embedding(self.word_dropout(batch.source))  # (batch, source, embedding)
        embedded = self.dropout(with_context(embedded, self.contextual, batch))
        values, finals = self.encoder(embedded, lengths=batch.source_lengths, watch=watch)
        values = self.dropout(values)
        keys = self.score.prepare(values) if self.attends else None
        mask = length_mask(batch.source_lengths, batch.source.shape[1])
        return Memory(values, keys, None if bool(mask.all()) else mask, finals[-1].hidden), finals

    def start(self, batch: SourceBatch, trace: Any = None) -> DecoderState:
        """Read the source; the decoder's layers start from the encoder's last states.

        Of a deeper encoder the top ones are taken; for a deeper decoder the topmost serves the rest.
        """
        memory, finals = self.encode(batch, trace)
        num_layers = self.settings.decoder_layers
        top = finals[-num_layers:]
        layers = tuple(top[min(index, len(top) - 1)] for index in range(num_layers))
        fed = memory.values.new_zeros(len(batch), self.settings.features_size) if self.settings.input_feeding else None
        return DecoderState(layers, fed, memory)

    # -- writing the target ------------------------------------------------------------------------------------------

    def forward(self, batch: PairBatch, trace: Any = None) -> Tensor:
        """Teacher forcing: (batch, target) symbols in -> features (batch, target, features size) for the output layer.

        With a trace, the first sentence's attention and gates are put into it.
        """
        features, weights = self._force(batch, trace)
        if trace is not None and weights is not None:
            trace.add("decoder.attention", weights[0], rows="target", columns="source")
        return features

    def align(self, batch: PairBatch) -> Tensor | None:
        """Attention while the decoder is led along a known target: (batch, target, source), or None without it."""
        return self._force(batch, None)[1]

    def _force(self, batch: PairBatch, trace: Any) -> tuple[Tensor, Tensor | None]:
        """Where no step waits for what attention saw in the step before, all steps are computed at once.

        What is said of padding is not defined: the loss leaves it out, and the fast paths do not compute it.
        """
        state = self.start(batch, trace)
        embedded = self.dropout(self.target_embedding(self.word_dropout(batch.target_in)))  # (batch, target, embedding)
        waits = self.settings.input_feeding or (self.attends and self.context_first)
        if trace is None and waits and self._can_fuse(state.memory):
            return self._force_fused(embedded, batch.target_lengths, state)
        if trace is not None or waits:
            return self._force_stepwise(embedded, state, trace)
        context = weights = None
        inputs = embedded
        if self.context_first:
            context = state.memory.summary[:, None].expand(-1, embedded.shape[1], -1)
            inputs = torch.cat([embedded, context], -1)
        hidden, _ = self.decoder(inputs, state.layers, batch.target_lengths)  # (batch, target, hidden)
        if self.attends:
            context, weights = self._look(hidden, state.memory)  # (batch, target, hidden)
        return self._read_out(hidden, context, embedded), weights

    def _can_fuse(self, memory: Memory) -> bool:
        one_layer = self.settings.decoder_layers == 1
        return one_layer and not self.plain and memory.keys is not None and can_decode(self.score, memory.keys)

    def _force_fused(self, embedded: Tensor, lengths: Tensor, state: DecoderState) -> tuple[Tensor, Tensor]:
        """`_force_stepwise` as one operation. Features that are not fed are read out after the loop, all at once."""
        (layer,), memory, readout, kept = self.decoder.layers, state.memory, None, None
        assert isinstance(layer, RecurrentLayer)
        assert memory.keys is not None
        if self.settings.input_feeding:
            readout = self.readout
            kept = self.dropout(embedded.new_ones(*embedded.shape[:2], self.settings.features_size))
        decoded = decode(
            layer.cell,
            self.score,
            embedded,
            lengths,
            state.layers[0],
            memory.values,
            memory.keys,
            memory.keys.new_ones(memory.keys.shape[:2], dtype=torch.bool) if memory.mask is None else memory.mask,
            context_first=self.context_first,
            readout=readout,
            kept=kept,
        )
        features = decoded.features
        if features is None:
            assert decoded.hidden is not None
            features = self._read_out(decoded.hidden, decoded.context, embedded)
        return features, decoded.weights

    def _force_stepwise(self, embedded: Tensor, state: DecoderState, trace: Any) -> tuple[Tensor, Tensor | None]:
        watch = None if trace is None else _gate_watcher(trace, "decoder", "target", stepwise=True)
        steps = []
        for time in range(embedded.shape[1]):
            features, state, weights = self._advance(embedded[:, time], state, watch)
            steps.append((features, weights))
        attended = torch.stack([weights for _, weights in steps], 1) if self.attends else None
        return torch.stack([features for features, _ in steps], 1), attended

    def advance(
        self, tokens: Tensor, state: DecoderState, *, attention: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step: (rows,) symbols -> features (rows, features size), next state, attention (rows, source) or None.

        Rows are the sentences of the state's memory, or as many for each, standing together. Attention costs nothing
        extra here: it is given also where it is not wanted.
        """
        return self._advance(self.dropout(self.target_embedding(self.word_dropout(tokens))), state)

    def _advance(
        self, embedded: Tensor, state: DecoderState, watch: Watch | None = None
    ) -> tuple[Tensor, DecoderState, Any]:
        context = weights = None
        if self.context_first:
            if self.attends:
                context, weights = self._look_once(state.layers[-1].hidden, state.memory)  # where it comes from
            else:
                summary = state.memory.summary
                context = summary.repeat_interleave(len(embedded) // max(1, len(summary)), 0)
        parts = [part for part in (embedded, context, state.fed) if part is not None]
        hidden, layers = self.decoder.step(torch.cat(parts, -1), state.layers, watch)  # (batch, hidden)
        if self.attends and not self.context_first:
            context, weights = self._look_once(hidden, state.memory)
        features = self._read_out(hidden, context, embedded)
        fed = features if self.settings.input_feeding else None
        return features, DecoderState(layers, fed, state.memory), weights

    def _look(self, query: Tensor, memory: Memory) -> Attended:
        assert memory.keys is not None
        mask = None if memory.mask is None else memory.mask[:, None]
        return attend(self.score(query, memory.keys), memory.values, mask)

    def _look_once(self, query: Tensor, memory: Memory) -> Attended:
        """One look a row: the rows of a sentence are the queries of one block; (rows, d) -> (rows, …)."""
        context, weights = self._look(query.view(len(memory.values), -1, query.shape[1]), memory)
        return Attended(context.flatten(0, 1), weights.flatten(0, 1))

    def _read_out(self, hidden: Tensor, context: Tensor | None, embedded: Tensor) -> Tensor:
        """What the output layer sees: tanh(W [hidden; context; embedded]), each part where the decoder has it."""
        if self.readout is not None:
            parts = [hidden] if context is None else [hidden, context]
            if self.context_first:
                parts.append(embedded)
            hidden = linear(torch.cat(parts, -1), self.readout).tanh()
        return self.dropout(hidden)


def _gate_watcher(trace: Any, side: str, axis: str, stepwise: bool = False) -> Watch:
    """Puts a layer's gates into the trace, for the first sentence of the batch."""

    def watch(layer: str, gates: dict[str, Tensor]) -> None:
        for gate, values in gates.items():
            name = f"{side}.{layer}.{gate}"
            if stepwise:
                trace.append(name, values[0], rows=axis, columns="unit")
            else:
                trace.add(name, values[0], rows=axis, columns="unit")

    return watch

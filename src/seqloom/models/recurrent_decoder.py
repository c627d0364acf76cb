"""A recurrent decoder over any memory.

`state`      starts from the memory's states and is on its own (Sutskever et al. 2014)
`context`    sees the memory's summary again at every step (Cho et al. 2014)
`attention`  looks back at the memory at every step,
             with the state it has reached (`luong` order: Luong et al. 2015) or
             with the state it comes from, feeding what it saw in (`bahdanau` order: Bahdanau et al. 2015)
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Target
from seqloom.models.memory import Memory, MemoryShape
from seqloom.models.recurrent_encoder import gate_watcher
from seqloom.models.settings import CellName, ConnectionName, ScoreName
from seqloom.nn.attention import SCORES, Attended, attend
from seqloom.nn.cells import State
from seqloom.nn.dropout import Dropout, WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.fused_decoder import can_decode, decode
from seqloom.nn.narrow import linear
from seqloom.nn.recurrent import RecurrentLayer, RecurrentStack, Watch, select_rows
from seqloom.settings import ModelSettings

SAME_SIZE = ("dot", "scaled_dot")  # scores without weights: query and memory must have one size


class RecurrentDecoderSettings(ModelSettings):
    """Settings of the recurrent decoder."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellName = "lstm"
    embedding_size: int = Field(256, ge=1)
    hidden_size: int = Field(512, ge=1)
    num_layers: int = Field(1, ge=1)
    connections: ConnectionName = Field("plain", description="what leads around each layer but the first")
    looks: Literal["state", "context", "attention"] = Field("attention", description="what it sees of the source")
    attention: ScoreName = "multiplicative"
    order: Literal["luong", "bahdanau"] = "luong"
    input_feeding: bool = Field(False, description="feed the last attentional vector into the next step")
    readout_size: int | None = Field(None, ge=1, description="width before the output layer (default: hidden size)")
    dropout: float = Field(0.2, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _feeds(self) -> RecurrentDecoderSettings:
        if self.input_feeding and self.looks != "attention":
            raise ValueError(f"input_feeding needs attention; this decoder looks at: {self.looks}")
        return self

    @property
    def features_size(self) -> int:
        return self.readout_size or self.hidden_size

    @property
    def attends(self) -> bool:
        return self.looks == "attention"

    def problem_with(self, memory: MemoryShape) -> str | None:
        """Why this decoder cannot look at such a memory."""
        if not self.attends or self.attention not in SAME_SIZE or memory.size == self.hidden_size:
            return None
        return (
            f"attention: {self.attention} compares vectors of one size; the encoder gives {memory.size}, the decoder's "
            f"hidden_size is {self.hidden_size}: make them equal, or choose multiplicative or additive"
        )


class Source(NamedTuple):
    """A memory as this decoder looks at it: `keys` as the score prepares them; `summary` if every step sees it."""

    values: Tensor
    keys: Tensor | None
    mask: Tensor | None  # None where no row is padded
    summary: Tensor | None


class DecoderState(NamedTuple):
    """All a decoder needs to go on: its layers' states, the last attentional vector if it is fed, the source.

    `layers` and `fed` have a row a hypothesis; `source` has one a sentence, however many hypotheses look at it.
    """

    layers: tuple[State, ...]
    fed: Tensor | None
    source: Source

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        source = self.source if sentences is None else select_rows(self.source, sentences)
        return DecoderState(select_rows(self.layers, rows), select_rows(self.fed, rows), source)


class RecurrentDecoder(nn.Module):
    """Recurrent decoder, with attention or without."""

    piece_tokens = 2048  # computed with at once in training: its steps need many rows

    def __init__(
        self,
        settings: RecurrentDecoderSettings,
        embedding: SymbolEmbedding,
        *,
        num_symbols: int,
        memory: MemoryShape,
        word_dropout: float = 0.0,
    ) -> None:
        """Its first states are the memory's, where these are of its own cell and size; else made of the summary."""
        super().__init__()
        s = self.settings = settings
        self.plain = False
        self.embedding, self.word_dropout = embedding, WordDropout(word_dropout)
        self.attends = s.attends
        self.context_first = s.looks == "context" or (self.attends and s.order == "bahdanau")
        context_size = memory.size if self.context_first else 0
        fed_size = s.features_size if s.input_feeding else 0
        self.stack = RecurrentStack(
            cell=s.cell,
            input_size=s.embedding_size + context_size + fed_size,
            hidden_size=s.hidden_size,
            num_layers=s.num_layers,
            connections=s.connections,
            dropout=s.dropout,
        )
        if self.attends:
            self.score = SCORES[s.attention](query_size=s.hidden_size, memory_size=memory.size)
        seen = s.hidden_size + (0 if s.looks == "state" else memory.size)
        seen += s.embedding_size if self.context_first else 0
        needs_readout = s.looks != "state" or s.features_size != s.hidden_size
        self.readout = nn.Linear(seen, s.features_size) if needs_readout else None
        self.output = nn.Linear(s.features_size, num_symbols)
        nn.init.zeros_(self.output.bias)
        takes_states = (memory.cell, memory.state_size) == (s.cell, s.hidden_size)
        self.bridge = None if takes_states else nn.Linear(memory.size, s.num_layers * s.hidden_size)
        self.dropout = Dropout(s.dropout)

    # -- from the memory ---------------------------------------------------------------------------------------------

    def start(self, memory: Memory) -> DecoderState:
        """The layers start from the encoder's last states, or from what is made of the memory's summary.

        Of a deeper encoder the top states are taken; for a deeper decoder the topmost serves the rest.
        """
        keys = self.score.prepare(memory.values) if self.attends else None
        summary = memory.summarise() if self.settings.looks == "context" else None
        source = Source(memory.values, keys, memory.mask, summary)
        num_layers = self.settings.num_layers
        if self.bridge is None:
            assert memory.states is not None, "checked where the model was built"
            top = memory.states[-num_layers:]
            layers = tuple(top[min(index, len(top) - 1)] for index in range(num_layers))
        else:
            hidden = self.bridge(memory.summarise()).tanh().chunk(num_layers, -1)
            empty = [layer.start(memory.values[:, 0])[0] for layer in self.stack.layers]  # type: ignore[operator]
            layers = tuple(state._replace(hidden=h) for state, h in zip(empty, hidden, strict=True))
        fed = None
        if self.settings.input_feeding:
            fed = memory.values.new_zeros(len(memory.values), self.settings.features_size)
        return DecoderState(layers, fed, source)

    # -- all steps at once -------------------------------------------------------------------------------------------

    def forward(self, memory: Memory, target: Target, trace: Any = None) -> Tensor:
        """Teacher forcing: (batch, target) symbols in -> features (batch, target, features size) for the output layer.

        With a trace, the first sentence's attention and gates are put into it.
        """
        features, weights = self._force(memory, target, trace)
        if trace is not None and weights is not None:
            trace.add("decoder.attention", weights[0], rows="target", columns="source")
        return features

    def align(self, memory: Memory, target: Target) -> Tensor | None:
        """Attention along a known target: (batch, target, source), or None without it."""
        return self._force(memory, target, None)[1]

    def _embed(self, symbols: Tensor) -> Tensor:
        return self.dropout(self.embedding(self.word_dropout(symbols)))

    def _force(self, memory: Memory, target: Target, trace: Any) -> tuple[Tensor, Tensor | None]:
        """Where no step waits for what attention saw in the step before, all steps are computed at once.

        What comes out at padding is not defined: the loss leaves it out, and the fast paths do not compute it.
        """
        state, embedded = self.start(memory), self._embed(target.inputs)  # (batch, target, embedding)
        waits = self.settings.input_feeding or (self.attends and self.context_first)
        if trace is None and waits and self._can_fuse(state.source):
            return self._force_fused(embedded, target.lengths, state)
        if trace is not None or waits:
            return self._force_stepwise(embedded, state, trace)
        context = weights = None
        inputs = embedded
        if self.context_first:
            assert state.source.summary is not None
            context = state.source.summary[:, None].expand(-1, embedded.shape[1], -1)
            inputs = torch.cat([embedded, context], -1)
        hidden, _ = self.stack(inputs, state.layers, target.lengths)  # (batch, target, hidden)
        if self.attends:
            context, weights = self._look(hidden, state.source)  # (batch, target, memory)
        return self._read_out(hidden, context, embedded), weights

    def _can_fuse(self, source: Source) -> bool:
        (layer, *more), keys = self.stack.layers, source.keys
        if more or self.plain or keys is None:
            return False
        assert isinstance(layer, RecurrentLayer)
        return can_decode(layer.cell, self.score, keys)

    def _force_fused(self, embedded: Tensor, lengths: Tensor, state: DecoderState) -> tuple[Tensor, Tensor]:
        """`_force_stepwise` as one operation. Features that are not fed are read out after the loop, all at once."""
        (layer,), source, readout, kept = self.stack.layers, state.source, None, None
        assert isinstance(layer, RecurrentLayer)
        assert source.keys is not None
        if self.settings.input_feeding:
            readout = self.readout
            kept = self.dropout(embedded.new_ones(*embedded.shape[:2], self.settings.features_size))
        decoded = decode(
            layer.cell,
            self.score,
            embedded,
            lengths,
            state.layers[0],
            source.values,
            source.keys,
            source.keys.new_ones(source.keys.shape[:2], dtype=torch.bool) if source.mask is None else source.mask,
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
        watch = None if trace is None else gate_watcher(trace, "decoder", "target", stepwise=True)
        steps = []
        for time in range(embedded.shape[1]):
            features, state, weights = self._advance(embedded[:, time], state, watch)
            steps.append((features, weights))
        attended = torch.stack([weights for _, weights in steps], 1) if self.attends else None
        return torch.stack([features for features, _ in steps], 1), attended

    # -- one step ----------------------------------------------------------------------------------------------------

    def advance(
        self, tokens: Tensor, state: DecoderState, *, attention: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step: (rows,) symbols -> features (rows, features size), next state, attention (rows, source) or None.

        Attention costs nothing extra here: it is given also where it is not wanted.
        """
        return self._advance(self._embed(tokens), state)

    def _advance(
        self, embedded: Tensor, state: DecoderState, watch: Watch | None = None
    ) -> tuple[Tensor, DecoderState, Any]:
        context = weights = None
        if self.context_first:
            if self.attends:
                context, weights = self._look_once(state.layers[-1].hidden, state.source)  # where it comes from
            else:
                summary = state.source.summary
                assert summary is not None
                context = summary.repeat_interleave(len(embedded) // max(1, len(summary)), 0)
        parts = [part for part in (embedded, context, state.fed) if part is not None]
        hidden, layers = self.stack.step(torch.cat(parts, -1), state.layers, watch)  # (batch, hidden)
        if self.attends and not self.context_first:
            context, weights = self._look_once(hidden, state.source)
        features = self._read_out(hidden, context, embedded)
        fed = features if self.settings.input_feeding else None
        return features, DecoderState(layers, fed, state.source), weights

    def _look(self, query: Tensor, source: Source) -> Attended:
        assert source.keys is not None
        mask = None if source.mask is None else source.mask[:, None]
        return attend(self.score(query, source.keys), source.values, mask)

    def _look_once(self, query: Tensor, source: Source) -> Attended:
        """One look a row: the rows of a sentence are the queries of one block; (rows, d) -> (rows, …)."""
        context, weights = self._look(query.view(len(source.values), -1, query.shape[1]), source)
        return Attended(context.flatten(0, 1), weights.flatten(0, 1))

    def _read_out(self, hidden: Tensor, context: Tensor | None, embedded: Tensor) -> Tensor:
        """What the output layer sees: tanh(W [hidden; context; embedded]), each part where the decoder has it."""
        if self.readout is not None:
            parts = [hidden] if context is None else [hidden, context]
            if self.context_first:
                parts.append(embedded)
            hidden = linear(torch.cat(parts, -1), self.readout).tanh()
        return self.dropout(hidden)

"""The decoder-only Transformer: a causal stack that looks back at what it has read, and nothing else."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.models.settings import TextVectorsSettings, TransformerSettings
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.multihead import KeysValues
from seqloom.nn.positions import NoPositions, Rotary, distances, rotated


class TransformerLanguageModelSettings(TransformerSettings):
    """Settings of the Transformer language model."""

    kind: Literal["transformer_lm"] = "transformer_lm"
    num_layers: int = Field(4, ge=1)
    context: int = Field(256, ge=1, le=100_000, description="most symbols a layer looks at, the newest among them")
    tie: bool = Field(True, description="the output layer is the embedding")

    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> TransformerLanguageModelSettings:
        if self.max_positions is not None:
            raise ValueError(
                f"max_positions: here context says how many positions there are; set context: {self.max_positions}"
            )
        return self


class Ragged(NamedTuple):
    """The state after rows of different lengths, from which there is no going on: one position serves all rows."""


State = tuple[KeysValues, ...] | Ragged | None


class TransformerLanguageModel(nn.Module):
    """Transformer language model. The state is the keys and values each layer still looks at.

    How it reads a text longer than its context depends on its positions:

    - counted inside attention as distances, or not at all: every symbol is looked at from the next `context` - 1 ones;
      what is older is dropped before the next symbol is read, and there is no end to what can be read.
    - counted from the beginning and added to the embeddings (`learned`, `sinusoidal`): there are `context` of them. The
      text is read in windows of as many symbols; after a full one the state is None, and the next symbol begins a new
      window, in which nothing before it is seen. `room` says how many are left, for those who would rather begin
      earlier, with the last part of the text read again.
    """

    attends = False

    def __init__(self, settings: TransformerLanguageModelSettings, *, num_symbols: int) -> None:
        super().__init__()
        s = self.settings = settings
        self.embedding = SymbolEmbedding(num_symbols, s.size)
        self.decoder = s.model_copy(update={"max_positions": s.context}).stack(s.num_layers, causal=True)
        self.output = nn.Linear(s.size, num_symbols)
        nn.init.normal_(self.output.weight, std=s.size**-0.5)
        nn.init.zeros_(self.output.bias)
        if s.tie:
            self.output.weight = self.embedding.weight
        self.counts_from_the_beginning = type(self.decoder.positions) is not NoPositions

    def room(self, state: State) -> int | None:
        """How many symbols can be read from a state before a new window begins; None where there are no windows."""
        assert not isinstance(state, Ragged), "rows of different lengths cannot go on together: read them by length"
        return self.settings.context - _num_seen(state) if self.counts_from_the_beginning else None

    def forward(
        self, inputs: Tensor, state: State = None, lengths: Tensor | None = None, trace: Any = None
    ) -> tuple[Tensor, State]:
        """(rows, time) symbols -> features (rows, time, size) for the output layer, keys and values so far.

        With a trace, the first row's attention is put into it, of every layer and head. It shows one window, so there
        may be at most `context` symbols, and `room` for them.
        """
        context, features = self.settings.context, []
        room = self.room(state) or context
        pieces = [inputs[:, :room], *(inputs[:, room:].split(context, 1) if inputs.shape[1] > room else ())]
        assert trace is None or len(pieces) == 1, "a trace shows one window"
        for piece in pieces:
            assert not isinstance(state, Ragged), "said in `room`"
            found, state = self._read(piece, state, trace)
            features.append(found)
        if lengths is not None and bool((lengths < inputs.shape[1]).any()):
            state = Ragged()
        return features[0] if len(features) == 1 else torch.cat(features, 1), state

    def _read(self, symbols: Tensor, past: tuple[KeysValues, ...] | None, trace: Any) -> tuple[Tensor, State]:
        """What fits into one window, or at most `context` symbols where there are none."""
        if past is not None and not self.counts_from_the_beginning:
            past = self._newest(past)
        context, num_past, time = self.settings.context, _num_seen(past), symbols.shape[1]
        mask = None  # a causal stack hides what follows; what is too old must be hidden only if it is there
        if num_past + time > context:
            mask = (distances(time, num_past + time, num_past) > -context).to(symbols.device)  # (time, keys)
        watch = None if trace is None else _head_watcher(trace)
        features, kept = self.decoder(self.embedding(symbols), mask, past=past, watch=watch)
        over = self.counts_from_the_beginning and num_past + time == context
        return features, None if over else kept

    def _newest(self, kept: tuple[KeysValues, ...]) -> tuple[KeysValues, ...] | None:
        """What the next symbol can look at besides itself. Done when there is one: most training never goes on."""
        most = self.settings.context - 1
        dropped = _num_seen(kept) - most
        if dropped <= 0:
            return kept
        newest = tuple(KeysValues(keys[:, :, dropped:], values[:, :, dropped:]) for keys, values in kept)
        positions = [layer.attention.positions for layer in self.decoder.layers]  # type: ignore[union-attr]
        if isinstance(positions[0], Rotary):
            newest = tuple(_moved_back(past, rotary, dropped) for past, rotary in zip(newest, positions, strict=True))  # type: ignore[arg-type]
        return newest if most else None


def _num_seen(state: tuple[KeysValues, ...] | Ragged | None) -> int:
    return state[0].keys.shape[2] if state else 0


def _moved_back(past: KeysValues, rotary: Rotary, steps: int) -> KeysValues:
    """Keys turned as if they stood `steps` positions earlier, so that the first of them stands at 0 again.

    Every turn rounds a little; a key is turned back fewer than `context` times before it is dropped.
    """
    keys, half = past.keys, past.keys.shape[-1] // 2
    unit = torch.cat([keys.new_ones(half), keys.new_zeros(half)]).expand(1, 1, 1, -1)
    cosines, sines = rotary.rotate(unit, steps).chunk(2, -1)
    return past._replace(keys=rotated(keys, cosines, -sines))


def _head_watcher(trace: Any) -> Any:
    """Puts the attention of all heads into the trace, for the first row."""

    def watch(name: str, weights: Tensor) -> None:
        trace.add(f"decoder.{name}", weights[0], axes=("head", "target", "target_in"))

    return watch

"""The decoder of Vaswani et al. 2017, over any memory: each symbol looks at those before it and at the source."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batches.collate import Target
from seqloom.models.memory import Memory, MemoryShape
from seqloom.models.settings import TransformerSettings
from seqloom.models.transformer_encoder import head_watcher
from seqloom.nn.dropout import WordDropout
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.multihead import KeysValues, Past
from seqloom.nn.recurrent import select_rows
from seqloom.nn.transformer import TransformerLayer


class TransformerDecoderSettings(TransformerSettings):
    """Settings of the Transformer decoder."""

    kind: Literal["transformer"] = "transformer"
    num_layers: int = Field(4, ge=1)
    alignment_layer: int | None = Field(
        None, ge=0, description="layer whose mean attention is the alignment (default: the last but one)"
    )

    @model_validator(mode="after")
    def _has_that_layer(self) -> TransformerDecoderSettings:
        if self.alignment_layer is not None and self.alignment_layer >= self.num_layers:
            raise ValueError(
                f"alignment_layer counts from 0 and there are {self.num_layers} decoder layers; "
                f"got {self.alignment_layer}"
            )
        return self

    @property
    def embedding_size(self) -> int:
        return self.size

    @property
    def features_size(self) -> int:
        return self.size

    @property
    def attends(self) -> bool:
        return True

    def problem_with(self, memory: MemoryShape) -> str | None:
        """None: a memory of another width is mapped."""
        return None


class DecoderState(NamedTuple):
    """All the decoder needs to go on: each layer's keys and values of the symbols so far, and of the source.

    `past` has a row a hypothesis; `source` and `mask` have one a sentence, however many hypotheses look at it.
    """

    past: tuple[KeysValues, ...] | Past | None
    source: tuple[KeysValues, ...]
    mask: Tensor | None

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        past = self.past.follow(rows) if isinstance(self.past, Past) else select_rows(self.past, rows)
        if sentences is None:
            return self._replace(past=past)
        return DecoderState(past, select_rows(self.source, sentences), select_rows(self.mask, sentences))


class TransformerDecoder(nn.Module):
    """Transformer decoder."""

    attends = True
    piece_tokens = 640  # computed with at once in training: more is somewhat faster, but the memory is felt

    def __init__(
        self,
        settings: TransformerDecoderSettings,
        embedding: SymbolEmbedding,
        *,
        num_symbols: int,
        memory: MemoryShape,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        s = self.settings = settings
        self.embedding, self.word_dropout = embedding, WordDropout(word_dropout)
        self.stack = s.stack(s.num_layers, causal=True, cross=True)
        self.output = nn.Linear(s.size, num_symbols)
        nn.init.normal_(self.output.weight, std=s.size**-0.5)
        nn.init.zeros_(self.output.bias)
        self.bridge = None if memory.size == s.size else nn.Linear(memory.size, s.size)
        self.alignment_layer = max(0, s.num_layers - 2) if s.alignment_layer is None else s.alignment_layer

    # -- from the memory ---------------------------------------------------------------------------------------------

    def start(self, memory: Memory) -> DecoderState:
        """What every layer will look at of the source, before the first symbol."""
        values = memory.values if self.bridge is None else self.bridge(memory.values)
        past = None if torch.is_grad_enabled() else self._no_past(values)  # gradients need tensors of their own
        return DecoderState(past, self.stack.prepare(values), _of_keys(memory.mask))

    def _no_past(self, values: Tensor) -> Past:
        s = self.settings
        return Past.empty(values, len(values), size=s.size, num_layers=s.num_layers, num_heads=s.num_heads)

    # -- all steps at once -------------------------------------------------------------------------------------------

    def forward(self, memory: Memory, target: Target, trace: Any = None) -> Tensor:
        """Teacher forcing: (batch, target) symbols in -> features (batch, target, size) for the output layer.

        With a trace, the first sentence's attention is put into it: of every layer and head, and as one alignment.
        """
        watch = None if trace is None else head_watcher(trace, "decoder", "target", "target_in")
        features, weights = self._force(memory, target, watch)
        if trace is not None:
            trace.add("decoder.attention", weights[0], rows="target", columns="source")
        return features

    def align(self, memory: Memory, target: Target) -> Tensor:
        """Mean attention of the alignment layer's heads along a known target: (batch, target, source)."""
        return self._force(memory, target, lambda name, weights: None)[1]

    def _force(self, memory: Memory, target: Target, watch: Any) -> tuple[Tensor, Tensor]:
        state, found = self.start(memory), list[Tensor]()
        features, _ = self.stack(
            self.embedding(self.word_dropout(target.inputs)),
            memory=state.source,
            memory_mask=state.mask,
            watch=None if watch is None else self._alignment_into(found, watch),
        )
        return features, found[0] if found else features.new_empty(0)

    # -- one step ----------------------------------------------------------------------------------------------------

    def advance(
        self, tokens: Tensor, state: DecoderState, *, attention: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step: (rows,) symbols -> features (rows, size), next state, attention (rows, source) if it is wanted."""
        found: list[Tensor] = []
        past = state.past.with_room() if isinstance(state.past, Past) else state.past
        features, kept = self.stack(
            self.embedding(self.word_dropout(tokens[:, None])),
            past=past.layers() if isinstance(past, Past) else past,
            memory=state.source,
            memory_mask=state.mask,
            watch=self._alignment_into(found, None) if attention else None,
        )
        if isinstance(past, Past):
            past.length += 1
        else:
            past = kept
        weights = found[0].flatten(0, 1) if attention else None  # (sentences, width, source) -> (rows, source)
        return features[:, 0], state._replace(past=past), weights

    def _alignment_into(self, found: list[Tensor], also: Any) -> Any:
        """Keeps the mean over heads of the alignment layer's attention."""
        wanted = f"{self.alignment_layer}.cross"

        def watch(name: str, weights: Tensor) -> None:
            if name == wanted:
                found.append(weights.mean(1))
            if also is not None:
                also(name, weights)

        return watch

    # -- looking inside ----------------------------------------------------------------------------------------------

    def heads(self) -> list[tuple[str, int, int]]:
        s = self.settings
        places = [(site, layer) for layer in range(s.num_layers) for site in ("decoder", "cross")]
        return [(site, layer, head) for site, layer in places for head in range(s.num_heads)]

    def head_weight(self, site: str, layer: int) -> tuple[Tensor, int]:
        block = self.stack.layers[layer]
        assert isinstance(block, TransformerLayer)
        attention = block.cross if site == "cross" else block.attention
        assert attention is not None
        return attention.output.weight, self.settings.size // self.settings.num_heads


def _of_keys(mask: Tensor | None) -> Tensor | None:
    """(batch, keys) -> (batch, 1, 1, keys)"""
    return None if mask is None else mask[:, None, None]

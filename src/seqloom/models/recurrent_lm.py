"""Recurrent language models: embedding, a stack of recurrent layers, output layer.

Regularised as one likes: dropout on what flows upwards, drawn for every step or once a sequence (Zaremba et al. 2014;
Gal & Ghahramani 2016), on whole words, and on the weights from state to state (Merity et al. 2018).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.models.settings import CellName, ConnectionName, TextVectorsSettings
from seqloom.nn.cells import CELLS, Cell, State
from seqloom.nn.dropout import DROPOUTS, SymbolDropout
from seqloom.nn.embeddings import SymbolEmbedding, start_within
from seqloom.nn.recurrent import RecurrentStack, Watch
from seqloom.settings import ModelSettings


class RecurrentLanguageModelSettings(ModelSettings):
    """Settings of the recurrent language model."""

    kind: Literal["recurrent_lm"] = "recurrent_lm"
    cell: CellName = "lstm"
    size: int = Field(200, ge=1, description="of the embedding")
    hidden_size: int = Field(200, ge=1)
    num_layers: int = Field(2, ge=1)
    connections: ConnectionName = Field("plain", description="what leads around each layer but the first")
    tie: bool = Field(False, description="the output layer is the embedding")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="between layers and before the output layer")
    input_dropout: float | None = Field(None, ge=0.0, lt=1.0, description="on embeddings (default: as dropout)")
    dropout_kind: Literal["independent", "variational"] = Field(
        "independent", description="units drawn for every step, or once for all steps of a sequence"
    )
    embedding_dropout: float = Field(0.0, ge=0.0, lt=1.0, description="share of words dropped wherever they stand")
    weight_drop: float = Field(0.0, ge=0.0, lt=1.0, description="on the weights from state to state")
    init_range: float | None = Field(
        None, gt=0.0, le=10.0, description="weights start uniform within it, and embeddings are not scaled up"
    )
    recurrent_scale: float = Field(
        1.0, gt=0.0, le=100.0, description="what weights from state to state start multiplied by: 1 is orthogonal"
    )
    remember: int | None = Field(
        None, ge=3, description="gates start so that units keep what they hold for up to so many steps"
    )

    pretrained: TextVectorsSettings | None = Field(None, description="vectors that the embedding starts from")

    @model_validator(mode="after")
    def _fits(self) -> RecurrentLanguageModelSettings:
        if self.tie and self.size != self.hidden_size:
            raise ValueError(f"tie needs size and hidden_size to be equal; got {self.size} and {self.hidden_size}")
        if self.connections != "plain" and self.num_layers == 1:
            raise ValueError(
                f"connections: {self.connections} has no layer to lead around with num_layers: 1; raise it, or leave "
                "connections plain"
            )
        if self.recurrent_scale != 1.0 and self.init_range is not None:
            raise ValueError("recurrent_scale and init_range are two ways to start; choose one")
        if self.remember is not None and CELLS[self.cell].keep_block is None:
            raise ValueError(f"remember needs a cell with gates, such as lstm or gru; {self.cell} has none")
        return self


class RecurrentLanguageModel(nn.Module):
    """Recurrent language model, of any cell. The state is that of each layer."""

    attends = False

    def __init__(self, settings: RecurrentLanguageModelSettings, *, num_symbols: int) -> None:
        super().__init__()
        s = self.settings = settings
        self.embedding = SymbolEmbedding(num_symbols, s.size)
        self.decoder = RecurrentStack(
            cell=s.cell,
            input_size=s.size,
            hidden_size=s.hidden_size,
            num_layers=s.num_layers,
            connections=s.connections,
            dropout=s.dropout,
            dropout_kind=s.dropout_kind,
            weight_drop=s.weight_drop,
        )
        self.output = nn.Linear(s.hidden_size, num_symbols)
        nn.init.zeros_(self.output.bias)
        if s.tie:
            self.output.weight = self.embedding.weight
        self.symbol_dropout = SymbolDropout(s.embedding_dropout)
        self.input_dropout = DROPOUTS[s.dropout_kind](s.dropout if s.input_dropout is None else s.input_dropout)
        self.dropout = DROPOUTS[s.dropout_kind](s.dropout)
        if s.init_range is not None:
            of_cells = [weight for cell in self._cells() for weight in (cell.weight_input, cell.weight_hidden)]
            start_within(s.init_range, self.embedding, [self.output.weight, *of_cells])
        with torch.no_grad():
            for cell in self._cells():
                cell.weight_hidden.mul_(s.recurrent_scale)
                if s.remember is not None:
                    cell.start_remembering(s.remember)

    def _cells(self) -> list[Cell]:
        return [cell for layer in self.decoder.layers for cell in layer.cells]  # type: ignore[union-attr]

    def forward(
        self,
        inputs: Tensor,
        state: tuple[State, ...] | None = None,
        lengths: Tensor | None = None,
        trace: Any = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """(rows, time) symbols -> features (rows, time, hidden size), the state of each layer after each row's last.

        With a trace, the first row's gates are put into it.
        """
        watch = None if trace is None else _gate_watcher(trace)
        embedded = self.symbol_dropout(self.embedding(inputs), inputs, self.output.out_features)
        hidden, state = self.decoder(self.input_dropout(embedded), state, lengths, watch=watch)
        return self.dropout(hidden), state

    def room(self, state: Any) -> None:
        """There is no end to what it can read."""


def _gate_watcher(trace: Any) -> Watch:
    """Puts the gates of all layers into the trace, for the first row, by the symbols that were read."""

    def watch(layer: str, gates: dict[str, Tensor]) -> None:
        for gate, values in gates.items():
            trace.add(f"decoder.{layer}.{gate}", values[0], rows="target_in", columns="unit")

    return watch

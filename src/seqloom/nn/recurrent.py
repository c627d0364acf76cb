"""Cells over whole sequences: unrolled in plain sight, or as one operation (`fused.py`).

torch's own compiled loops, where it has the formula, serve when no gradient is wanted, on other devices than a CPU, and
where `trains_fused` says that they are faster. A cell that has neither is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.nn.cells import CELLS, Cell, Gates, State
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.dropout import DROPOUTS, Dropout
from seqloom.nn.fused import FusedCell, has_steps, run_layer
from seqloom.nn.masks import length_mask

Watch = Callable[[str, Gates], None]  # called with a layer's name and the gates of all its steps, (batch, time, units)
Loop = Callable[..., tuple[Tensor, list[State]]]  # `run_fused` or `run_compiled`

FUSED_FROM = 256  # units: below it torch's compiled loop trains faster, its steps being too short for calls from Python


class CompiledCell(Cell, Protocol):
    """A cell that torch has a loop for."""

    def kernel_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]: ...


def kernel_of(cell: Cell) -> str | None:
    """The compiled loop that this very class names: one made from it has a formula of its own."""
    return vars(type(cell)).get("kernel")


def trains_fused(cell: Cell, lengths: Tensor | None) -> bool:
    """Whether `run_fused` trains a cell faster than torch's own loop on a CPU.

    An LSTM over rows without padding it does not, at any size: for those alone torch hands the loop to oneDNN, which
    lays the weights out once for all steps.
    """
    return cell.hidden_size >= FUSED_FROM and not (kernel_of(cell) == "lstm" and lengths is None)


def fast_loop(cell: Cell, inputs: Tensor, lengths: Tensor | None) -> Loop | None:
    """What gives the same as `unroll` in less time; None for a cell that only has its formula."""
    compiled = kernel_of(cell) is not None
    trains = torch.is_grad_enabled() and inputs.device.type == "cpu"
    if has_steps(cell) and (not compiled or (trains and trains_fused(cell, lengths))):
        return run_fused
    return run_compiled if compiled else None


def select_rows(state: Any, rows: Tensor) -> Any:
    """Pick rows of every tensor in nested tuples: how beam search follows its survivors, for any state."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    items = [select_rows(item, rows) for item in state]
    return type(state)(*items) if hasattr(state, "_fields") else tuple(items)


class Unrolled(NamedTuple):
    """`outputs` (batch, time, hidden), zero at padding; `state` after each row's last step; `gates` of all steps."""

    outputs: Tensor
    state: State
    gates: Gates


def unroll(
    cell: Cell,
    inputs: Tensor,
    state: State,
    lengths: Tensor | None = None,
    *,
    backward: bool = False,
    hidden_weight: Tensor | None = None,
) -> Unrolled:
    """Run a cell over (batch, time, input) step by step, as the textbook draws it; padding leaves the state alone.

    `hidden_weight` is taken in place of the cell's own.
    """
    projected = cell.project(inputs)  # (batch, time, blocks * hidden)
    num_steps = inputs.shape[1]
    mask = None if lengths is None else length_mask(lengths, num_steps)
    hiddens: list[Tensor] = [inputs.new_empty(0)] * num_steps
    collected: list[Gates] = [{}] * num_steps
    for time in reversed(range(num_steps)) if backward else range(num_steps):
        new, gates = cell.step(projected[:, time], state, hidden_weight)
        if mask is not None:
            real = mask[:, time, None]
            hiddens[time] = new.hidden * real
            new = new._make(torch.where(real, a, b) for a, b in zip(new, state, strict=True))
        else:
            hiddens[time] = new.hidden
        state, collected[time] = new, gates
    gates = {name: torch.stack([step[name] for step in collected], 1) for name in collected[0]}
    return Unrolled(torch.stack(hiddens, 1), state, gates)


def run_fused(
    cells: Sequence[FusedCell],
    inputs: Tensor,
    states: Sequence[State],
    lengths: Tensor | None,
    hidden_weights: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor, list[State]]:
    """`unroll` as one operation: one cell, or a forward and a backward one; `hidden_weights` in place of their own.

    -> outputs (batch, time, directions * hidden), one final state a direction
    """
    outputs, finals = run_layer(cells, inputs, states, lengths, hidden_weights or [None] * len(cells))
    return outputs, [state._make(parts) for state, parts in zip(states, finals, strict=True)]


def run_compiled(
    cells: Sequence[CompiledCell],
    inputs: Tensor,
    states: Sequence[State],
    lengths: Tensor | None,
    hidden_weights: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor, list[State]]:
    """One layer in torch's own loop: one cell, or a forward and a backward one; `hidden_weights` as above.

    -> outputs (batch, time, directions * hidden), one final state a direction
    """
    kernel: Any = getattr(torch, kernel_of(cells[0]) or "")
    given = hidden_weights or [None] * len(cells)
    weights = [tensor for cell, hidden in zip(cells, given, strict=True) for tensor in cell.kernel_weights(hidden)]
    initial = [torch.stack(parts) for parts in zip(*states, strict=True)]  # each (directions, batch, hidden)
    settings = (weights, True, 1, 0.0, False, len(cells) == 2)
    if lengths is None:
        hx = initial if len(initial) == 2 else initial[0]
        outputs, *final = kernel(inputs, hx, *settings, True)
    else:
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        assert packed.sorted_indices is not None
        assert packed.unsorted_indices is not None
        initial = [part.index_select(1, packed.sorted_indices) for part in initial]
        hx = initial if len(initial) == 2 else initial[0]
        data, *final = kernel(packed.data, packed.batch_sizes, hx, *settings)
        outputs, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=inputs.shape[1])
        final = [part.index_select(1, packed.unsorted_indices) for part in final]
    return outputs, [state._make(part[direction] for part in final) for direction, state in enumerate(states)]


class RecurrentLayer(nn.Module):
    """One layer in one direction, or in both (the outputs side by side).

    `weight_drop` is the share of weights from state to state left out while training (Merity et al. 2018): one draw a
    call, for all its rows and steps, whichever way they are computed.
    """

    def __init__(
        self,
        *,
        cell: str,
        input_size: int,
        hidden_size: int,
        bidirectional: bool = False,
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.names = ("forward", "backward") if bidirectional else ("forward",)
        self.plain = False
        kind = CELLS[cell]
        cells = [kind(input_size=input_size, hidden_size=hidden_size) for _ in self.names]
        self.cells = nn.ModuleList(cells)  # type: ignore[arg-type]
        self.weight_dropout = Dropout(weight_drop)

    def start(self, like: Tensor) -> list[State]:
        return [cell.start(like) for cell in self._cells()]

    def _cells(self) -> list[Cell]:
        return list(self.cells)  # type: ignore[arg-type]

    def forward(
        self,
        inputs: Tensor,
        states: Sequence[State] | None = None,
        lengths: Tensor | None = None,
        *,
        watch: Watch | None = None,
    ) -> tuple[Tensor, list[State]]:
        """(batch, time, input) -> (batch, time, directions * hidden), the final state of each direction."""
        cells = self._cells()
        states = self.start(inputs) if states is None else states
        weights = [self.weight_dropout(cell.weight_hidden) for cell in cells]
        one_step = inputs.shape[1] == 1 and lengths is None and not torch.is_grad_enabled()
        if watch is None and not self.plain and not one_step:  # oneDNN would lay out the weights for a single use
            loop = fast_loop(cells[0], inputs, lengths)
            if loop is not None:
                return loop(cells, inputs, states, lengths, weights)
        runs = []
        for name, cell, state, weight in zip(self.names, cells, states, weights, strict=True):
            run = unroll(cell, inputs, state, lengths, backward=name == "backward", hidden_weight=weight)
            if watch is not None:
                watch(name, run.gates)
            runs.append(run)
        return torch.cat([run.outputs for run in runs], -1), [run.state for run in runs]

    @property
    def cell(self) -> Cell:
        """The cell of a one-directional layer."""
        (cell,) = self._cells()
        return cell

    def step(self, inputs: Tensor, state: State) -> tuple[State, Gates]:
        """One step of a one-directional layer: (batch, input) -> the next state."""
        cell = self.cell
        weight = self.weight_dropout(cell.weight_hidden)
        return cell.step(cell.project(inputs), state, weight)


class RecurrentStack(nn.Module):
    """Layers on top of each other, with dropout between them and a connection around each but the first."""

    def __init__(
        self,
        *,
        cell: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool = False,
        connections: str = "plain",
        dropout: float = 0.0,
        dropout_kind: str = "independent",
        weight_drop: float = 0.0,
    ) -> None:
        """`hidden_size` is what a layer gives out: with two directions each has half of it."""
        super().__init__()
        each = hidden_size // 2 if bidirectional else hidden_size
        self.layers = nn.ModuleList(
            RecurrentLayer(
                cell=cell,
                input_size=input_size if index == 0 else hidden_size,
                hidden_size=each,
                bidirectional=bidirectional,
                weight_drop=weight_drop,
            )
            for index in range(num_layers)
        )
        kind = CONNECTIONS[connections]
        self.connections = nn.ModuleList(kind(size=hidden_size, num_seen=index) for index in range(1, num_layers))
        self.dropout = DROPOUTS[dropout_kind](dropout)

    def _connect(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        """What the layer above is given; the first layer changes the size, so nothing leads around it."""
        return self.connections[len(seen) - 1](seen, output) if seen else output

    def forward(
        self,
        inputs: Tensor,
        states: Iterable[State] | None = None,
        lengths: Tensor | None = None,
        *,
        watch: Watch | None = None,
        collect: list[Tensor] | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """(batch, time, input) -> (batch, time, hidden size), one final state a layer (directions side by side).

        `collect` is given what each layer passes on, each (batch, time, hidden size).
        """
        starts = [None] * len(self.layers) if states is None else [[state] for state in states]
        finals: list[State] = []
        seen: list[Tensor] = []  # what each layer gave to the one above, each (batch, time, hidden size)
        for index, (layer, start) in enumerate(zip(self.layers, starts, strict=True)):
            if index:
                inputs = self.dropout(seen[-1])
            within = None if watch is None else lambda name, gates, i=index: watch(f"{i}.{name}", gates)
            outputs, final = layer(inputs, start, lengths, watch=within)
            seen.append(self._connect(seen, outputs))
            finals.append(final[0]._make(torch.cat(parts, -1) for parts in zip(*final, strict=True)))
        if collect is not None:
            collect += seen
        return seen[-1], tuple(finals)

    def step(
        self, inputs: Tensor, states: tuple[State, ...], watch: Watch | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """One step of time through all layers: (batch, input) -> (batch, hidden size), the next states."""
        new: list[State] = []
        seen: list[Tensor] = []
        for index, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            if index:
                inputs = self.dropout(seen[-1])
            assert isinstance(layer, RecurrentLayer)
            state, gates = layer.step(inputs, state)
            if watch is not None:
                watch(f"{index}.forward", gates)
            seen.append(self._connect(seen, state.hidden))
            new.append(state)
        return seen[-1], tuple(new)

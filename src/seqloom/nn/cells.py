"""Recurrent cells: one step of time each, written as its formula.

A cell is used in two moves, so that the part which does not depend on the past is computed for all steps at once:

    projected = cell.project(inputs)          # W x + b, any number of steps
    state, gates = cell.step(projected, state)  # one step of time

`gates` names what the step did, for the views. `fused.py` runs the same formulas over whole sequences; where torch has
a compiled loop for one, `kernel` names it. Tests prove all of them equal. All three take a `weight_hidden` in place of
the cell's own, for whoever runs it with some of its weights dropped.

A new cell is a class and a line in `CELLS`. It needs neither steps in `fused.py` nor a kernel: without them it is
unrolled as it is written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from seqloom.nn.eight_bits import product


class HiddenState(NamedTuple):
    """State of the Elman and GRU cells: `hidden` (batch, hidden size)."""

    hidden: Tensor


class LSTMState(NamedTuple):
    """State of the LSTM family: what is shown, `hidden`, and what is kept, `cell`; both (batch, hidden size)."""

    hidden: Tensor
    cell: Tensor


class State(Protocol):
    """A state as everybody but its cell sees it: a NamedTuple of tensors (batch, hidden size), one of them `hidden`."""

    @property
    def hidden(self) -> Tensor: ...

    @classmethod
    def _make(cls, parts: Iterable[Any]) -> Self: ...

    def __iter__(self) -> Iterator[Tensor]: ...

    def __len__(self) -> int: ...


REMEMBER = 1.0  # bias of a forget gate: remember by default (Jozefowicz et al. 2015)
Gates = dict[str, Tensor]


def elman_step(projected: Tensor, state: HiddenState, weight: Tensor, squash: str) -> tuple[HiddenState, Gates]:
    """Elman 1990: h = f(W x + b + U h), with f tanh or the logistic function."""
    total = projected + product(state.hidden, weight)
    hidden = total.tanh() if squash == "tanh" else total.sigmoid()
    return HiddenState(hidden), {"hidden": hidden}


def lstm_step(projected: Tensor, state: LSTMState, weight: Tensor) -> tuple[LSTMState, Gates]:
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000; gates in the order i, f, g, o."""
    input_gate, forget_gate, candidate, output_gate = (projected + product(state.hidden, weight)).chunk(4, -1)
    input_gate, forget_gate, output_gate = input_gate.sigmoid(), forget_gate.sigmoid(), output_gate.sigmoid()
    candidate = candidate.tanh()
    cell = forget_gate * state.cell + input_gate * candidate
    hidden = output_gate * cell.tanh()
    return LSTMState(hidden, cell), _lstm_gates(input_gate, forget_gate, output_gate, candidate, cell, hidden)


def peephole_step(projected: Tensor, state: LSTMState, weight: Tensor, peep: Tensor) -> tuple[LSTMState, Gates]:
    """Gers & Schmidhuber 2000: the gates also see the cell, through one weight a unit; `peep` (3, hidden size).

    Input and forget gate look at the old cell, the output gate at the new one.
    """
    input_gate, forget_gate, candidate, output_gate = (projected + product(state.hidden, weight)).chunk(4, -1)
    input_gate = (input_gate + peep[0] * state.cell).sigmoid()
    forget_gate = (forget_gate + peep[1] * state.cell).sigmoid()
    candidate = candidate.tanh()
    cell = forget_gate * state.cell + input_gate * candidate
    output_gate = (output_gate + peep[2] * cell).sigmoid()
    hidden = output_gate * cell.tanh()
    return LSTMState(hidden, cell), _lstm_gates(input_gate, forget_gate, output_gate, candidate, cell, hidden)


def coupled_step(projected: Tensor, state: LSTMState, weight: Tensor) -> tuple[LSTMState, Gates]:
    """Coupled gates (Greff et al. 2017, CIFG): what is forgotten is exactly what is written, i = 1 - f; f, g, o."""
    forget_gate, candidate, output_gate = (projected + product(state.hidden, weight)).chunk(3, -1)
    forget_gate, output_gate, candidate = forget_gate.sigmoid(), output_gate.sigmoid(), candidate.tanh()
    cell = candidate + forget_gate * (state.cell - candidate)  # f c + (1 - f) g
    hidden = output_gate * cell.tanh()
    return LSTMState(hidden, cell), _lstm_gates(1 - forget_gate, forget_gate, output_gate, candidate, cell, hidden)


def gru_step(projected: Tensor, state: HiddenState, weight: Tensor, bias: Tensor) -> tuple[HiddenState, Gates]:
    """Cho et al. 2014, in the form torch computes: r, z, n with n = tanh(W x + b + r * (U h + `bias`))."""
    x_reset, x_update, x_candidate = projected.chunk(3, -1)
    h_reset, h_update, h_candidate = (product(state.hidden, weight)).chunk(3, -1)
    reset_gate, update_gate = (x_reset + h_reset).sigmoid(), (x_update + h_update).sigmoid()
    candidate = (x_candidate + reset_gate * (h_candidate + bias)).tanh()
    hidden = candidate + update_gate * (state.hidden - candidate)  # (1 - z) n + z h
    gates = {"reset_gate": reset_gate, "update_gate": update_gate, "candidate": candidate, "hidden": hidden}
    return HiddenState(hidden), gates


def _lstm_gates(
    input_gate: Tensor, forget_gate: Tensor, output_gate: Tensor, candidate: Tensor, cell: Tensor, hidden: Tensor
) -> Gates:
    return {
        "input_gate": input_gate,
        "forget_gate": forget_gate,
        "output_gate": output_gate,
        "candidate": candidate,
        "cell": cell,
        "hidden": hidden,
    }


class Cell(Protocol):
    """What a cell must offer. One made from `_HiddenCell` or `_MemoryCell` writes only `num_blocks` and `step`."""

    hidden_size: int
    weight_input: nn.Parameter
    weight_hidden: nn.Parameter

    def __init__(self, *, input_size: int, hidden_size: int) -> None: ...

    @property
    def keep_block(self) -> int | None:
        """The gate that decides how much of the past is kept, where there is one."""

    def start(self, like: Tensor) -> Any:
        """The state before the first step, for as many rows as `like` has."""

    def project(self, inputs: Tensor) -> Tensor:
        """(…, input size) -> (…, anything): the part of the step that does not depend on the past."""

    def step(self, projected: Tensor, state: Any, weight_hidden: Tensor | None = None) -> tuple[Any, Gates]:
        """One step of time -> the next state, and gates by name, each (batch, hidden size)."""

    def start_remembering(self, steps: int) -> None:
        """Start with units that keep what they hold for some 1 to `steps` steps; asked only with a `keep_block`."""


class _Cell(nn.Module):
    """What all cells own: `weight_input` (blocks * h, input), `weight_hidden` (blocks * h, h), `bias` (blocks * h)."""

    num_blocks: int
    keep_block: int | None = None  # the gate that decides how much of the past is kept
    keep_bias = 0.0  # what its bias starts with
    write_block: int | None = None  # the gate that decides how much is added to it, where that is another one
    kernel: str | None = None  # the compiled loop in torch that computes the same formula; it is not inherited

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_input = nn.Parameter(torch.empty(self.num_blocks * hidden_size, input_size))
        self.weight_hidden = nn.Parameter(torch.empty(self.num_blocks * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(self.num_blocks * hidden_size))
        bound = 1 / math.sqrt(hidden_size)
        nn.init.uniform_(self.weight_input, -bound, bound)
        for block in self.weight_hidden.data.chunk(self.num_blocks):
            nn.init.orthogonal_(block)
        if self.keep_block is not None:
            self.bias.data.chunk(self.num_blocks)[self.keep_block].fill_(self.keep_bias)

    def start_remembering(self, steps: int) -> None:
        """Start with units that keep what they hold for some 1 to `steps` steps, each for its own time.

        Tallec & Ollivier 2018: a gate at 1 - 1/T forgets in about T steps; its bias is log(T - 1).
        """
        assert self.keep_block is not None, "only gates remember"
        blocks = self.bias.data.chunk(self.num_blocks)
        blocks[self.keep_block].uniform_(1, steps - 1).log_()
        if self.write_block is not None:
            blocks[self.write_block].copy_(-blocks[self.keep_block])

    def project(self, inputs: Tensor) -> Tensor:
        """(…, input size) -> (…, blocks * hidden size): the part of the step that does not depend on the past."""
        return product(inputs, self.weight_input, self.bias)

    def _hidden(self, weight_hidden: Tensor | None) -> Tensor:
        return self.weight_hidden if weight_hidden is None else weight_hidden

    def step_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]:
        """Weights in the order `fused.py` wants them: of the projection, then of the step."""
        return [self.weight_input, self.bias, self._hidden(weight_hidden)]

    def kernel_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]:
        """Weights in the order torch's compiled loops want them; they take a second bias, which is zero here."""
        return [self.weight_input, self._hidden(weight_hidden), self.bias, torch.zeros_like(self.bias)]


class _HiddenCell(_Cell):
    def start(self, like: Tensor) -> HiddenState:
        """The state before the first step, for as many rows as `like` has."""
        return HiddenState(like.new_zeros(like.shape[0], self.hidden_size))


class _MemoryCell(_Cell):
    def start(self, like: Tensor) -> LSTMState:
        """The state before the first step, for as many rows as `like` has."""
        zeros = like.new_zeros(like.shape[0], self.hidden_size)
        return LSTMState(zeros, zeros)


class Elman(_HiddenCell):
    """The simple recurrent network with tanh."""

    num_blocks = 1
    kernel = "rnn_tanh"

    def step(
        self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None
    ) -> tuple[HiddenState, Gates]:
        return elman_step(projected, state, self._hidden(weight_hidden), "tanh")


class ElmanSigmoid(_HiddenCell):
    """The simple recurrent network with the logistic function, as Elman had it."""

    num_blocks = 1

    def step(
        self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None
    ) -> tuple[HiddenState, Gates]:
        return elman_step(projected, state, self._hidden(weight_hidden), "sigmoid")


class LSTM(_MemoryCell):
    """Long short-term memory: input, forget and output gates around a cell."""

    num_blocks = 4
    keep_block, keep_bias, write_block = 1, REMEMBER, 0
    kernel = "lstm"

    def step(self, projected: Tensor, state: LSTMState, weight_hidden: Tensor | None = None) -> tuple[LSTMState, Gates]:
        return lstm_step(projected, state, self._hidden(weight_hidden))


class PeepholeLSTM(_MemoryCell):
    """LSTM whose gates also see the cell."""

    num_blocks = 4
    keep_block, keep_bias, write_block = 1, REMEMBER, 0

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size=input_size, hidden_size=hidden_size)
        self.peep = nn.Parameter(torch.zeros(3, hidden_size))

    def step(self, projected: Tensor, state: LSTMState, weight_hidden: Tensor | None = None) -> tuple[LSTMState, Gates]:
        return peephole_step(projected, state, self._hidden(weight_hidden), self.peep)

    def step_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]:
        return [*super().step_weights(weight_hidden), self.peep]


class CoupledLSTM(_MemoryCell):
    """LSTM that writes exactly where it forgets: one gate for both."""

    num_blocks = 3
    keep_block, keep_bias = 0, REMEMBER

    def step(self, projected: Tensor, state: LSTMState, weight_hidden: Tensor | None = None) -> tuple[LSTMState, Gates]:
        return coupled_step(projected, state, self._hidden(weight_hidden))


class GRU(_HiddenCell):
    """Gated recurrent unit: reset and update gates, no separate cell."""

    num_blocks = 3
    keep_block = 1
    kernel = "gru"

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size=input_size, hidden_size=hidden_size)
        self.bias_candidate = nn.Parameter(torch.zeros(hidden_size))

    def step(
        self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None
    ) -> tuple[HiddenState, Gates]:
        return gru_step(projected, state, self._hidden(weight_hidden), self.bias_candidate)

    def step_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]:
        return [*super().step_weights(weight_hidden), self.bias_candidate]

    def kernel_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]:
        zeros = self.bias_candidate.new_zeros(2 * self.hidden_size)
        return [self.weight_input, self._hidden(weight_hidden), self.bias, torch.cat([zeros, self.bias_candidate])]


CELLS: dict[str, type[Cell]] = {
    "elman": Elman,
    "elman_sigmoid": ElmanSigmoid,
    "gru": GRU,
    "lstm": LSTM,
    "lstm_coupled": CoupledLSTM,
    "lstm_peephole": PeepholeLSTM,
}

"""Whole sequences as one operation: recurrent layers, and decoders that look at a memory at every step.

Written step by step with torch's own gradients, a recurrent network spends its time between its matrix products: a
record of every small operation, a sum of weight gradients at every step. Here the loop is one operation with its
gradient written by hand. A step costs one product with the state forwards and one backwards; what does not depend on
the past, the projection of the inputs and the gradients of all weights, is one large product over all steps.

Rows of all steps lie below each other, first all sentences' first steps, then their second ones. Longer sentences come
first, so the sentences that are still running at a step are its first rows and padding is never computed.

The readable twins are `recurrent.unroll` and the stepwise decoder of `models/recurrent_decoder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeGuard

import torch
from torch import Tensor

from seqloom.nn.cells import GRU, LSTM, Cell, CoupledLSTM, Elman, ElmanSigmoid, PeepholeLSTM, State
from seqloom.nn.narrow import add_product, narrow, narrow_rows, put_product, rows_like, times, wide

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # gradient * s * (1 - s)
tanh_backward = torch.ops.aten.tanh_backward.grad_input  # gradient * (1 - t * t)


def tanh_to(values: Tensor, out: Tensor) -> Tensor:
    """tanh x = 2 / (1 + exp(-2 x)) - 1: a third of the time of torch's own on some processors."""
    return torch.mul(values, 2, out=out).sigmoid_().mul_(2).sub_(1)


# -- the steps of each cell, and their gradients ---------------------------------------------------------------------


class _Steps:
    """The steps of one cell over one batch.

    `gates` (rows of all steps, blocks * hidden) comes in as W x + b and becomes what the nonlinearities gave. `forward`
    moves a state one step on, in place. `backward` turns the gradient of a step's state into that of the state before,
    in place, and leaves the gradient of W x + b in `gradients`. What is kept for products is narrow where they are.
    """

    def __init__(self, gates: Tensor, weights: Sequence[Tensor]) -> None:
        self.gates, self.weight, self.more = gates, narrow(weights[0]), weights[1:]
        self.size = self.weight.shape[1]
        self.previous = narrow_rows(gates.new_zeros(len(gates), self.size))  # the hidden state before each step
        self.gradients = gates

    def start_backward(self) -> None:
        self.gradients = torch.empty_like(self.gates)

    def weight_gradients(self) -> list[Tensor]:
        return [wide(rows_like(self.gradients, self.previous).T @ self.previous)]

    def _add_past(self, rows: slice, hidden: Tensor) -> Tensor:
        gates = self.gates[rows]
        add_product(gates, self.previous[rows].copy_(hidden), self.weight.T)
        return gates

    def _past_gradient(self, gradients: Tensor, out: Tensor) -> None:
        """out = gradients U: the gradient of the hidden state before."""
        put_product(out, gradients.to(self.weight.dtype), self.weight)


class _ElmanSteps(_Steps):
    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        gates = self._add_past(rows, state[0])
        state[0].copy_(tanh_to(gates, gates))

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        gradients = tanh_backward(state_gradient[0], self.gates[rows], grad_input=self.gradients[rows])
        self._past_gradient(gradients, state_gradient[0])


class _ElmanSigmoidSteps(_Steps):
    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        state[0].copy_(self._add_past(rows, state[0]).sigmoid_())

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        gradients = sigmoid_backward(state_gradient[0], self.gates[rows], grad_input=self.gradients[rows])
        self._past_gradient(gradients, state_gradient[0])


class _GRUSteps(_Steps):
    def __init__(self, gates: Tensor, weights: Sequence[Tensor]) -> None:
        super().__init__(gates, weights)
        self.past = gates.new_empty(len(gates), self.size)  # U h + bias of the candidate
        self.past_gradients = self.gradients

    def start_backward(self) -> None:
        super().start_backward()
        self.past_gradients = torch.empty_like(self.gates)  # of U h: as of W x, but for the candidate

    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        (hidden,), size = state, self.size
        gates, past = self.gates[rows], wide(times(self.previous[rows].copy_(hidden), self.weight.T))
        reset, update, candidate = gates.chunk(3, 1)
        gates[:, : 2 * size].add_(past[:, : 2 * size]).sigmoid_()
        past = torch.add(past[:, 2 * size :], self.more[0], out=self.past[rows])
        tanh_to(candidate.addcmul_(reset, past), candidate)
        hidden.sub_(candidate).mul_(update).add_(candidate)

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        (hidden,), size, gradients = state_gradient, self.size, self.gradients[rows]
        reset, update, candidate = self.gates[rows].chunk(3, 1)
        of_reset, of_update, of_candidate = gradients.chunk(3, 1)
        torch.sub(self.previous[rows], candidate, out=of_update).mul_(hidden)
        kept = hidden * update
        tanh_backward(hidden - kept, candidate, grad_input=of_candidate)
        torch.mul(of_candidate, self.past[rows], out=of_reset)
        sigmoid_backward(gradients[:, : 2 * size], self.gates[rows, : 2 * size], grad_input=gradients[:, : 2 * size])
        past_gradients = self.past_gradients[rows].copy_(gradients)
        past_gradients[:, 2 * size :].mul_(reset)
        add_product(kept, past_gradients.to(self.weight.dtype), self.weight)
        hidden.copy_(kept)

    def weight_gradients(self) -> list[Tensor]:
        gradients = rows_like(self.past_gradients, self.previous)
        return [wide(gradients.T @ self.previous), self.past_gradients[:, 2 * self.size :].sum(0)]


class _MemorySteps(_Steps):
    """What the cells of the LSTM family share: a cell state beside the hidden one, and a squashed view of it."""

    def __init__(self, gates: Tensor, weights: Sequence[Tensor]) -> None:
        super().__init__(gates, weights)
        self.cells = gates.new_empty(len(gates), self.size)  # the cell state before each step
        self.squashed = gates.new_empty(len(gates), self.size)  # tanh of the cell state after it

    def _show(self, rows: slice, state: Sequence[Tensor], output_gate: Tensor) -> None:
        torch.mul(output_gate, tanh_to(state[1], self.squashed[rows]), out=state[0])

    def _cell_gradient(
        self, rows: slice, state_gradient: Sequence[Tensor], output_gate: Tensor, of_output: Tensor
    ) -> Tensor:
        """The gradient of the new cell state; on the way, that of the output gate."""
        hidden, cell = state_gradient
        squashed = self.squashed[rows]
        sigmoid_backward(hidden * squashed, output_gate, grad_input=of_output)
        through = hidden * output_gate
        return cell.add_(tanh_backward(through, squashed, grad_input=through))


class _LSTMSteps(_MemorySteps):
    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        cell = state[1]
        self.cells[rows].copy_(cell)
        gates = self._add_past(rows, state[0])
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
        candidate.mul_(2)
        gates.sigmoid_()
        candidate.mul_(2).sub_(1)  # as in `tanh_to`, so that one pass serves all gates
        cell.mul_(forget_gate).addcmul_(input_gate, candidate)
        self._show(rows, state, output_gate)

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        gradients, both = self.gradients[rows], 2 * self.size
        input_gate, forget_gate, candidate, output_gate = self.gates[rows].chunk(4, 1)
        of_input, of_forget, of_candidate, of_output = gradients.chunk(4, 1)
        cell = self._cell_gradient(rows, state_gradient, output_gate, of_output)
        torch.mul(cell, candidate, out=of_input)
        torch.mul(cell, self.cells[rows], out=of_forget)
        sigmoid_backward(gradients[:, :both], self.gates[rows, :both], grad_input=gradients[:, :both])
        tanh_backward(cell * input_gate, candidate, grad_input=of_candidate)
        cell.mul_(forget_gate)
        self._past_gradient(gradients, state_gradient[0])


class _PeepholeSteps(_MemorySteps):
    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        cell, peep = state[1], self.more[0]
        self.cells[rows].copy_(cell)
        gates = self._add_past(rows, state[0])
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
        input_gate.addcmul_(cell, peep[0])
        forget_gate.addcmul_(cell, peep[1])
        gates[:, : 2 * self.size].sigmoid_()
        tanh_to(candidate, candidate)
        cell.mul_(forget_gate).addcmul_(input_gate, candidate)
        output_gate.addcmul_(cell, peep[2]).sigmoid_()
        self._show(rows, state, output_gate)

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        gradients, both, peep = self.gradients[rows], 2 * self.size, self.more[0]
        input_gate, forget_gate, candidate, output_gate = self.gates[rows].chunk(4, 1)
        of_input, of_forget, of_candidate, of_output = gradients.chunk(4, 1)
        cell = self._cell_gradient(rows, state_gradient, output_gate, of_output).addcmul_(of_output, peep[2])
        torch.mul(cell, candidate, out=of_input)
        torch.mul(cell, self.cells[rows], out=of_forget)
        sigmoid_backward(gradients[:, :both], self.gates[rows, :both], grad_input=gradients[:, :both])
        tanh_backward(cell * input_gate, candidate, grad_input=of_candidate)
        cell.mul_(forget_gate).addcmul_(of_input, peep[0]).addcmul_(of_forget, peep[1])
        self._past_gradient(gradients, state_gradient[0])

    def weight_gradients(self) -> list[Tensor]:
        input_gate, forget_gate, candidate, _ = self.gates.chunk(4, 1)
        of_input, of_forget, _, of_output = self.gradients.chunk(4, 1)
        after = (forget_gate * self.cells).addcmul_(input_gate, candidate)
        pairs = ((of_input, self.cells), (of_forget, self.cells), (of_output, after))
        return [*super().weight_gradients(), torch.stack([(gradient * seen).sum(0) for gradient, seen in pairs])]


class _CoupledSteps(_MemorySteps):
    def forward(self, rows: slice, state: Sequence[Tensor]) -> None:
        cell = state[1]
        self.cells[rows].copy_(cell)
        gates = self._add_past(rows, state[0])
        forget_gate, candidate, output_gate = gates.chunk(3, 1)
        candidate.mul_(2)
        gates.sigmoid_()
        candidate.mul_(2).sub_(1)
        cell.sub_(candidate).mul_(forget_gate).add_(candidate)
        self._show(rows, state, output_gate)

    def backward(self, rows: slice, state_gradient: Sequence[Tensor]) -> None:
        gradients = self.gradients[rows]
        forget_gate, candidate, output_gate = self.gates[rows].chunk(3, 1)
        of_forget, of_candidate, of_output = gradients.chunk(3, 1)
        cell = self._cell_gradient(rows, state_gradient, output_gate, of_output)
        torch.sub(self.cells[rows], candidate, out=of_forget).mul_(cell)
        sigmoid_backward(of_forget, forget_gate, grad_input=of_forget)
        tanh_backward(cell - cell * forget_gate, candidate, grad_input=of_candidate)
        cell.mul_(forget_gate)
        self._past_gradient(gradients, state_gradient[0])


STEPS: dict[type[Cell], Any] = {
    Elman: _ElmanSteps,
    ElmanSigmoid: _ElmanSigmoidSteps,
    GRU: _GRUSteps,
    LSTM: _LSTMSteps,
    PeepholeLSTM: _PeepholeSteps,
    CoupledLSTM: _CoupledSteps,
}


class FusedCell(Cell, Protocol):
    """A cell with steps here."""

    def step_weights(self, weight_hidden: Tensor | None = None) -> list[Tensor]: ...


def has_steps(cell: Cell) -> TypeGuard[FusedCell]:
    """Whether the steps of this very class are here: one made from it has a formula of its own."""
    return type(cell) in STEPS


# -- a layer over whole sequences ------------------------------------------------------------------------------------


class Packing(NamedTuple):
    """How the steps of a padded batch lie below each other.

    `positions` of the rows in (batch * time); `order` of the sentences, longest first; `steps`, the rows of each step.
    """

    positions: Tensor
    order: Tensor
    steps: list[slice]


def pack(lengths: Tensor | None, rows: int, time: int, device: torch.device) -> Packing:
    """Longest sentence first, step below step."""
    steps = torch.arange(time, device=device)[:, None]
    if lengths is None:
        order = torch.arange(rows, device=device)
        return Packing((order * time + steps).flatten(), order, [slice(t * rows, (t + 1) * rows) for t in range(time)])
    lengths, order = lengths.to(device).sort(descending=True, stable=True)
    running = lengths > steps  # (time, batch)
    ends = [0, *running.sum(1).cumsum(0).tolist()]
    pairs = pairwise(ends)
    return Packing((order * time + steps)[running], order, [slice(*pair) for pair in pairs if pair[0] < pair[1]])


class _Layer(torch.autograd.Function):
    """`tensors`: for each direction its initial state, then weight_input, bias, weight_hidden and what else it owns."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, packing: Packing, kinds: Sequence[type[Cell]], num_parts: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        batch, time, _ = inputs.shape
        packed = narrow_rows(inputs.flatten(0, 1).index_select(0, packing.positions))
        count, share = len(packing.positions), len(tensors) // len(kinds)
        size = tensors[0].shape[1]
        data = inputs.new_empty(count, len(kinds) * size)
        ctx.runs, finals = [], []
        for direction, kind in enumerate(kinds):
            given = tensors[direction * share : (direction + 1) * share]
            state = [part.index_select(0, packing.order) for part in given[:num_parts]]
            weight_input, bias, *weights = given[num_parts:]
            weight_input = narrow(weight_input)
            run = STEPS[kind](wide(torch.addmm(narrow(bias), packed, weight_input.T)[:count]), weights)
            shown = data[:, direction * size : (direction + 1) * size]
            for rows in reversed(packing.steps) if direction else packing.steps:
                running = [part[: rows.stop - rows.start] for part in state]
                run.forward(rows, running)
                shown[rows] = running[0]
            finals += [torch.empty_like(part).index_copy_(0, packing.order, part) for part in state]
            ctx.runs.append((run, weight_input))
        ctx.packed, ctx.packing, ctx.num_parts, ctx.shape = packed, packing, num_parts, inputs.shape
        outputs = data.new_zeros(batch * time, data.shape[1]) if len(data) < batch * time else torch.empty_like(data)
        outputs.index_copy_(0, packing.positions, data)
        return outputs.view(batch, time, data.shape[1]), *finals

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_outputs: Tensor, *of_finals: Tensor) -> tuple[Any, ...]:
        packing, packed = ctx.packing, ctx.packed
        data = of_outputs.flatten(0, 1).index_select(0, packing.positions)
        of_inputs, found = None, []
        for direction, (run, weight_input) in enumerate(ctx.runs):
            ends = of_finals[direction * ctx.num_parts : (direction + 1) * ctx.num_parts]
            state_gradient = [part.index_select(0, packing.order) for part in ends]
            shown = data[:, direction * run.size : (direction + 1) * run.size]
            run.start_backward()
            for rows in packing.steps if direction else reversed(packing.steps):
                running = [part[: rows.stop - rows.start] for part in state_gradient]
                running[0].add_(shown[rows])
                run.backward(rows, running)
            found += [torch.empty_like(part).index_copy_(0, packing.order, part) for part in state_gradient]
            gradients = rows_like(run.gradients, packed)
            found += [wide(gradients.T @ packed), run.gradients.sum(0), *run.weight_gradients()]
            if ctx.needs_input_grad[0]:
                if of_inputs is None:
                    of_inputs = wide((gradients @ weight_input)[: len(data)])
                else:
                    add_product(of_inputs, gradients, weight_input)
        if of_inputs is not None:
            padded = of_inputs.new_zeros(ctx.shape[0] * ctx.shape[1], ctx.shape[2])
            of_inputs = padded.index_copy_(0, packing.positions, of_inputs).view(ctx.shape)
        return of_inputs, None, None, None, *found


def run_layer(
    cells: Sequence[FusedCell],
    inputs: Tensor,
    states: Sequence[State],
    lengths: Tensor | None,
    hidden_weights: Sequence[Tensor | None],
) -> tuple[Tensor, list[list[Tensor]]]:
    """One cell over whole sequences, or a forward and a backward one; `hidden_weights` in place of their own.

    -> outputs (batch, time, directions * hidden), the parts of the final state of each direction
    """
    packing = pack(lengths, inputs.shape[0], inputs.shape[1], inputs.device)
    num_parts = len(states[0])
    tensors: list[Tensor] = []
    for cell, state, weight in zip(cells, states, hidden_weights, strict=True):
        tensors += [*state, *cell.step_weights(weight)]
    outputs, *parts = _Layer.apply(inputs, packing, [type(cell) for cell in cells], num_parts, *tensors)
    return outputs, [parts[index : index + num_parts] for index in range(0, len(parts), num_parts)]

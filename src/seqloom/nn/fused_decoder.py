"""A recurrent decoder that waits at every step for what attention saw, as one operation.

In Bahdanau's order each step looks at the memory with the state it comes from; with input feeding each step gets the
last step's features. So there is a loop over target steps, and it holds only what must wait: the look, the products
with context, features and state, the cell. All weight gradients are large products after the loop, and so are those of
the memory. Packed as in `fused.py`: padding is never computed.

The readable twin is a decoder that takes one step after the other; it serves wherever `can_decode` says no.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.nn.attention import (
    Additive,
    Dot,
    Multiplicative,
    ScaledDot,
    Score,
    key_powers,
    pair_gradients,
    powers_are_safe,
    query_powers,
    remoteness,
)
from seqloom.nn.cells import Cell, State
from seqloom.nn.fused import STEPS, Packing, has_steps, pack, tanh_backward, tanh_to
from seqloom.nn.narrow import add_product, narrow, narrow_rows, put_product, rows_like, times, wide


class _DotLooks:
    """Looks at a memory by dot products: one query a sentence and step."""

    def __init__(self, num_rows: int, values: Tensor, keys: Tensor, mask: Tensor, scale: float) -> None:
        self.values, self.keys, self.real, self.scale = values, keys, mask, scale
        self.lowest = torch.finfo(values.dtype).min
        self.queries = values.new_empty(num_rows, keys.shape[2])
        self.weights = values.new_empty(num_rows, values.shape[1])
        self.contexts = values.new_empty(num_rows, values.shape[2])
        self.score_gradients, self.context_gradients = self.weights, self.contexts

    def start_backward(self) -> None:
        self.score_gradients, self.context_gradients = torch.empty_like(self.weights), torch.empty_like(self.contexts)

    def forward(self, rows: slice, query: Tensor) -> Tensor:
        """-> context (rows, value size)"""
        running = len(query)
        real = self.real[:running]
        scores = self._scores(rows, self.queries[rows].copy_(query)).masked_fill_(~real, self.lowest)
        weights = torch.mul(scores.softmax(1), real, out=self.weights[rows])
        return torch.bmm(weights[:, None], self.values[:running], out=self.contexts[rows][:, None])[:, 0]

    def backward(self, rows: slice, of_context: Tensor) -> Tensor:
        """-> the gradient of the query"""
        of_context = self.context_gradients[rows].copy_(of_context)
        of_weights = torch.bmm(of_context[:, None], self.values[: len(of_context)].transpose(1, 2))[:, 0]
        weights = self.weights[rows]
        weighted = of_weights.mul_(weights)
        torch.addcmul(weighted, weights, weighted.sum(1, keepdim=True), value=-1, out=self.score_gradients[rows])
        return self._query_gradient(rows, self.score_gradients[rows])

    def gradients(self, packing: Packing, shape: torch.Size) -> list[Tensor | None]:
        """The gradients of values, keys, query weight and direction; `shape` begins with (batch, time)."""
        weights, of_contexts = (unpacked(part, packing, shape) for part in (self.weights, self.context_gradients))
        return [weights.transpose(1, 2) @ of_contexts, *self._key_and_weight_gradients(packing, shape)]

    def _scores(self, rows: slice, query: Tensor) -> Tensor:
        return torch.bmm(self.keys[: len(query)], query[:, :, None])[:, :, 0].mul_(self.scale)

    def _query_gradient(self, rows: slice, of_scores: Tensor) -> Tensor:
        return torch.bmm(of_scores[:, None], self.keys[: len(of_scores)])[:, 0].mul_(self.scale)

    def _key_and_weight_gradients(self, packing: Packing, shape: torch.Size) -> list[Tensor | None]:
        of_scores, queries = (unpacked(part, packing, shape) for part in (self.score_gradients, self.queries))
        return [(of_scores.transpose(1, 2) @ queries).mul_(self.scale), None, None]


class _AdditiveLooks(_DotLooks):
    """Looks by additive scores, by powers as in `attention.py`; a constant in all scores of a query is left out."""

    def __init__(
        self, num_rows: int, values: Tensor, keys: Tensor, mask: Tensor, weight: Tensor, direction: Tensor
    ) -> None:
        super().__init__(num_rows, values, key_powers(keys), mask, 1.0)
        self.weight, self.direction = weight, direction
        self.powers, self.pairs = torch.empty_like(self.queries), torch.empty_like(keys)
        self.query_gradients = self.powers

    def start_backward(self) -> None:
        super().start_backward()
        self.query_gradients, self.pair_gradients = torch.empty_like(self.powers), torch.empty_like(self.keys)
        self.key_gradients, self.direction_gradient = torch.zeros_like(self.keys), torch.zeros_like(self.direction)

    def _remote(self, rows: slice) -> Tensor:
        running = rows.stop - rows.start
        return remoteness(self.powers[rows], self.keys[:running], self.pairs[:running])

    def _scores(self, rows: slice, query: Tensor) -> Tensor:
        self.powers[rows] = query_powers(query @ self.weight.T)
        return torch.matmul(self._remote(rows), self.direction).mul_(-2)

    def _query_gradient(self, rows: slice, of_scores: Tensor) -> Tensor:
        remote, running = self._remote(rows), len(of_scores)
        # The gradients of a query's scores sum to 0, so the constant that was left out has none.
        self.direction_gradient.addmv_(remote.flatten(0, 1).T, of_scores.flatten(), alpha=-2)
        gradients = pair_gradients(of_scores, remote, self.pair_gradients[:running])
        self.key_gradients[:running] += gradients
        of_query = torch.sum(gradients, 1, out=self.query_gradients[rows]).mul_(4 * self.direction)
        return of_query @ self.weight

    def _key_and_weight_gradients(self, packing: Packing, shape: torch.Size) -> list[Tensor | None]:
        of_keys = torch.empty_like(self.key_gradients)
        of_keys[packing.order] = self.key_gradients.mul_(4 * self.direction)
        return [of_keys, self.query_gradients.T @ self.queries, self.direction_gradient]


def unpacked(rows: Tensor, packing: Packing, shape: torch.Size) -> Tensor:
    """Rows of all steps -> (batch, time, size), zero at padding; `shape` begins with (batch, time)."""
    padded = rows.new_zeros(shape[0] * shape[1], rows.shape[1])
    return padded.index_copy_(0, packing.positions, rows).view(shape[0], shape[1], rows.shape[1])


class _Plan(NamedTuple):
    packing: Packing
    kind: type[Cell]
    num_parts: int  # of a state
    mask: Tensor
    scale: float  # of dot products
    context_first: bool


class _Decoder(torch.autograd.Function):
    """`tensors`: the initial state, then weight_input, bias, weight_hidden and what else the cell owns."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        embedded: Tensor,
        values: Tensor,
        keys: Tensor,
        weight_query: Tensor | None,
        direction: Tensor | None,
        weight_read: Tensor | None,
        bias_read: Tensor | None,
        kept: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        packing, first = plan.packing, plan.context_first
        packed, count = narrow_rows(embedded.flatten(0, 1).index_select(0, packing.positions)), len(packing.positions)
        state = [part.index_select(0, packing.order) for part in tensors[: plan.num_parts]]
        weight_input, bias, *weights = tensors[plan.num_parts :]
        sizes = packed.shape[1], values.shape[2], state[0].shape[1]
        of_embedded, of_context, of_fed = narrow(weight_input).tensor_split(
            (sizes[0], sizes[0] + (sizes[1] if first else 0)), 1
        )
        run = STEPS[plan.kind](wide(torch.addmm(narrow(bias), packed, of_embedded.T)[:count]), weights)
        sorted_values, sorted_keys, mask = (part.index_select(0, packing.order) for part in (values, keys, plan.mask))
        look: Any
        if weight_query is None or direction is None:
            look = _DotLooks(count, sorted_values, sorted_keys, mask, plan.scale)
        else:
            look = _AdditiveLooks(count, sorted_values, sorted_keys, mask, weight_query, direction)
        hiddens = embedded.new_empty(count, sizes[2])
        read = None
        if weight_read is not None and bias_read is not None:
            read = _Readout(weight_read, bias_read, packed if first else None, sizes, kept, packing)
        for rows in packing.steps:
            running = [part[: rows.stop - rows.start] for part in state]
            if first:
                context = look.forward(rows, running[0])
                add_product(run.gates[rows], narrow(context), of_context.T)
            if read is not None and rows.start:
                add_product(run.gates[rows], narrow(read.before(rows)), of_fed.T)
            run.forward(rows, running)
            hiddens[rows] = running[0]
            if not first:
                context = look.forward(rows, running[0])
            if read is not None:
                read.forward(rows, running[0], context)
        ctx.plan, ctx.packed, ctx.hiddens, ctx.shape = plan, packed, hiddens, embedded.shape
        ctx.run, ctx.look, ctx.read, ctx.parts = run, look, read, (of_embedded, of_context, of_fed)
        ctx.state_shape = state[0].shape
        shown = [hiddens, look.contexts] if read is None else [read.features]
        outputs = [unpacked(part, packing, embedded.shape) for part in (*shown, look.weights)]
        ctx.mark_non_differentiable(outputs[-1])
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Any, ...]:
        plan, run, look, read, packed = ctx.plan, ctx.run, ctx.look, ctx.read, ctx.packed
        packing, first = plan.packing, plan.context_first
        weight_embedded, weight_context, weight_fed = ctx.parts
        given = [part.flatten(0, 1).index_select(0, packing.positions) for part in of_outputs[:-1]]
        state = [run.gates.new_zeros(ctx.state_shape) for _ in range(plan.num_parts)]
        for part in (run, look, read):
            if part is not None:
                part.start_backward()
        for rows in reversed(packing.steps):
            state_gradient = [part[: rows.stop - rows.start] for part in state]
            if read is None:
                state_gradient[0].add_(given[0][rows])
                of_context = given[1][rows]
            else:
                of_context = read.backward(rows, given[0][rows], state_gradient[0])
            if not first:
                state_gradient[0].add_(look.backward(rows, of_context))
            run.backward(rows, state_gradient)
            if first:
                add_product(of_context, run.gradients[rows].to(packed.dtype), weight_context)
                state_gradient[0].add_(look.backward(rows, of_context))
            if read is not None:
                fed_gradient = read.fed_gradient[: rows.stop - rows.start]
                put_product(fed_gradient, run.gradients[rows].to(packed.dtype), weight_fed)
        count, gradients = len(packing.positions), rows_like(run.gradients, packed)
        inputs, of_embedded = [packed], wide((gradients @ weight_embedded)[:count])
        of_read: tuple[Tensor | None, ...] = (None, None)
        if first:
            inputs.append(look.contexts)
        if read is not None:
            inputs.append(read.fed_before())
            seen = [ctx.hiddens, look.contexts] + ([packed] if first else [])
            read_gradients = rows_like(read.gradients, packed)
            all_seen = torch.cat([rows_like(part, packed) for part in seen], 1)
            of_read = (wide(read_gradients.T @ all_seen), read.gradients.sum(0))
            if first:
                add_product(of_embedded, read_gradients, read.weight_embedded)
        of_state = [torch.empty_like(part).index_copy_(0, packing.order, part) for part in state]
        all_inputs = torch.cat([rows_like(part, packed) for part in inputs], 1)
        of_cell = [wide(gradients.T @ all_inputs), run.gradients.sum(0), *run.weight_gradients()]
        return (
            None,
            unpacked(of_embedded, packing, ctx.shape),
            *look.gradients(packing, ctx.shape),
            *of_read,
            None,
            *of_state,
            *of_cell,
        )


class _Readout:
    """What a decoder with input feeding shows of each step and feeds into the next: tanh(W [h; context; x] + b)."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        embedded: Tensor | None,
        sizes: tuple[int, int, int],
        kept: Tensor | None,
        packing: Packing,
    ) -> None:
        _, context_size, hidden_size = sizes
        split = narrow(weight).tensor_split((hidden_size, hidden_size + context_size), 1)
        self.weight_hidden, self.weight_context, self.weight_embedded = split
        num_rows = len(packing.positions)
        if embedded is None:
            self.squashed = bias.repeat(num_rows, 1)
        else:
            self.squashed = wide(torch.addmm(narrow(bias), embedded, self.weight_embedded.T)[:num_rows])
        self.kept = None if kept is None else kept.flatten(0, 1).index_select(0, packing.positions)
        self.features = self.squashed if kept is None else torch.empty_like(self.squashed)
        self.packing = packing
        self.last = slice(0, 0)
        self.gradients, self.fed_gradient = self.squashed, self.squashed

    def start_backward(self) -> None:
        self.gradients = torch.empty_like(self.squashed)
        self.fed_gradient = self.squashed.new_zeros(len(self.packing.order), self.squashed.shape[1])

    def before(self, rows: slice) -> Tensor:
        """The features of the step before, of the sentences that go on."""
        return self.features[self.last.start : self.last.start + rows.stop - rows.start]

    def forward(self, rows: slice, hidden: Tensor, context: Tensor) -> None:
        squashed = self.squashed[rows]
        add_product(squashed, hidden.to(self.weight_hidden.dtype), self.weight_hidden.T)
        add_product(squashed, context.to(self.weight_context.dtype), self.weight_context.T)
        tanh_to(squashed, squashed)
        if self.kept is not None:
            torch.mul(squashed, self.kept[rows], out=self.features[rows])
        self.last = rows

    def backward(self, rows: slice, of_features: Tensor, of_hidden: Tensor) -> Tensor:
        """-> the gradient of the context; that of the hidden state is added to `of_hidden`"""
        gradient = of_features + self.fed_gradient[: len(of_features)]
        if self.kept is not None:
            gradient.mul_(self.kept[rows])
        gradients = tanh_backward(gradient, self.squashed[rows], grad_input=self.gradients[rows])
        gradients = gradients.to(self.weight_hidden.dtype)
        add_product(of_hidden, gradients, self.weight_hidden)
        return wide(times(gradients, self.weight_context))

    def fed_before(self) -> Tensor:
        """What was fed into each step: nothing into the first."""
        steps = self.packing.steps
        first = self.features.new_zeros(len(self.packing.order), self.features.shape[1])
        parts = [self.features[a.start : a.start + b.stop - b.start] for a, b in pairwise(steps)]
        return torch.cat([first[: steps[0].stop], *parts])


class Decoded(NamedTuple):
    """`hidden` and `context` (batch, time, size), or with a readout its `features`; `weights` (batch, time, source)."""

    hidden: Tensor | None
    context: Tensor | None
    features: Tensor | None
    weights: Tensor


SCORES_IN_LOOP: tuple[type[Score], ...] = (Additive, Dot, Multiplicative, ScaledDot)


def can_decode(cell: Cell, score: Score, keys: Tensor) -> bool:
    """Whether `decode` knows these very classes, not what they were made from, and can take the keys."""
    if not has_steps(cell) or type(score) not in SCORES_IN_LOOP or keys.device.type != "cpu":
        return False
    return type(score) is not Additive or powers_are_safe(keys)


def decode(
    cell: Cell,
    score: Score,
    embedded: Tensor,
    lengths: Tensor,
    state: State,
    values: Tensor,
    keys: Tensor,
    mask: Tensor,
    *,
    context_first: bool,
    readout: nn.Linear | None = None,
    kept: Tensor | None = None,
) -> Decoded:
    """Lead a one-layer decoder along known targets (batch, time, embedding), where `can_decode` says so.

    With `context_first` a step looks with the state it comes from and the cell is given what it saw; else it looks with
    the state it has reached. With `readout` its features, multiplied with `kept` (dropout), are fed into the next step.
    """
    assert has_steps(cell), "ask can_decode first"
    assert type(score) in SCORES_IN_LOOP, "ask can_decode first"
    packing = pack(lengths, embedded.shape[0], embedded.shape[1], embedded.device)
    scale = 1 / math.sqrt(keys.shape[2]) if isinstance(score, ScaledDot) else 1.0
    plan = _Plan(packing, type(cell), len(state), mask, scale, context_first)
    look = (score.weight_query, score.direction) if isinstance(score, Additive) else (None, None)
    read = (None, None) if readout is None else (readout.weight, readout.bias)
    found = _Decoder.apply(plan, embedded, values, keys, *look, *read, kept, *state, *cell.step_weights())
    if readout is None:
        hidden, context, weights = found
        return Decoded(hidden, context, None, weights)
    features, weights = found
    return Decoded(None, None, features, weights)

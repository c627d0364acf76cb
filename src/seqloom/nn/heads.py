"""Attention of short texts in one compiled pass: `attention.attend` of all heads, and the gradients of it.

`look_at_once` is attention alone. `look_around_at_once` is a whole self-attention, products and all: queries, keys and
values stay in the block that one product made, and so do their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqloom.nn.plain import can_be_compiled

if TYPE_CHECKING:
    import numpy as np

LONGEST = 128  # queries or keys; up to there it was measured to be faster than torch's


def heads_fit(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> bool:
    """Whether `look_at_once` serves: in training, where one thread computes, and a mask hides keys from all alike."""
    return (
        can_be_compiled(query)
        and _short_enough(query.shape[2], keys.shape[2], mask)
        and query.stride(-1) == keys.stride(-1) == values.stride(-1) == 1
    )


def _short_enough(num_queries: int, num_keys: int, mask: Tensor | None) -> bool:
    hides_from_all_alike = mask is None or (mask.ndim == 4 and mask.shape[1:] == (1, 1, num_keys))
    return max(num_queries, num_keys) <= LONGEST and hides_from_all_alike


def look_at_once(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """(batch, heads, queries, size) and what it looks at -> context of its shape; a row that sees no key gets zeros.

    mask (batch or 1, 1, 1, keys): True where a key is real. A causal query sees keys up to its own place.
    """
    return _Look.apply(query, keys, values, mask, causal)


def flat(tensor: Tensor) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The memory of a tensor, and the strides of batch, head and time."""
    batch, head, time, _ = tensor.stride()
    return _memory(tensor), (batch, head, time)


def _memory(tensor: Tensor) -> np.ndarray:
    """From a tensor's first number to its last, and what lies between."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach,), (1,)).numpy()


def turn_into(out: Tensor, vectors: Tensor, cosines: Tensor, sines: Tensor, sign: float) -> Tensor:
    """`positions.rotated` by `sign` times the angles, written into `out`, which may be the vectors themselves.

    Both (batch, heads, positions, d); the angles (positions, d / 2).
    """
    from seqloom.kernels.turning import turn

    batch, heads, time, size = vectors.shape
    tables = (cosines.contiguous().numpy(), sines.contiguous().numpy())
    (numbers, strides), (room, of_room) = flat(vectors), flat(out)
    turn((batch, heads, time, size // 2), numbers, strides, *tables, sign, room, of_room)
    return out


class _Look(torch.autograd.Function):
    """Scores, softmax and context; the weights are kept for the way back."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        context, weights = _looked(query.detach(), keys.detach(), values.detach(), mask, causal)
        ctx.save_for_backward(query, keys, values, weights)
        ctx.causal = causal
        return context.transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_context: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, weights = ctx.saved_tensors
        batch, heads, _, size = query.shape
        pulls = [query.new_empty(batch, part.shape[2], heads, size) for part in (query, keys, values)]
        _look_back((query, keys, values), ctx.causal, weights, of_context, pulls)
        return (*(pull.transpose(1, 2) for pull in pulls), None, None)


def _looked(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Context (batch, queries, heads, size), and the weights as `look` leaves them."""
    from seqloom.kernels.heads import filled_up, look

    batch, heads, num_queries, size = query.shape
    num_keys = keys.shape[2]
    visible = query.new_zeros(1 if mask is None else len(mask), filled_up(num_keys))
    visible[:, :num_keys] = 1.0 if mask is None else mask[:, 0, 0]
    weights = query.new_empty(batch * heads * filled_up(num_queries) * filled_up(num_keys))
    context = query.new_empty(batch, num_queries, heads, size)
    given = (*flat(query), *flat(keys), *flat(values))
    sizes = (batch, heads, num_queries, num_keys, size)
    look(sizes, *given, visible.numpy(), causal, weights.numpy(), context.view(-1).numpy())
    return context, weights


def _look_back(
    given: tuple[Tensor, Tensor, Tensor], causal: bool, weights: Tensor, of_context: Tensor, pulls: Sequence[Tensor]
) -> None:
    """Fills `pulls`, (batch, time, heads, size) each, with the gradients of what was given to `_looked`."""
    from seqloom.kernels.heads import look_back

    query, keys, values = (part.detach() for part in given)
    of_context = of_context if of_context.stride(-1) == 1 else of_context.contiguous()
    batch, heads, num_queries, size = query.shape
    sizes = (batch, heads, num_queries, keys.shape[2], size)
    found = tuple(_memory(pull) for pull in pulls)
    parts = (*flat(query), *flat(keys), *flat(values))
    look_back(sizes, *parts, causal, weights.numpy(), *flat(of_context), found, pulls[0].stride(1))


class _LookAround(torch.autograd.Function):
    """W' look(turn(W x + b)) + b'. What stands in the block of queries, keys and values is the second result."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        outer_weight: Tensor,
        outer_bias: Tensor,
        num_heads: int,
        turns: tuple[Tensor, Tensor] | None,
        mask: Tensor | None,
        causal: bool,
    ) -> tuple[Tensor, Tensor]:
        batch, time, size = inputs.shape
        rows = inputs.reshape(-1, size)
        block = torch.addmm(bias, rows, weight.T).view(batch, time, 3, num_heads, -1)
        if turns is not None:
            turn_into(_turning_part(block), _turning_part(block), *turns, 1.0)
        query, keys, values = block.permute(2, 0, 3, 1, 4)
        context, weights = _looked(query, keys, values, mask, causal)
        context = context.view(-1, size)
        ctx.save_for_backward(rows, weight, block, weights, context, outer_weight, *(turns or ()))
        ctx.causal = causal
        ctx.set_materialize_grads(False)
        return torch.addmm(outer_bias, context, outer_weight.T).view(batch, time, -1), block

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_output: Tensor | None, of_block: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, weight, block, weights, context, outer_weight, *angles = ctx.saved_tensors
        batch, time, _, num_heads, size = block.shape
        of_outer = of_outer_bias = None
        pull = torch.empty_like(block)
        if of_output is None:  # only keys and values were used
            pull.zero_()
        else:
            of_output = of_output.reshape(-1, of_output.shape[-1])
            of_outer, of_outer_bias = of_output.T @ context, of_output.sum(0)
            of_context = (of_output @ outer_weight).view(batch, time, num_heads, size).transpose(1, 2)
            query, keys, values = block.permute(2, 0, 3, 1, 4)
            _look_back((query, keys, values), ctx.causal, weights, of_context, pull.unbind(2))
        if of_block is not None:
            pull += of_block
        if angles:
            cosines, sines = angles
            turn_into(_turning_part(pull), _turning_part(pull), cosines, sines, -1.0)
        pull = pull.view(len(rows), -1)
        of_inputs = (pull @ weight).view(batch, time, -1)
        return of_inputs, pull.T @ rows, pull.sum(0), of_outer, of_outer_bias, None, None, None, None


def _turning_part(block: Tensor) -> Tensor:
    """Queries and keys of (batch, time, 3, heads, size), as if all were heads: (batch, 2 * heads, time, size)."""
    return block[:, :, :2].flatten(2, 3).transpose(1, 2)


def look_around_at_once(
    inputs: Tensor,
    project: nn.Linear,
    output: nn.Linear,
    num_heads: int,
    turns: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(batch, time, size) -> what self-attention puts out, its keys and its values; None where it does not serve."""
    if not can_be_compiled(inputs) or not _short_enough(inputs.shape[1], inputs.shape[1], mask):
        return None
    weights = (project.weight, project.bias, output.weight, output.bias)
    found, block = _LookAround.apply(inputs, *weights, num_heads, turns, mask, causal)
    _, keys, values = block.permute(2, 0, 3, 1, 4)
    return found, keys, values

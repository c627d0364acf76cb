"""Attention of short texts in one compiled pass: `attention.attend` of all heads, and the gradients of it.

`look_at_once` is attention alone. `look_around_at_once` is a whole self-attention, products and all: queries, keys and
values stay in the block that one product made, and so do their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqloom.nn.narrow import narrow, narrow_rows, rows_like, wide
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


Part = tuple["np.ndarray", tuple[int, int, int]]  # flat memory, and the strides of batch, head and time in it


def _part(tensor: Tensor) -> Part:
    """A tensor (batch, heads, time, size) as compiled code sees it: from its first number to its last."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    batch, head, time, _ = tensor.stride()
    return tensor.as_strided((reach,), (1,)).numpy(), (batch, head, time)


def _parts(block: Tensor) -> list[Part]:
    """The same of queries, keys and values that lie in one block (batch, time, 3, heads, size)."""
    _, time, _, heads, size = block.shape
    numbers, width = block.view(-1).numpy(), heads * size
    return [(numbers[start:], (time * 3 * width, size, 3 * width)) for start in (0, width, 2 * width)]


def turned_by(vectors: Tensor, cosines: Tensor, sines: Tensor, sign: float) -> Tensor:
    """`positions.rotated` by `sign` times the angles: (batch, heads, positions, d), angles (positions, d / 2)."""
    batch, heads, time, size = vectors.shape
    out = vectors.new_empty(batch, time, heads, size).transpose(1, 2)
    _turn((batch, heads, time, size // 2), _part(vectors), cosines, sines, sign, _part(out))
    return out


def _turn_block(block: Tensor, cosines: Tensor, sines: Tensor, sign: float) -> None:
    """The same of queries and keys of a block, where they stand: their heads follow each other."""
    batch, time, _, heads, size = block.shape
    query, _, _ = _parts(block)
    _turn((batch, 2 * heads, time, size // 2), query, cosines, sines, sign, query)


def _turn(
    sizes: tuple[int, int, int, int], vectors: Part, cosines: Tensor, sines: Tensor, sign: float, out: Part
) -> None:
    from seqloom.kernels.turning import turn

    turn(sizes, *vectors, cosines.contiguous().numpy(), sines.contiguous().numpy(), sign, *out)


class _Look(torch.autograd.Function):
    """Scores, softmax and context; the weights are kept for the way back."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        batch, heads, num_queries, size = query.shape
        sizes = (batch, heads, num_queries, keys.shape[2], size)
        context, weights = _looked(sizes, [_part(part.detach()) for part in (query, keys, values)], mask, causal)
        ctx.save_for_backward(query, keys, values, weights)
        ctx.sizes, ctx.causal = sizes, causal
        return context.transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_context: Tensor) -> tuple[Tensor | None, ...]:
        *given, weights = ctx.saved_tensors
        batch, heads, _, _, size = ctx.sizes
        gradients = [part.new_empty(batch, part.shape[2], heads, size) for part in given]
        of_context = of_context if of_context.stride(-1) == 1 else of_context.contiguous()
        parts, out = [_part(part.detach()) for part in given], tuple(part.view(-1).numpy() for part in gradients)
        _look_back(ctx.sizes, parts, ctx.causal, weights, _part(of_context), out, heads * size)
        return (*(part.transpose(1, 2) for part in gradients), None, None)


Sizes = tuple[int, int, int, int, int]  # batch, heads, queries, keys, size of a head


def _looked(sizes: Sizes, given: Sequence[Part], mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    """Context (batch, queries, heads, size), and the weights as `look` leaves them."""
    from seqloom.kernels.heads import filled_up, look

    batch, heads, num_queries, num_keys, size = sizes
    visible = torch.zeros(1 if mask is None else len(mask), filled_up(num_keys))
    visible[:, :num_keys] = 1.0 if mask is None else mask[:, 0, 0]
    weights = torch.empty(batch * heads * filled_up(num_queries) * filled_up(num_keys))
    context = torch.empty(batch, num_queries, heads, size)
    query, keys, values = given
    look(sizes, *query, *keys, *values, visible.numpy(), causal, weights.numpy(), context.view(-1).numpy())
    return context, weights


def _look_back(
    sizes: Sizes,
    given: Sequence[Part],
    causal: bool,
    weights: Tensor,
    of_context: Part,
    gradients: tuple[np.ndarray, ...],
    stride: int,
) -> None:
    """Fills `gradients`, flat memory of (batch, time, heads, size) each, with the gradients of what was given."""
    from seqloom.kernels.heads import look_back

    query, keys, values = given
    look_back(sizes, *query, *keys, *values, causal, weights.numpy(), *of_context, gradients, stride)


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
        batch, time, width = inputs.shape
        rows, weight, outer_weight = narrow_rows(inputs.reshape(-1, width)), narrow(weight), narrow(outer_weight)
        block = torch.addmm(narrow(bias), rows, weight.T)[: batch * time]
        block = wide(block).view(batch, time, 3, num_heads, -1)
        if turns is not None:
            _turn_block(block, *turns, 1.0)
        sizes = (batch, num_heads, time, time, block.shape[4])
        context, weights = _looked(sizes, _parts(block), mask, causal)
        context = narrow_rows(context.view(-1, width))
        ctx.save_for_backward(rows, weight, block, weights, context, outer_weight, *(turns or ()))
        ctx.sizes, ctx.causal = sizes, causal
        ctx.set_materialize_grads(False)
        found = torch.addmm(narrow(outer_bias), context, outer_weight.T)[: batch * time]
        return wide(found).view(batch, time, -1), block

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_output: Tensor | None, of_block: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, weight, block, weights, context, outer_weight, *angles = ctx.saved_tensors
        batch, heads, time, _, size = ctx.sizes
        of_outer = of_outer_bias = None
        gradient = torch.empty_like(block)
        if of_output is None:  # only keys and values were used
            gradient.zero_()
        else:
            of_output = of_output.reshape(batch * time, -1)
            of_outer_bias, of_output = of_output.sum(0), rows_like(of_output, rows)
            of_outer = wide(of_output.T @ context)
            of_context = wide((of_output @ outer_weight)[: batch * time]).view(-1).numpy()
            strides = (time * heads * size, size, heads * size)
            out = tuple(numbers for numbers, _ in _parts(gradient))
            _look_back(ctx.sizes, _parts(block), ctx.causal, weights, (of_context, strides), out, 3 * heads * size)
        if of_block is not None:
            gradient += of_block
        if angles:
            cosines, sines = angles
            _turn_block(gradient, cosines, sines, -1.0)
        gradient = gradient.view(batch * time, -1)
        of_bias, gradient = gradient.sum(0), rows_like(gradient, rows)
        of_inputs = wide((gradient @ weight)[: batch * time]).view(batch, time, -1)
        return of_inputs, wide(gradient.T @ rows), of_bias, of_outer, of_outer_bias, None, None, None, None


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

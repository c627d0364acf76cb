"""Attention of short texts in one compiled pass: `attention.attend` of all heads, and the gradients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqloom.nn.plain import can_be_compiled

if TYPE_CHECKING:
    import numpy as np

LONGEST = 128  # queries or keys; up to there it was measured to be faster than torch's


def heads_fit(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> bool:
    """Whether `look_at_once` serves: in training, where one thread computes, and a mask hides keys from all alike."""
    return (
        can_be_compiled(query)
        and max(query.shape[2], keys.shape[2]) <= LONGEST
        and (mask is None or (mask.ndim == 4 and mask.shape[1:] == (1, 1, keys.shape[2])))
        and query.stride(-1) == keys.stride(-1) == values.stride(-1) == 1
    )


def look_at_once(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """(batch, heads, queries, size) and what it looks at -> context of its shape; a row that sees no key gets zeros.

    mask (batch or 1, 1, 1, keys): True where a key is real. A causal query sees keys up to its own place.
    """
    return _Look.apply(query, keys, values, mask, causal)


def flat(tensor: Tensor) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The memory from a tensor's first number to its last, and the strides of batch, head and time."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    batch, head, time, _ = tensor.stride()
    return tensor.as_strided((reach,), (1,)).numpy(), (batch, head, time)


class _Look(torch.autograd.Function):
    """Scores, softmax and context; the weights are kept for the way back."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        from seqloom.kernels.heads import filled_up, look

        batch, heads, num_queries, size = query.shape
        num_keys = keys.shape[2]
        visible = query.new_zeros(1 if mask is None else len(mask), filled_up(num_keys))
        visible[:, :num_keys] = 1.0 if mask is None else mask[:, 0, 0]
        weights = query.new_empty(batch * heads * filled_up(num_queries) * filled_up(num_keys))
        context = query.new_empty(batch, num_queries, heads, size)
        sizes = (batch, heads, num_queries, num_keys, size)
        given = (*flat(query.detach()), *flat(keys.detach()), *flat(values.detach()))
        look(sizes, *given, visible.numpy(), causal, weights.numpy(), context.view(-1).numpy())
        ctx.save_for_backward(query, keys, values, weights)
        ctx.causal = causal
        return context.transpose(1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_context: Tensor) -> tuple[Tensor | None, ...]:
        from seqloom.kernels.heads import look_back

        query, keys, values, weights = ctx.saved_tensors
        of_context = of_context if of_context.stride(-1) == 1 else of_context.contiguous()
        batch, heads, num_queries, size = query.shape
        pulls = [query.new_empty(batch, part.shape[2], heads, size) for part in (query, keys, values)]
        given = (*flat(query.detach()), *flat(keys.detach()), *flat(values.detach()))
        found = tuple(pull.view(-1).numpy() for pull in pulls)
        sizes = (batch, heads, num_queries, keys.shape[2], size)
        look_back(sizes, *given, ctx.causal, weights.numpy(), *flat(of_context), found)
        return (*(pull.transpose(1, 2) for pull in pulls), None, None)

"""Losses over symbols. The output layer and its loss are one operation, because together they cost half the memory.

A vocabulary of 10,000 makes the logits the largest tensor of a training step by far. `projected_cross_entropy`
computes them a few rows at a time, takes the gradient at once, and forgets them; `plain_cross_entropy` is the same
sum written with torch's own functions, and the test's reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS_AT_A_TIME = 256


class SymbolLoss(NamedTuple):
    """Sums over rows: `loss` with label smoothing (to minimise), `nll` without it (to report)."""

    loss: Tensor
    nll: Tensor


def plain_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> SymbolLoss:
    """(rows, d), (symbols, d), (symbols,), (rows,) -> sums of the loss over rows."""
    logits = F.linear(features, weight, bias)
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    return SymbolLoss(loss, F.cross_entropy(logits.detach(), targets, reduction="sum"))


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Gradients are computed on the way forward, chunk by chunk; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        num_symbols = weight.shape[0]
        want_gradient = any(ctx.needs_input_grad[:3])
        grad_features = torch.empty_like(features) if want_gradient else None
        grad_weight = torch.zeros_like(weight) if want_gradient else None
        grad_bias = torch.zeros_like(bias) if want_gradient and bias is not None else None
        loss, nll = features.new_zeros(()), features.new_zeros(())
        for start in range(0, features.shape[0], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            chunk, gold = features[rows], targets[rows, None]
            logits = F.linear(chunk, weight, bias)  # (rows, symbols)
            log_sum = logits.logsumexp(-1, keepdim=True)
            chunk_nll = (log_sum - logits.gather(1, gold)).sum()
            nll += chunk_nll
            loss += chunk_nll
            if smoothing:
                uniform = log_sum.sum() - logits.sum() / num_symbols
                loss += smoothing * (uniform - chunk_nll)
            if grad_features is not None and grad_weight is not None:
                grad = logits.sub_(log_sum).exp_()  # softmax
                grad.scatter_add_(1, gold, grad.new_full(gold.shape, smoothing - 1.0))
                if smoothing:
                    grad.sub_(smoothing / num_symbols)
                torch.mm(grad, weight, out=grad_features[rows])
                grad_weight.addmm_(grad.T, chunk)
                if grad_bias is not None:
                    grad_bias.add_(grad.sum(0))
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = [None if grad is None else grad * grad_loss for grad in ctx.saved_tensors]
        return (*grads, None, None)


def projected_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> SymbolLoss:
    """`plain_cross_entropy` without ever holding all logits: equal value, equal gradients, a fraction of the memory."""
    return SymbolLoss(*_ProjectedCrossEntropy.apply(features, weight, bias, targets, smoothing))

"""Losses over symbols. The output layer and its loss are one operation, because together they cost half the memory.

A vocabulary of 10,000 makes the logits the largest tensor of a training step by far. `projected_cross_entropy`
computes them a few rows at a time, takes the gradient at once, and forgets them; `plain_cross_entropy` is the same
sum written with torch's own functions, and the test's reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.kernels.agreement import agree
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.powers import narrow_powers, powers
from seqloom.kernels.rows import add_narrow_to
from seqloom.nn.adding import add_rows, adds_to, gradient_of
from seqloom.nn.drawing import own_generator
from seqloom.nn.narrow import NARROW, narrow, narrow_rows, put_product, rows_like, wide
from seqloom.nn.plain import suits_a_loop

ROWS_AT_A_TIME = 256
NARROW_ROWS = 256  # each time their gradient of the weight is made wide and added up
ALIGNED = 64  # bytes


class SymbolLoss(NamedTuple):
    """Sums over rows: `loss` with label smoothing (to minimise), `nll` without it (to report)."""

    loss: Tensor
    nll: Tensor


class Loss(NamedTuple):
    """What a task minimises over a batch: sums as in `SymbolLoss`, and what the next batch of the rows goes on from."""

    loss: Tensor
    nll: Tensor
    carried: Any = None


# features (rows, d), weight (symbols, d), bias (symbols,), targets (rows,), smoothing -> sums over rows
Entropy = Callable[[Tensor, Tensor, Tensor | None, Tensor, float], SymbolLoss]


def plain_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> SymbolLoss:
    """(rows, d), (symbols, d), (symbols,), (rows,) -> sums of the loss over rows."""
    logits = F.linear(features, weight, bias)
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    return SymbolLoss(loss, F.cross_entropy(logits.detach(), targets, reduction="sum"))


def project(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(rows, d), (symbols, d), (symbols,) -> logits (rows, symbols), whose rows begin at multiples of 64 bytes.

    Where it does not, because the vocabulary has an odd size, the product takes up to 1.6 times as long.
    """
    rows, symbols = features.shape[0], weight.shape[0]
    aligned = ALIGNED // features.element_size()
    room = features.new_empty(rows, -(-symbols // aligned) * aligned)
    logits = room[:, :symbols]
    if bias is None:
        return torch.mm(features, weight.T, out=logits)
    return torch.addmm(bias, features, weight.T, out=logits)


def _whole_rows(logits: Tensor) -> Any:
    """The memory of some rows as one block for a compiled loop, with what follows each row."""
    block = logits.as_strided((logits.shape[0], logits.stride(0)), (logits.stride(0), 1))
    return (block.view(torch.uint16) if block.dtype == NARROW else block).numpy()


def powers_in_place(logits: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """exp(logits + bias - largest) where the logits were; the largest and the sum of each row, (rows, 1) each.

    Of narrow logits the powers are narrow, too; largest and sum are not.
    """
    is_narrow = logits.dtype == NARROW
    if suits_a_loop(logits, NARROW if is_narrow else torch.float32):
        largest, sums = torch.empty(2, logits.shape[0], 1)
        offsets = (torch.zeros(logits.shape[1]) if bias is None else bias.contiguous()).numpy()
        raise_all = narrow_powers if is_narrow else powers
        raise_all(_whole_rows(logits), offsets, largest[:, 0].numpy(), sums[:, 0].numpy())
        return logits, largest, sums
    if is_narrow:
        raised, largest, sums = powers_in_place(logits.float(), bias)
        return logits.copy_(raised), largest, sums
    if bias is not None:
        logits += bias
    largest = logits.amax(-1, keepdim=True)
    raised = logits.sub_(largest).exp_()
    return raised, largest, raised.sum(-1, keepdim=True)


def plain_agreement(first: Tensor, second: Tensor) -> Tensor:
    """(rows, symbols) logits of two passes -> how far they disagree: KL of one from the other and back, summed."""
    ours, theirs = first.log_softmax(-1), second.log_softmax(-1)
    return ((ours.exp() - theirs.exp()) * (ours - theirs)).sum()


def plain_consistent_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, consistency: float
) -> SymbolLoss:
    """R-Drop (Liang et al. 2021, eq. 4, halved): the mean loss of two passes, and a quarter of their disagreement.

    features (2 * rows, d): the same rows twice, read with other units dropped; targets (rows,).
    """
    loss, nll = plain_cross_entropy(features, weight, bias, targets.repeat(2), smoothing)
    apart = plain_agreement(*F.linear(features, weight, bias).chunk(2))
    return SymbolLoss((loss + consistency / 2 * apart) / 2, nll / 2)


def agreement_in_place(
    first: Tensor, second: Tensor, strength: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two passes, to both of which `bias` is added, become their part of the gradient, gold symbols left out.

    -> log-sums of both (rows, 1) each, the disagreement of each row (rows,)
    """
    difference = torch.sub(first, second, out=first.new_empty(first.shape[0], first.stride(0))[:, : first.shape[1]])
    raised, largest, sums = powers_in_place(first, bias)
    other, other_largest, other_sums = powers_in_place(second, bias)
    log_sums, other_log_sums = largest + sums.log(), other_largest + other_sums.log()
    shift = log_sums - other_log_sums
    if first.device.type == "cpu" and first.dtype == torch.float32 and can_compile():
        found = first.new_empty(first.shape[0])
        both = torch.stack([sums[:, 0], other_sums[:, 0]]).numpy()
        shifts = shift[:, 0].numpy()
        blocks = (_whole_rows(raised), _whole_rows(other), _whole_rows(difference))
        agree(*blocks, first.shape[1], both, shifts, strength, found.numpy())
        return log_sums, other_log_sums, found
    difference -= shift
    raised /= sums
    other /= other_sums
    mean, other_mean = (raised * difference).sum(-1, keepdim=True), (other * difference).sum(-1, keepdim=True)
    apart = raised - other
    raised += strength * (raised * (difference - mean) + apart)
    other += strength * (other * (other_mean - difference) - apart)
    return log_sums, other_log_sums, (mean - other_mean)[:, 0]


def _narrow_gradients(raised: Tensor, features: Tensor, sums: Tensor) -> Tensor:
    """The gradients of weight and bias from narrow powers (rows and more, symbols): (symbols, d + 1 and more), narrow.

    The bias is one more column: a product of narrow numbers with a single vector takes several times as long.
    """
    size = features.shape[1]
    shares = features.new_zeros(len(features), size + ALIGNED // raised.element_size())
    torch.div(features, sums, out=shares[:, :size])
    torch.reciprocal(sums, out=shares[:, size : size + 1])
    return raised.T @ rows_like(shares, raised)


def _add_to_all(into: Tensor, rows: Tensor, everywhere: Tensor, factor: float) -> None:
    """into += factor * (rows + everywhere): (symbols, d), the same and perhaps narrow, (d,)."""
    if rows.dtype == NARROW and suits_a_loop(into) and into.is_contiguous():
        add_narrow_to(into.numpy(), _whole_rows(rows), everywhere.numpy(), factor)
    else:
        into.add_(rows, alpha=factor).add_(everywhere, alpha=factor)


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Gradients are computed on the way forward, chunk by chunk; backward only scales them.

    The loss is log Σ exp(logit) - (1 - smoothing) gold logit - uniform * mean logit, where `of_gold` (rows,), if given,
    is added to the gold logits first. With `in_place` the weight's gradient is added where it is kept.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        uniform: float,
        consistency: float = 0.0,
        of_gold: Tensor | None = None,
        in_place: bool = False,
    ) -> tuple[Tensor, Tensor]:
        half, width = features.shape[0] // 2, features.shape[1]
        want_gradient = any(ctx.needs_input_grad[:3])
        grad_features = torch.empty_like(features) if want_gradient else None
        grad_weight: Tensor | None = None  # of the first chunk alone it may be narrow
        grad_bias = torch.zeros_like(bias) if want_gradient and bias is not None else None
        nll, gold_sum, apart = features.new_zeros(3).unbind()
        table = narrow(weight)
        is_narrow = table.dtype != weight.dtype
        # A product with a bias writes it into every row first. A compiled pass over the logits adds it on its way.
        early, late = (None, bias) if is_narrow or suits_a_loop(features) else (bias, None)

        def logits_of(rows: slice) -> Tensor:
            """(rows, symbols); where they are narrow, with rows below that nobody asked for."""
            logits, gold = project(narrow_rows(features[rows]), table, early), targets[rows, None]
            if of_gold is not None:
                logits[: len(gold)].scatter_add_(1, gold, of_gold[rows, None].to(logits.dtype))
            return logits

        def gold_of(rows: slice, logits: Tensor) -> Tensor:
            """What the gold symbols got, (rows, 1): never rounded."""
            gold = targets[rows, None]
            if is_narrow:
                found = (features[rows] * F.embedding(targets[rows], weight)).sum(-1, keepdim=True)
                found = found if of_gold is None else found + of_gold[rows, None]
            else:
                found = logits.gather(1, gold)
            return found if late is None else found + late[gold]

        pairs = ROWS_AT_A_TIME if is_narrow else max(1, ROWS_AT_A_TIME // 2)
        for start in range(0, half if consistency else 0, pairs):
            end = min(half, start + pairs)
            twins = (slice(start, end), slice(half + start, half + end))
            first, second = (logits_of(rows) for rows in twins)
            gold_logits = gold_of(twins[0], first) + gold_of(twins[1], second)
            first, second = wide(first[: end - start]), wide(second[: end - start])
            one, other, found = agreement_in_place(first, second, consistency / 2, late)
            nll += (one + other - gold_logits).sum()
            gold_sum += gold_logits.sum()
            apart += found.sum()
            for rows, part in zip(twins, (first, second), strict=True):
                if grad_features is not None:
                    if grad_bias is not None:
                        grad_bias += part.sum(0)
                    given = narrow_rows(features[rows])
                    part = rows_like(part, given)
                    put_product(grad_features[rows], part, table)
                    grad_weight = _summed(grad_weight, part.T @ given)
        size = NARROW_ROWS if is_narrow else ROWS_AT_A_TIME
        for start in range(0, 0 if consistency else features.shape[0], size):
            rows = slice(start, start + size)
            logits = logits_of(rows)
            gold_logits = gold_of(rows, logits)
            _, largest, sums = powers_in_place(logits[: len(gold_logits)], late)
            log_sum = largest + sums.log()  # (rows, 1)
            nll += (log_sum - gold_logits).sum()
            gold_sum += gold_logits.sum()
            if grad_features is not None:  # the softmax is the powers / sums
                put_product(grad_features[rows], logits, table)
                grad_features[rows] /= sums
                if is_narrow:
                    of_both = _narrow_gradients(logits, features[rows], sums)
                    grad_weight = _summed(grad_weight, of_both[:, :width])
                    if grad_bias is not None:
                        grad_bias += of_both[:, width]
                else:
                    shares = features[rows] / sums
                    grad_weight = logits.T @ shares if grad_weight is None else grad_weight.addmm_(logits.T, shares)
                    if grad_bias is not None:
                        grad_bias.addmv_(logits.T, sums.reciprocal()[:, 0])
        loss = nll + smoothing * gold_sum
        # The mean over symbols of a product is the product of the mean: no logit is computed for it, and its gradients
        # are one row or one number, repeated.
        everywhere = features.sum(0) * (-uniform / len(weight))
        if uniform:
            mean = weight.mean(0)
            means = mean @ features.sum(0)
            loss -= uniform * (means if bias is None else means + features.shape[0] * bias.mean())
        if grad_features is not None:  # one entry a row: no pass over the logits
            grad_features -= (1 - smoothing) * F.embedding(targets, weight)
            if uniform:
                grad_features -= uniform * mean
            if grad_bias is not None:
                grad_bias.index_add_(0, targets, features.new_full((len(targets),), smoothing - 1))
                grad_bias -= uniform * features.shape[0] / len(weight)
        ctx.save_for_backward(grad_features, grad_weight, grad_bias, features, targets, everywhere)
        ctx.weight, ctx.smoothing, ctx.in_place = weight, smoothing, in_place
        ctx.scale = 0.5 if consistency else 1.0
        if consistency:
            loss, nll = (loss + consistency / 2 * apart) / 2, nll / 2
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_features, grad_weight, grad_bias, features, targets, everywhere = ctx.saved_tensors
        scale = ctx.scale * float(grad_loss)
        of_features, of_bias = (None if grad is None else grad * scale for grad in (grad_features, grad_bias))
        of_weight = None
        if ctx.needs_input_grad[1]:
            of_weight = gradient_of(ctx.weight) if ctx.in_place else torch.zeros_like(ctx.weight)
            if grad_weight is not None:  # there were rows
                _add_to_all(of_weight, grad_weight, everywhere, scale)
            add_rows(of_weight, targets, features, (ctx.smoothing - 1) * scale)
        return of_features, None if ctx.in_place else of_weight, of_bias, *[None] * 6


def _summed(sum_so_far: Tensor | None, more: Tensor) -> Tensor:
    """Of one chunk what it is, of several a wide sum."""
    return more if sum_so_far is None else wide(sum_so_far).add_(more)


def projected_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> SymbolLoss:
    """`plain_cross_entropy` without ever holding all logits: equal value, equal gradients, a fraction of the memory."""
    return SymbolLoss(
        *_ProjectedCrossEntropy.apply(features, weight, bias, targets, smoothing, smoothing, 0.0, None, adds_to(weight))
    )


def consistent_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, consistency: float
) -> SymbolLoss:
    """`plain_consistent_cross_entropy` without ever holding all logits."""
    twice = targets.repeat(2)
    return SymbolLoss(
        *_ProjectedCrossEntropy.apply(
            features, weight, bias, twice, smoothing, smoothing, consistency, None, adds_to(weight)
        )
    )


class SampledCrossEntropy:
    """Cross-entropy over a few candidates (Bengio & Senécal 2003): the right symbols of a batch, and some drawn.

    The sum over all symbols, log Σ exp(logit), is what an output layer costs. It is estimated from the candidates, each
    weighed by how seldom it is one: a symbol that is one with probability p stands for 1 / p of its kind. A row's own
    gold symbol is always among them and stands for itself, so the estimate of the sum is unbiased.

    Label smoothing asks for the mean logit of all symbols, which is estimated from the same candidates in the same way.
    The exact mean would cost no more, but it raises every symbol at every update, while only candidates are pushed
    down: those that are hardly ever one would rise. Two passes that should agree (R-Drop) see the same candidates, and
    their disagreement is that of the two estimated softmaxes. It is an estimate as well, as the logarithm of a sum is:
    its gradients are its own exact ones, and its bias vanishes as the candidates become more.
    """

    FLATTER = 0.5  # symbols are drawn by this power of their frequency

    def __init__(self, counts: Tensor, num_drawn: int, plain: bool = False) -> None:
        counts = counts.double() + 1  # a symbol that never comes must learn to be unlikely, too
        self.num_drawn, self.plain = num_drawn, plain
        self.shares = counts / counts.sum()
        drawn = counts**self.FLATTER
        self.drawn = drawn / drawn.sum()
        self.ends = self.drawn.cumsum(0)

    def draw(self) -> Tensor:
        """Symbols, with repetition."""
        found = torch.searchsorted(
            self.ends, torch.rand(self.num_drawn, dtype=torch.float64, generator=own_generator())
        )
        return found.clamp_(max=len(self.ends) - 1)

    def log_probabilities(self, symbols: Tensor, num_gold: int) -> Tensor:
        """Of being a candidate where so many others are gold, as if these were independent of each other."""
        absent = num_gold * torch.log1p(-self.shares[symbols]) + self.num_drawn * torch.log1p(-self.drawn[symbols])
        return (-torch.expm1(absent)).log()

    def __call__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float = 0.0,
        consistency: float = 0.0,
    ) -> SymbolLoss:
        """As `plain_cross_entropy`, estimated.

        With `consistency` as `plain_consistent_cross_entropy`: features (2 * rows, d), the same rows twice.
        """
        passes = 2 if consistency else 1
        symbols, places = torch.unique(torch.cat([targets, self.draw()]), return_inverse=True)
        gold = places[: len(targets)].repeat(passes)
        rarity = self.log_probabilities(symbols, max(0, len(targets) - 1)).to(features.dtype)
        few, of_few = weight.index_select(0, symbols), rarity.new_zeros(len(symbols)) if bias is None else bias[symbols]
        share = smoothing / len(weight)
        if self.plain:
            raw, own = F.linear(features, few, of_few), F.one_hot(gold, len(symbols))
            logits = raw - rarity * (1 - own)
            log_sums, gold_logits = logits.logsumexp(-1), logits.gather(1, gold[:, None])[:, 0]
            nll = (log_sums - gold_logits).sum()
            loss = nll + smoothing * gold_logits.sum() - share * (raw * (-rarity * (1 - own)).exp()).sum()
            if consistency:
                loss = loss + consistency / 2 * plain_agreement(*logits.chunk(2))
            return SymbolLoss(loss / passes, nll.detach() / passes)
        offset = of_few - rarity
        loss, nll = _ProjectedCrossEntropy.apply(features, few, offset, gold, smoothing, 0.0, consistency, rarity[gold])
        if smoothing:
            loss = loss - share / passes * self._sum_all(features, few, of_few, gold, (-rarity).exp())
        return SymbolLoss(loss, nll)

    @staticmethod
    def _sum_all(features: Tensor, few: Tensor, of_few: Tensor, gold: Tensor, standing: Tensor) -> Tensor:
        """The logits of all symbols, summed over symbols and rows, where each candidate stands for so many of its kind.

        A sum of products is the product of sums: no logit is computed but the gold ones, which stand for themselves.
        """
        every = (standing @ few) @ features.sum(0) + len(features) * (standing @ of_few)
        own = (features * F.embedding(gold, few)).sum(-1) + of_few[gold]
        return every + ((1 - standing[gold]) * own).sum()

"""Models that read a text from both sides: what they minimise, and what is said about their quality.

A causal model reads a symbol and says the next. These bring `guesses(batch)` instead: what they know of some symbols,
and the symbols; once a direction, or once for the symbols that were hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from seqloom.batches.running import TextBatch, collate_lines, gather
from seqloom.batches.samplers import sorted_batches
from seqloom.batches.shards import TokenSequences
from seqloom.errors import UserError
from seqloom.losses import Entropy, SymbolLoss, projected_cross_entropy

SEED = 0  # of the symbols hidden when a model is measured: always the same ones of a text


def guesses(model: Any) -> bool:
    """Whether a model reads from both sides, so that it has no probability of a text from left to right."""
    return hasattr(model, "guesses")


def refuse_guessing(model: Any, what: str) -> None:
    """Neither text that goes on nor the probability of one comes from a model that must see both sides."""
    if guesses(model):
        raise UserError(
            f"a {model.settings.kind} cannot {what}: it knows a symbol only from both sides of it. Take a language "
            "model that reads from left to right, such as recurrent_lm or transformer_lm; this one gives vectors of "
            "words (model.contextual, 'seqloom look MODEL contexts')"
        )


def guessing_loss(
    model: Any, batch: TextBatch, *, smoothing: float = 0.0, entropy: Entropy = projected_cross_entropy
) -> SymbolLoss:
    """Both directions are added up to be minimised, and averaged to be reported.

    What is guessed of fewer symbols than a batch has counts as if it were all of them: the loss stays one a symbol.
    """
    found = [
        (entropy(seen, model.output.weight, model.output.bias, said, smoothing), batch.num_tokens / max(1, len(said)))
        for seen, said in model.guesses(batch)
    ]
    loss, nll = (torch.stack([one[part] * weight for one, weight in found]) for part in (0, 1))
    return SymbolLoss(loss.sum(), nll.mean())


def measure(
    model: Any,
    lines: TokenSequences,
    batching: str,
    first: int,
    tokens: int,
    progress: Callable[[float], None] | None = None,
) -> tuple[float, int]:
    """The summed loss of all symbols that were guessed, as the mean of both directions, and how many they are."""
    generator = torch.Generator().manual_seed(SEED)
    total, count = 0.0, 0
    with torch.inference_mode():
        for share, batch in _batches(model, lines, batching, first, tokens):
            found = model.guesses(batch, generator)
            for seen, said in found:
                total += float(projected_cross_entropy(seen, model.output.weight, model.output.bias, said).nll) / len(
                    found
                )
            count += len(found[0][1])
            if progress is not None:
                progress(share)
    return total, count


def _batches(
    model: Any, lines: TokenSequences, batching: str, first: int, tokens: int
) -> Iterator[tuple[float, TextBatch]]:
    """A text in one fixed order, and how much of it is done after each batch: lines, or pieces that do not overlap."""
    if batching == "sentences":
        lengths = np.diff(lines.offsets[0 : len(lines) + 1])
        batches = sorted_batches(lengths, tokens)
        for number, indices in enumerate(batches):
            yield (number + 1) / len(batches), collate_lines([lines[i] for i in indices], first)
        return
    width, size = model.settings.context, len(lines.tokens)
    starts = np.arange(0, size - width + 1, width)
    many = max(1, tokens // width)
    for some in range(0, len(starts), many):
        done = starts[some : some + many]
        yield (int(done[-1]) + width) / size, gather(lines.tokens, done, width, first)
    rest = size % width
    if rest:
        yield 1.0, gather(lines.tokens, np.array([size - rest]), rest, first)

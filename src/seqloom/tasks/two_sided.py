"""What masked and bidirectional language models share: they know a symbol from both of its sides.

A causal model reads a symbol and says the next. These bring `guesses(batch)` instead: what they know of some symbols,
and the symbols; once a direction, or once for the symbols that were hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.batches.running import TextBatch, collate_lines, gather
from seqloom.batches.samplers import sorted_batches
from seqloom.batches.shards import Sequences
from seqloom.losses import Entropy, Loss, projected_cross_entropy
from seqloom.settings import Settings
from seqloom.tasks.running_text import TOKENS, RunningTextTask

SEED = 0  # of the symbols hidden when a model is measured: always the same ones of a text


class TwoSidedTask(RunningTextTask):
    """A task whose models give vectors of words in their context, but no probability of a text."""

    Options = Settings
    instead = 'seqloom look {model} contexts WORD "a text with the word" "another text with it"'

    def loss(self, model: Any, batch: TextBatch, state: Any, smoothing: float, entropy: Entropy) -> Loss:
        """Both directions are added up to be minimised, and averaged to be reported.

        What is guessed of fewer symbols than a batch has counts as if it were all of them: the loss stays one a symbol.
        """
        weight, bias = model.output.weight, model.output.bias
        found = [
            (entropy(known, weight, bias, symbols, smoothing), batch.num_tokens / max(1, len(symbols)))
            for known, symbols in model.guesses(batch)
        ]
        loss, nll = (torch.stack([one[part] * share for one, share in found]) for part in (0, 1))
        return Loss(loss.sum(), nll.mean())

    def guessed(
        self, model: Any, lines: Sequences, progress: Callable[[float], None] | None = None
    ) -> tuple[float, int]:
        """The summed loss of all symbols that were guessed, as the mean of both directions, and how many they are."""
        generator = torch.Generator().manual_seed(SEED)
        total, count = 0.0, 0
        weight, bias = model.output.weight, model.output.bias
        with torch.inference_mode():
            for share, batch in self._in_order(model, lines):
                found = model.guesses(batch, generator)
                for known, symbols in found:
                    total += float(projected_cross_entropy(known, weight, bias, symbols).nll) / len(found)
                count += len(found[0][1])
                if progress is not None:
                    progress(share)
        return total, count

    def _in_order(self, model: Any, lines: Sequences) -> Iterator[tuple[float, TextBatch]]:
        """A text in one fixed order, and how much is done after each batch: lines, or pieces that do not overlap."""
        first = self.text.first
        if self.batching == "sentences":
            lengths = np.diff(lines.offsets[0 : len(lines) + 1])
            batches = sorted_batches(lengths, TOKENS)
            for number, indices in enumerate(batches):
                yield (number + 1) / len(batches), collate_lines([lines[i] for i in indices], first)
            return
        width, size = model.settings.context, len(lines.tokens)
        starts = np.arange(0, size - width + 1, width)
        many = max(1, TOKENS // width)
        for some in range(0, len(starts), many):
            done = starts[some : some + many]
            yield (int(done[-1]) + width) / size, gather(lines.tokens, done, width, first)
        rest = size % width
        if rest:
            yield 1.0, gather(lines.tokens, np.array([size - rest]), rest, first)

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [self.instead.format(model=folder), f"seqloom evaluate {folder}"]

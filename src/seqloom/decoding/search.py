"""Search: from a model that says one symbol at a time to whole answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqloom.batches.collate import SourceBatch
from seqloom.decoding.beam import beam_search
from seqloom.decoding.sampling import Tell, follow
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis, Steppable


@torch.inference_mode()
def decode(
    model: Steppable,
    batch: SourceBatch,
    settings: DecodingSettings,
    *,
    keep_attention: bool = False,
    numbers: Sequence[int] | None = None,
    tell: Tell | None = None,
) -> list[list[Hypothesis]]:
    """Answers to each sentence of the batch, best first, by the method the settings name.

    `numbers` are the sentences' numbers in the user's input: sampling seeds each sentence's draws by it. `tell` hears
    every symbol when it is said, unless several beginnings compete.
    """
    if settings.method == "beam":
        return beam_search(model, batch, settings, keep_attention=keep_attention)
    numbers = range(len(batch)) if numbers is None else numbers
    draws = settings.n_best if settings.method == "sample" else 1
    runs = [follow(model, batch, settings, keep_attention, numbers, draw, tell) for draw in range(draws)]
    return [sorted(answers, key=lambda h: -h.score) for answers in zip(*runs, strict=True)]

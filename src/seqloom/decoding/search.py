"""Search: from a model that predicts one symbol at a time to whole answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from seqloom.decoding.beam import beam_search
from seqloom.decoding.sampling import Callback, follow
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis, Stepper
from seqloom.nn.eight_bits import eight_bit_products
from seqloom.text.special import BOS_ID


@torch.inference_mode()
def search(
    stepper: Stepper,
    state: Any,
    first: Tensor,
    limit: Tensor,
    settings: DecodingSettings,
    *,
    source_lengths: Tensor | None = None,
    keep_attention: bool = False,
    numbers: Sequence[int] | None = None,
    callback: Callback | None = None,
) -> list[list[Hypothesis]]:
    """Answers to each sentence, best first, by the method the settings name.

    Args:
        stepper: a model that predicts one symbol at a time.
        state: where it stands before the first step, a row a sentence.
        first: (sentences,) the symbols it reads first.
        limit: (sentences,) the most symbols an answer may have, end included.
        settings: how to search.
        source_lengths: (sentences,) of what attention looks at, where there is a source.
        keep_attention: whether answers show where the model looked.
        numbers: the sentences' numbers in the user's input: sampling seeds each sentence's draws by it.
        callback: called with a sentence's place in the batch and a symbol as soon as it is chosen; not where several
            beginnings compete.
    """
    task: dict[str, Any] = {"source_lengths": source_lengths, "keep_attention": keep_attention}
    if settings.method == "beam":
        return beam_search(stepper, state, first, limit, settings, **task)
    numbers = range(len(first)) if numbers is None else numbers
    draws = settings.n_best if settings.method == "sample" else 1
    task |= {"numbers": numbers, "callback": callback}
    runs = [follow(stepper, state, first, limit, settings, **task, draw=draw) for draw in range(draws)]
    return [sorted(answers, key=lambda h: -h.score) for answers in zip(*runs, strict=True)]


def with_precision(model: Any, settings: DecodingSettings) -> AbstractContextManager[None]:
    """Within this, the model's products are as precise as the settings say: where it reads and where it searches."""
    return eight_bit_products(model) if settings.precision == "int8" else nullcontext()


def answer_sources(
    model: Any,
    source: Any,
    settings: DecodingSettings,
    *,
    keep_attention: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Read a batch of sources with an encoder-decoder and search for their targets, each from its own beginning."""
    with torch.inference_mode(), with_precision(model, settings):
        return search(
            model,
            model.start(source),
            torch.full((len(source),), BOS_ID),
            limits(source.lengths, settings),
            settings,
            source_lengths=source.lengths,
            keep_attention=keep_attention,
            numbers=numbers,
        )


def limits(source_lengths: Tensor, settings: DecodingSettings) -> Tensor:
    """(sentences,): the most symbols of each answer, end included."""
    return torch.tensor([settings.limit(length) for length in source_lengths.tolist()], dtype=torch.long)

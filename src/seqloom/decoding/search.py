"""Search: from a model that says one symbol at a time to whole answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from typing import TypeVar

import torch

from seqloom.batches.collate import SourceBatch
from seqloom.decoding.beam import beam_search
from seqloom.decoding.sampling import Tell, follow
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis, Steppable
from seqloom.nn.eight_bits import eight_bit_products

Item = TypeVar("Item")
Found = TypeVar("Found")


def side_by_side(compute: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[Found]:
    """compute(item) of all items, as they are done: by as many threads as torch has for one product, one item each.

    The products of a search are too short to be divided. `compute` must not depend on what other items do.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        yield from map(compute, items)
        return
    pool = ThreadPoolExecutor(min(threads, len(items)), "search", initializer=lambda: torch.set_num_threads(1))
    try:
        for future in as_completed([pool.submit(compute, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # a thread that is started later asks what was set last


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
    with eight_bit_products(model) if settings.precision == "int8" else nullcontext():
        if settings.method == "beam":
            return beam_search(model, batch, settings, keep_attention=keep_attention)
        numbers = range(len(batch)) if numbers is None else numbers
        draws = settings.n_best if settings.method == "sample" else 1
        runs = [follow(model, batch, settings, keep_attention, numbers, draw, tell) for draw in range(draws)]
    return [sorted(answers, key=lambda h: -h.score) for answers in zip(*runs, strict=True)]

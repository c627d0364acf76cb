"""From running text to an n-gram model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from seqloom.ngrams.counting import Counted, Counter, continuation_counts, joined
from seqloom.ngrams.levels import Level
from seqloom.ngrams.model import NGramModel
from seqloom.ngrams.settings import NGramSettings
from seqloom.ngrams.smoothing import Estimates, add_k, estimate_discounts, kneser_ney
from seqloom.text.special import BOS_ID, PAD_ID

Tell = Callable[[float, str], None]
NEVER = [PAD_ID, BOS_ID]
"""Symbols that no text can have next."""


def build_ngrams(
    tokens: np.ndarray | Iterable[np.ndarray],
    settings: NGramSettings,
    num_symbols: int,
    progress: Tell | None = None,
) -> NGramModel:
    """Count, and make probabilities of the counts.

    Every sentence is preceded by one begin symbol, which is a context and never predicted; its end is predicted like a
    word. What may follow a context is every symbol but these: padding and the begin.

    Args:
        tokens: ids of running text, each sentence followed by the end symbol; or blocks of whole sentences.
        settings: order, smoothing, which n-grams are kept.
        num_symbols: the size of the vocabulary, reserved symbols included.
        progress: told the share that is done, and what is being done.

    Returns:
        The model. `degenerate_orders` names the orders with too few rare n-grams to estimate discounts.
    """
    tell = progress or (lambda share, text: None)
    order = settings.order
    tell(0.0, "counting words")
    counter = Counter(joined(tokens, num_symbols), num_symbols)
    counted = [counter.first()]
    for length in range(2, order + 1):
        tell(0.6 * (length - 1) / order, f"counting {length}-grams")
        counted.append(counter.next())
    del counter
    tell(0.6, "estimating")
    levels, discounts = _estimate(counted, settings, num_symbols, tell)
    model = NGramModel(levels, settings, num_symbols, discounts)
    if model.degenerate_orders:
        orders = ", ".join(map(str, model.degenerate_orders))
        tell(1.0, f"too few rare n-grams to estimate the discounts of order {orders}: fixed ones are used")
    else:
        tell(1.0, f"{sum(model.num_ngrams()):,} n-grams")
    return model


def _estimate(
    counted: list[Counted], settings: NGramSettings, num_symbols: int, tell: Tell
) -> tuple[list[Level], np.ndarray | None]:
    """Order by order from below: each mixes with the probabilities of the one before. Empties `counted` on the way."""
    order, num_words = settings.order, num_symbols - len(NEVER)
    modified = settings.smoothing == "kneser_ney"
    discounts = np.zeros((order, 3))
    levels: list[Level] = []
    # Of the order below: probabilities, which n-grams begin a sentence, which are kept (None: all).
    shorter, begins, kept_below = np.full(1, 1 / num_words), np.zeros(1, bool), None
    for length in range(1, order + 1):
        one, counted[length - 1] = counted[length - 1], Counted(*[np.empty(0, np.int64)] * 3)
        above = counted[length].suffixes if length < order else None
        if length == 1:
            contexts = links = np.zeros(num_symbols, np.int64)
            begins = np.arange(num_symbols) == BOS_ID
        else:
            contexts, links = one.keys // num_symbols, one.suffixes
            begins = begins[contexts]
        kept = one.counts >= settings.min_count(length) if settings.min_count(length) > 1 else None
        counts = _counts_that_matter(one.counts, begins, above, modified)
        if length == 1:
            counts[BOS_ID] = 0
        if modified:
            discounts[length - 1] = estimate_discounts(counts)
            found = kneser_ney(counts, contexts, len(shorter), shorter[links], discounts[length - 1], kept)
        else:
            found = add_k(counts, contexts, len(shorter), num_words, settings.k, kept)
        if length == 1:
            levels.append(_words(found))
            kept = None  # every word keeps its place
        else:
            backoffs = np.log(found.backoffs if kept_below is None else found.backoffs[kept_below])
            levels[-1] = replace(levels[-1], backoffs=backoffs)
            levels.append(_longer(one.keys, contexts, found, kept, kept_below, num_symbols))
        shorter, kept_below = found.probabilities, kept
        tell(0.6 + 0.4 * length / order, f"estimated {length}-grams")
    return levels, discounts if modified else None


def _counts_that_matter(
    counts: np.ndarray, begins: np.ndarray, suffixes_above: np.ndarray | None, modified: bool
) -> np.ndarray:
    """All counts in the highest order. Below it, Kneser–Ney asks how many words stand before an n-gram, and add-k looks
    at the begins of sentences only, where no longer context can be had."""
    if suffixes_above is None:
        return counts.copy()
    return continuation_counts(counts, suffixes_above) if modified else np.where(begins, counts, 0)


def _words(found: Estimates) -> Level:
    found.probabilities[NEVER] = 0.0
    with np.errstate(divide="ignore"):
        log_probabilities = np.minimum(np.log(found.probabilities), 0.0)
    return Level(np.arange(len(log_probabilities)), log_probabilities, np.empty(0))


def _longer(
    keys: np.ndarray,
    contexts: np.ndarray,
    found: Estimates,
    kept: np.ndarray | None,
    kept_below: np.ndarray | None,
    num_symbols: int,
) -> Level:
    """The n-grams that are kept, with the ids that their contexts have once others are dropped."""
    probabilities = found.probabilities
    if kept is not None:
        keys, contexts, probabilities = keys[kept], contexts[kept], probabilities[kept]
        if kept_below is not None:
            keys = keys + (np.cumsum(kept_below)[contexts] - 1 - contexts) * num_symbols
    return Level(keys, np.minimum(np.log(probabilities), 0.0), np.empty(0))

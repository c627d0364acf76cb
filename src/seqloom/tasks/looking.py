"""What tasks that say one symbol after the other share when they are looked into."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from seqloom.decoding.beam import Considered
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.inspection.beam import Candidate, Search
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID
from seqloom.text.tokenizers import Tokenizer


def every_label(tokenizer: Tokenizer) -> list[str]:
    """What stands for each symbol in pictures, by itself."""
    return [tokenizer.labels([index])[0] for index in range(len(tokenizer))]


def next_symbols(logits: Tensor, tokenizer: Tokenizer) -> tuple[list[str], np.ndarray]:
    """All symbols and their log probabilities; as in a search, padding and the beginning never come. (symbols,)"""
    scores = logits.double()
    scores[[PAD_ID, BOS_ID]] = float("-inf")
    return every_label(tokenizer), scores.log_softmax(-1).numpy()


def watched(
    steps: Sequence[Considered], answers: Sequence[Hypothesis], tokenizer: Tokenizer, options: DecodingSettings
) -> Search:
    """A beam search that was watched, its symbols as labels."""
    labels = every_label(tokenizer)
    found = [
        [
            Candidate(parent, labels[symbol], total, "ended" if ended else "kept" if alive else "pruned")
            for parent, symbol, total, ended, alive in zip(*step, strict=True)
        ]
        for step in steps
    ]
    answer = [labels[symbol] for symbol in [*answers[0].tokens, EOS_ID]] if answers else []
    return Search(found, answer, answers[0].score if answers else 0.0, options.beam_size)

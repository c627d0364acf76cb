"""Scores of whole test sets of texts: BLEU, chrF and TER by sacrebleu, exact answers, error rates.

sacrebleu does the counting, so our figures can be compared with published ones; `signatures` returns the strings that
say how they were counted. sacrebleu's own defaults are kept, which has one visible effect: TER always ignores case.

One is not: BLEU counts the orders of n-grams that can occur (`eff:yes` in its signature). Where every answer is shorter
than four words there is no 4-gram, and by the default the BLEU of perfect answers would be 0. As soon as one answer has
four words, both are the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.errors import UserError, one_of
from seqloom.evaluation.error_rates import (
    character_error_rate,
    edit_counts,
    phone_error_rate,
    rate,
    sequence_error_rate,
    word_error_rate,
)
from seqloom.evaluation.significance import Rescore, interval, of_mean, of_sums

BY_SACREBLEU = ("bleu", "chrf", "ter")
ERROR_RATES = {
    "sequence_error_rate": sequence_error_rate,
    "word_error_rate": word_error_rate,
    "character_error_rate": character_error_rate,
    "phone_error_rate": phone_error_rate,
}
TEXT_METRICS = (*BY_SACREBLEU, "exact_match", *ERROR_RATES)
"""The metrics that compare texts with texts."""
USUAL = (*BY_SACREBLEU, "exact_match")
"""Those that are reported of texts unless a recipe asks for others."""


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = USUAL,
    *,
    lowercase: bool = False,
    tokenized: bool = False,
) -> dict[str, float]:
    """Score a test set, one reference for each hypothesis.

    Args:
        hypotheses: What the model answered.
        references: What it should have answered, in the same order.
        metrics: Any of `TEXT_METRICS`.
        lowercase: Ignore case.
        tokenized: The texts are already split into tokens by spaces, so BLEU counts them as they are instead of
            applying sacrebleu's 13a tokenisation.

    Returns:
        Metric name -> score, all in percent (TER may exceed 100).
    """
    assert_parallel(hypotheses, references)
    scores: dict[str, float] = {}
    for name in metrics:
        if name == "exact_match":
            scores[name] = exact_match(hypotheses, references, lowercase=lowercase)
        elif name in ERROR_RATES:
            scores[name] = ERROR_RATES[name](hypotheses, references, lowercase=lowercase)
        else:
            metric = _sacrebleu_metric(name, lowercase=lowercase, tokenized=tokenized)
            scores[name] = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
    return scores


def signatures(metrics: Sequence[str] = USUAL, *, lowercase: bool = False, tokenized: bool = False) -> dict[str, str]:
    """The sacrebleu signature of each metric, to be printed beside a score that others should be able to repeat.

    What is ours has no signature and is left out.
    """
    found: dict[str, str] = {}
    for name in metrics:
        if name in BY_SACREBLEU:
            metric = _sacrebleu_metric(name, lowercase=lowercase, tokenized=tokenized)
            # sacrebleu knows the number of references only after it has scored something.
            metric.corpus_score(["a"], [["a"]])
            found[name] = str(metric.get_signature())
    return found


def bleu_interval(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """Where BLEU lies in 95 % of test sets that are drawn anew; the same for the same texts."""
    return interval(rescored("bleu", hypotheses, references), len(references))


def exact_match(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """The percentage of answers equal to their reference; runs of white space count as one space."""
    return float(100.0 * exact_matches(hypotheses, references, lowercase=lowercase).mean())


def exact_matches(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> np.ndarray:
    """(examples,) whether each answer equals its reference."""
    assert_parallel(hypotheses, references)

    def normal(text: str) -> str:
        text = " ".join(text.split())
        return text.lower() if lowercase else text

    return np.array([normal(ours) == normal(theirs) for ours, theirs in zip(hypotheses, references, strict=True)])


def rescored(
    name: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenized: bool = False,
) -> Rescore:
    """The same score of a test set in which each example stands as often as it was drawn."""
    assert_parallel(hypotheses, references)
    if name in BY_SACREBLEU:
        metric = _sacrebleu_metric(name, lowercase=lowercase, tokenized=tokenized)
        counts = np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), np.float64)
        return of_sums(counts, lambda sums: float(metric._compute_score_from_stats(sums.tolist()).score))
    if name in ("exact_match", "sequence_error_rate"):
        right = exact_matches(hypotheses, references, lowercase=lowercase)
        return of_mean(100.0 * (right if name == "exact_match" else ~right))
    characters = name == "character_error_rate"
    counts = edit_counts(hypotheses, references, lowercase=lowercase, characters=characters)
    return of_sums(counts, lambda sums: rate(*sums))


def looks_tokenized(texts: Sequence[str]) -> bool:
    """Whether most texts end in a full stop that stands alone, as tokenised text does."""
    return sum(text.endswith(" .") for text in texts) > len(texts) / 2


def assert_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Fail on input that no caller of ours should produce: an empty test set, or lists that do not match."""
    assert not isinstance(hypotheses, str), "expected a list of texts, got one text"
    assert len(hypotheses) == len(references), (
        f"every hypothesis needs one reference: {len(hypotheses)} hypotheses, {len(references)} references"
    )
    assert len(hypotheses) > 0, "nothing to score: the list of hypotheses is empty"


def _sacrebleu_metric(name: str, *, lowercase: bool, tokenized: bool) -> Any:
    from sacrebleu.metrics import BLEU, CHRF, TER

    if name == "bleu":
        # `force` only silences advice to detokenise in the middle of our progress; `looks_tokenized` gives it in ours.
        tokenize = "none" if tokenized else "13a"
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=True, effective_order=True)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "ter":
        return TER()
    raise UserError(one_of("metric", name, TEXT_METRICS))

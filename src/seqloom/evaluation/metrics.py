"""Scores of whole test sets of texts: BLEU, chrF and TER by sacrebleu, exact answers, error rates.

sacrebleu does the counting, so our figures can be compared with published ones; `signatures` returns the strings that
say how they were counted. sacrebleu's own defaults are kept on purpose, which has one visible effect: TER always
ignores case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqloom.errors import UserError, one_of
from seqloom.evaluation.error_rates import (
    character_error_rate,
    phone_error_rate,
    sequence_error_rate,
    word_error_rate,
)

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


def group_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenized: bool = False
) -> float:
    """BLEU of a part of a test set.

    A part may hold only sentences too short for a 4-gram. Plain BLEU is then 0 even when every word is right, so the
    orders that cannot occur are left out. Wherever 4-grams exist, this equals `corpus_scores(...)["bleu"]`.
    """
    assert_parallel(hypotheses, references)
    metric = _sacrebleu_metric("bleu", lowercase=lowercase, tokenized=tokenized, effective_order=True)
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """The percentage of answers equal to their reference; runs of white space count as one space."""
    assert_parallel(hypotheses, references)

    def normal(text: str) -> str:
        text = " ".join(text.split())
        return text.lower() if lowercase else text

    hits = sum(normal(ours) == normal(theirs) for ours, theirs in zip(hypotheses, references, strict=True))
    return 100.0 * hits / len(references)


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


def _sacrebleu_metric(name: str, *, lowercase: bool, tokenized: bool, effective_order: bool = False) -> Any:
    from sacrebleu.metrics import BLEU, CHRF, TER

    if name == "bleu":
        # `force` only silences advice to detokenise in the middle of our progress; `looks_tokenized` gives it in ours.
        tokenize = "none" if tokenized else "13a"
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=True, effective_order=effective_order)
    if name == "chrf":
        return CHRF(lowercase=lowercase)
    if name == "ter":
        return TER()
    raise UserError(one_of("metric", name, TEXT_METRICS))

"""Bidirectional language modelling (ELMo): what comes next in a text, and what came before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from seqloom.batches.shards import Sequences
from seqloom.corpus.plain import PlainTextSettings
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.language import LanguageReport
from seqloom.models import BIDIRECTIONAL_MODELS
from seqloom.tasks.model_language import language_report
from seqloom.tasks.running_text import READINGS, RunningTextRecipe
from seqloom.tasks.two_sided import TwoSidedTask
from seqloom.training.settings import BidirectionalTrainingSettings

BOTH_WAYS = "forward and backward: all figures are of the mean of both directions' losses"


class BidirectionalLanguageRecipe(RunningTextRecipe):
    """A text read forward and backward."""

    training: BidirectionalTrainingSettings


class BidirectionalLanguageModelling(TwoSidedTask):
    """Foresee each symbol of a text from its left, and from its right (ELMo)."""

    name = "model_bidirectional_language"
    about = "running text: foresee symbols from the left and from the right (ELMo), for vectors of words in context"
    Recipe = BidirectionalLanguageRecipe
    models = BIDIRECTIONAL_MODELS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("perplexity", "bits_per_character")
    drawn = ("perplexity", "bits_per_character", "loss")
    per_symbol = frozenset({"loss"})
    kind = "a bidirectional language model"

    def measured(
        self,
        model: Any,
        name: str,
        lines: Sequences,
        corpus: PlainTextSettings,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> LanguageReport:
        nll, _ = self.guessed(model, lines, progress)
        return language_report(name, nll, lines, self.size_of(corpus), f"{READINGS[self.batching]}, {BOTH_WAYS}")

"""Masked language modelling (BERT): some symbols of a text are hidden, and guessed from all that stands around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from seqloom.batches.shards import Sequences
from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import UserError
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.masked import MaskedReport
from seqloom.models import MASKED_MODELS
from seqloom.tasks.running_text import READINGS, RunningTextRecipe
from seqloom.tasks.two_sided import TwoSidedTask
from seqloom.training.settings import MaskedTrainingSettings


class MaskedLanguageRecipe(RunningTextRecipe):
    """Hidden symbols of a text, guessed."""

    training: MaskedTrainingSettings


class MaskedLanguageModelling(TwoSidedTask):
    """Guess hidden symbols of a text (BERT)."""

    name = "model_masked_language"
    about = "running text: guess hidden symbols from both sides (BERT), for vectors of words in their context"
    Recipe = MaskedLanguageRecipe
    models = MASKED_MODELS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("loss", "pseudo_perplexity")
    drawn = ("loss", "pseudo_perplexity")
    per_symbol = frozenset({"loss", "pseudo_perplexity"})
    kind = "a masked language model"

    def measured(
        self,
        model: Any,
        name: str,
        lines: Sequences,
        corpus: PlainTextSettings,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> MaskedReport:
        nll, count = self.guessed(model, lines, progress)
        if not count:
            kind = model.settings.kind
            raise UserError(f"{name}: too short a text to measure a {kind}; none of its symbols was hidden")
        return MaskedReport(name, nll, count, len(lines.tokens), READINGS[self.batching])

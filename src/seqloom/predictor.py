"""From a model folder to answers and traces: the only way the command line, Python, a server or a page predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqloom.answers import Answer
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import UserError, one_of
from seqloom.evaluation.report import Evaluation
from seqloom.files import read_json
from seqloom.folders import FORMAT, find_model
from seqloom.inspection.heads import HeadMeasures
from seqloom.models import MODELS
from seqloom.settings import validated
from seqloom.tasks.translate import Translated, Translation
from seqloom.training.checkpoints import check_sizes, load_tensors, put_weights


class Predictor:
    """A trained model with everything that turns raw text into an answer."""

    def __init__(self, folder: Path, task: Translation, model: Any, decoding: DecodingSettings) -> None:
        self.folder, self.task, self.model, self.decoding = folder, task, model.eval(), decoding

    @classmethod
    def load(cls, path: str | Path) -> Predictor:
        """Load a model folder, or the model of a run folder. No code of the folder is executed."""
        folder = find_model(path)
        config = read_json(folder / "config.json")
        if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
            raise UserError(f"{folder}/config.json: not the description of a seqloom model")
        if config.get("format") != FORMAT:
            found = config.get("format")
            raise UserError(f"{folder}/config.json: this seqloom reads model format {FORMAT}; the folder has {found!r}")
        if config.get("task") == "embed":
            raise UserError(f"{folder}: word vectors, which answer no text; ask 'seqloom embed neighbours {path} WORD'")
        if config.get("task") == "model_language":
            raise UserError(f"{folder}: a language model, which goes on with a text; ask 'seqloom generate {path}'")
        kind = config["model"].get("kind")
        if not isinstance(kind, str) or kind not in MODELS:
            raise UserError(f"{folder}/config.json: " + one_of("model.kind", kind, MODELS))
        settings = validated(MODELS[kind][0], config["model"], f"{folder}/config.json")
        decoding = validated(DecodingSettings, config.get("decoding", {}), f"{folder}/config.json")
        task = Translation.load(folder)
        path = folder / "model.safetensors"
        weights = load_tensors(path)
        check_sizes(settings, weights, str(path))
        model = task.build(settings)
        put_weights(model, weights, str(path))
        return cls(folder, task, model, decoding)

    def size(self) -> str:
        """How large the model is."""
        return f"{sum(weight.numel() for weight in self.model.parameters()):,} parameters"

    def __call__(self, text: str, **decoding: Any) -> Answer:
        """Answer one text; keyword arguments override the decoding settings, such as `beam_size=1`."""
        return self.predict([text], **decoding)[0]

    def predict(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None, **decoding: Any
    ) -> list[Answer]:
        """Answer many texts; the order is kept."""
        found = self.task.translate(self.model, texts, self.decoding.overridden(decoding), progress)
        return [self._answer(translated) for translated in found]

    def evaluate(
        self,
        corpus: CorpusSettings | Sequence[Pair],
        name: str = "test",
        progress: Callable[[int], None] | None = None,
        options: dict[str, Any] | None = None,
        **decoding: Any,
    ) -> tuple[Evaluation, list[str]]:
        """Quality on a corpus with references, and the answers."""
        pairs = list(read_pairs(corpus)) if isinstance(corpus, CorpusSettings) else list(corpus)
        settings = self.decoding.overridden(decoding)
        return self.task.evaluate(self.model, name, pairs, settings, progress, **(options or {}))

    def trace(self, source: str, target: str | None = None) -> Any:
        """How the model gets from a source to a target (its own answer when none is given)."""
        return self.task.trace(self.model, source, self.task.target.encode(target)) if target else self(source).trace

    def head_measures(
        self, pairs: Sequence[Pair], progress: Callable[[float], None] | None = None
    ) -> list[HeadMeasures]:
        """What every attention head of a Transformer looks at, and what changes without it."""
        return self.task.head_measures(self.model, pairs, progress)

    def _answer(self, translated: Translated) -> Answer:
        best, *others = (
            Answer(translated.source, text, hypothesis.finished, _Details(self, translated.source, hypothesis))
            for hypothesis, text in zip(translated.hypotheses, translated.texts, strict=True)
        )
        best.alternatives.extend(others)
        return best


class _Details:
    """What a search found out about an answer, and what the model tells when it is led along it once more."""

    __slots__ = ("hypothesis", "predictor", "source")

    def __init__(self, predictor: Predictor, source: str, hypothesis: Hypothesis) -> None:
        self.predictor, self.source, self.hypothesis = predictor, source, hypothesis

    def sums(self) -> tuple[float, float]:
        return self.hypothesis.score, self.hypothesis.log_probability

    def labels(self) -> list[str]:
        return self.predictor.task.target.labels(self.hypothesis.tokens)

    def chances(self) -> list[float]:
        return self.hypothesis.token_log_probabilities

    def trace(self) -> Any:
        task, model = self.predictor.task, self.predictor.model
        return task.trace(model, self.source, self.hypothesis.tokens)

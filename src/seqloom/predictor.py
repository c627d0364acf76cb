"""From a model folder to answers and traces: the only way the command line, Python, a server or a page predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.decoding import DecodingSettings
from seqloom.errors import UserError, did_you_mean, one_of
from seqloom.evaluation.report import Evaluation
from seqloom.files import read_json
from seqloom.models import MODELS
from seqloom.settings import ModelSettings, validated
from seqloom.tasks.translate import Translated, Translation
from seqloom.training.checkpoints import load_tensors, put_weights

FORMAT = 1


@dataclass(frozen=True)
class Answer:
    """What the model said to one text.

    `score` is what answers are ranked by, `log_probability` the sum over `tokens`; `alternatives` holds the other
    answers when more than one was asked for; `trace` shows how the answer came about.
    """

    source: str
    text: str
    score: float
    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]
    finished: bool
    alternatives: list[Answer] = field(default_factory=list, repr=False)
    tracer: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def trace(self) -> Any:
        """Attention and gates, computed when first asked for."""
        assert self.tracer is not None
        return self.tracer()

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
            "finished": self.finished,
        }
        if self.alternatives:
            values["alternatives"] = [other.to_dict() for other in self.alternatives]
        return values


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
        kind = config["model"].get("kind")
        if not isinstance(kind, str) or kind not in MODELS:
            raise UserError(f"{folder}/config.json: " + one_of("model.kind", kind, MODELS))
        settings = validated(MODELS[kind][0], config["model"], f"{folder}/config.json")
        decoding = validated(DecodingSettings, config.get("decoding", {}), f"{folder}/config.json")
        task = Translation.load(folder)
        path = folder / "model.safetensors"
        weights = load_tensors(path)
        _check_sizes(settings, weights, str(path))
        model = task.build(settings)
        put_weights(model, weights, str(path))
        return cls(folder, task, model, decoding)

    def __call__(self, text: str, **decoding: Any) -> Answer:
        """Answer one text; keyword arguments override the decoding settings, such as `beam_size=1`."""
        return self.predict([text], **decoding)[0]

    def predict(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None, **decoding: Any
    ) -> list[Answer]:
        """Answer many texts; the order is kept."""
        found = self.task.translate(self.model, texts, self._decoding(decoding), progress)
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
        return self.task.evaluate(self.model, name, pairs, self._decoding(decoding), progress, **(options or {}))

    def trace(self, source: str, target: str | None = None) -> Any:
        """How the model gets from a source to a target (its own answer when none is given)."""
        return self.task.trace(self.model, source, self.task.target.encode(target)) if target else self(source).trace

    def _decoding(self, overrides: dict[str, Any]) -> DecodingSettings:
        values = {**self.decoding.model_dump(), **overrides}
        if values["n_best"] > values["beam_size"] and values["method"] == "beam":
            values["beam_size"] = values["n_best"]
        return validated(DecodingSettings, values, "decoding")

    def _answer(self, translated: Translated) -> Answer:
        answers = []
        for hypothesis, text in zip(translated.hypotheses, translated.texts, strict=True):
            tokens = hypothesis.tokens
            answers.append(
                Answer(
                    source=translated.source,
                    text=text,
                    score=hypothesis.score,
                    log_probability=hypothesis.log_probability,
                    tokens=self.task.target.labels(tokens),
                    token_log_probabilities=hypothesis.token_log_probabilities,
                    finished=hypothesis.finished,
                    tracer=lambda t=tokens: self.task.trace(self.model, translated.source, t),  # type: ignore[misc]
                )
            )
        best = answers[0]
        best.alternatives.extend(answers[1:])
        return best


def _check_sizes(settings: ModelSettings, weights: dict[str, Any], origin: str) -> None:
    """No size or number of layers may exceed what the file holds: a stranger's settings must not take all memory."""
    largest = max([len(weights), *(size for weight in weights.values() for size in weight.shape)])
    for name, value in settings.model_dump().items():
        if isinstance(value, int) and value > largest:
            raise UserError(f"{origin} does not fit its settings: {name} is {value:,}, more than anything in the file")


def find_model(path: str | Path) -> Path:
    """The model folder at a path: the folder itself, or `model` inside a run folder."""
    path = Path(path).expanduser()
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            return folder
    if (path / "recipe.yaml").is_file():
        raise UserError(f"{path}: this run has no model yet; finish it with 'seqloom train {path} --resume'")
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such model or run folder{near}")
    raise UserError(f"{path}: not a model folder (it has no config.json) nor a run with a model")

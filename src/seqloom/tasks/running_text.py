"""What tasks share that learn from running text: how it is cut into batches, carried state, how a model is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batches.running import Batches, Sentences, Stream, TextBatch, Windows, count_symbols
from seqloom.batches.samplers import Position
from seqloom.batches.shards import Sequences
from seqloom.corpus.examination import examine_texts
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint
from seqloom.errors import UserError, one_of
from seqloom.evaluation.figures import Report
from seqloom.evaluation.language import TextSize
from seqloom.losses import Entropy, Loss, SampledCrossEntropy, plain_cross_entropy, projected_cross_entropy
from seqloom.models.language import detach
from seqloom.settings import Settings, validated
from seqloom.sources.running_text import RunningText
from seqloom.tasks.base import Examined, Progress, Say, TextDataSettings, by_name
from seqloom.tasks.contextual import word_in_contexts
from seqloom.tasks.network import Network, NetworkRecipe
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.loop import Validation, rebuilt
from seqloom.training.settings import RunningTextTrainingSettings

READINGS = {
    "stream": "as running text",
    "windows": "in pieces",
    "sentences": "line by line",
}
TOKENS = 8192  # symbols of a batch when a model without a memory is measured


class RunningTextRecipe(NetworkRecipe):
    """Running text, read symbol by symbol."""

    data: TextDataSettings
    text: TextSettings = TextSettings()
    training: RunningTextTrainingSettings | None = Field(None)  # type: ignore[assignment]
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        problems = []
        if self.text.dropout:
            problems.append("text.dropout is for translation; a language model must read a text in one way")
        if self.text.tokenizer == "verbatim":
            problems += [
                f"data.{name}.sentences: running drops line breaks; text.tokenizer: verbatim keeps them"
                for name, text in self.data.corpora().items()
                if text.sentences == "running"
            ]
        return problems if self.training is None else problems + self._of_training(self.training)

    def _of_training(self, s: RunningTextTrainingSettings) -> list[str]:
        problems, context = [], getattr(self.model, "context", None)
        if context is not None and s.batching == "stream":
            kind = self.model.kind
            problems.append(f"training.batching: stream carries a state on; a {kind} has none: use windows")
        if context is not None and s.batching == "windows" and s.length > context:
            problems.append(
                f"training.length {s.length} is longer than model.context {context}, which it looks back at"
            )
        if self.text.tokenizer == "verbatim" and s.batching == "sentences":
            problems.append("text.tokenizer: verbatim has no ends of lines; training.batching: sentences needs them")
        if s.batching != "sentences" and s.num_shards > s.rows:
            problems.append(f"training.shards {s.num_shards} is more than training.rows {s.rows}: each needs a row")
        return problems


class RunningTextTask(Network):
    """A task that reads running text; what it learned of it is the vocabulary, and how models read it."""

    verbs: ClassVar[frozenset[str]] = frozenset({"evaluate"})
    kind = "a language model"

    def __init__(self, text: RunningText, batching: str) -> None:
        self.text, self.batching = text, batching

    # -- data --------------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        named = by_name(data, lambda path: Path(path).name)
        return {name: validated(PlainTextSettings, {"text": path}, "--data") for name, path in named.items()}

    @classmethod
    def describe(cls, corpus: PlainTextSettings) -> str:
        return describe(corpus)

    @classmethod
    def fingerprint(cls, corpus: PlainTextSettings) -> str:
        return fingerprint(corpus)

    @classmethod
    def examine(cls, recipe: Any, say: Say, **limits: Any) -> Examined:
        say("learning the vocabulary to count unknown symbols …")
        text = RunningText.learn(recipe.data.train, recipe.text)
        unknown_rate = lambda corpus: text.tokenizer.unknown_rate(text.texts(corpus))  # noqa: E731
        return Examined(*examine_texts(recipe.data.corpora(), describe, unknown_rate, say, len(text.tokenizer)))

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: Any, say: Say) -> Self:
        batching = "sentences" if recipe.training is None else recipe.training.batching
        return cls(RunningText.learn(recipe.data.train, recipe.text), batching)

    def adopt(self, recipe: Any) -> None:
        self.batching = recipe.training.batching

    def save(self, folder: Path) -> dict[str, Any]:
        self.text.save(folder)
        return {"symbols": {"text": len(self.text.tokenizer)}, "batching": self.batching}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        batching = config.get("batching")
        if not isinstance(batching, str) or batching not in READINGS:
            raise UserError(f"{folder}/config.json: " + one_of("batching", batching, READINGS))
        return cls(RunningText.load(folder), batching)

    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"text": self.text.tokenizer}

    def embeddings(self, model: Any) -> dict[str, nn.Module]:
        return {"text": model.embedding}

    def vocabulary(self) -> str:
        return self.text.describe_vocabulary()

    def sizes(self, settings: Any) -> dict[str, Any]:
        return self.text.sizes(settings)

    def work(self, recipe: Any) -> RunningTextWork:
        return RunningTextWork(self, recipe)

    # -- what is minimised and how good it is ------------------------------------------------------------------------

    def loss(self, model: Any, batch: TextBatch, state: Any, smoothing: float, entropy: Entropy) -> Loss:
        """Of the symbols of a batch, and the state that the next one goes on from."""
        raise NotImplementedError

    def measured(
        self,
        model: Any,
        name: str,
        lines: Sequences,
        corpus: PlainTextSettings,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Report:
        """How well the model knows an encoded text; `quick`: some symbols may have less around them."""
        raise NotImplementedError

    def samples(self, model: Any, recipe: Any) -> list[dict[str, str]]:
        """What a model in training says by itself."""
        return []

    def evaluate(
        self,
        model: Any,
        data: PlainTextSettings,
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> Report:
        lines = self.text.encode_something(data)
        return self.measured(
            model, name, lines, data, progress=None if progress is None else lambda share: progress(share, "")
        )

    def size_of(self, corpus: PlainTextSettings) -> TextSize:
        return self.text.size(corpus)

    # -- looking inside ----------------------------------------------------------------------------------------------

    def contexts(self, model: Any, word: str, texts: Sequence[str], say: Say = lambda text: None) -> list[np.ndarray]:
        """The vectors of one word in several texts: (texts, size) of each layer."""
        return word_in_contexts(self.text, model, word, texts, say)


class RunningTextWork:
    """What such a task brings to the training loop."""

    def __init__(self, task: RunningTextTask, recipe: Any) -> None:
        self.task, self.recipe, self.settings = task, recipe, recipe.training
        self.train, self.valid = task.text.encode(recipe.data.train), task.text.encode_something(recipe.data.valid)
        self.cut = self._cut(describe(recipe.data.train))
        self.entropy = self._entropy()

    def _cut(self, name: str) -> Batches:
        s, seed, first = self.settings, self.recipe.seed, self.task.text.first
        if s.batching == "sentences":
            lines = Sentences(
                self.train,
                batch_tokens=s.batch_tokens,
                max_length=s.max_length,
                seed=seed,
                first=first,
                only_last=getattr(s, "predict", "all") == "last",
            )
            if not lines.sampler.num_examples:
                raise UserError(
                    f"{name}: no line is left to train on ({lines.sampler.num_dropped} are empty or longer than "
                    f"training.max_length {s.max_length} or training.batch_tokens {s.batch_tokens})"
                )
            return lines
        if len(self.train.tokens) < 2 * s.rows:
            raise UserError(
                f"{name}: {len(self.train.tokens):,} symbols are too few for training.rows {s.rows}; give more text, "
                "or fewer rows"
            )
        kind = Stream if s.batching == "stream" else Windows
        return kind(self.train.tokens, rows=s.rows, length=s.length, seed=seed, first=first)

    def _entropy(self) -> Entropy:
        s, symbols = self.settings, len(self.task.text.tokenizer)
        if s.candidates is None or s.candidates >= symbols:
            return plain_cross_entropy if s.plain else projected_cross_entropy
        return SampledCrossEntropy(torch.from_numpy(count_symbols(self.train.tokens, symbols)), s.candidates, s.plain)

    def batches(self, position: Position) -> Iterator[tuple[Position, TextBatch]]:
        return self.cut.batches_from(position)

    def batches_per_epoch(self) -> float:
        return self.cut.batches_per_epoch()

    def epochs_done(self, position: Position) -> float:
        return self.cut.epochs_done(position)

    def loss(self, model: nn.Module, batch: TextBatch, carried: Any = None) -> Loss:
        s = self.settings
        found = self.task.loss(model, batch, None if batch.fresh else carried, s.label_smoothing, self.entropy)
        return found._replace(carried=detach(found.carried) if s.batching == "stream" else None)

    def restored(self, model: Any, tensors: list[Tensor]) -> Any:
        """The state of a stream's rows, in the form that the model gives it."""
        symbols = torch.full((len(tensors[0]), 1), self.task.text.first)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # what is dropped here must not be missing later
            like = model(symbols)[1]
        return rebuilt(like, iter(tensors))

    def validate(self, model: nn.Module, *, final: bool = False) -> Validation:
        report = self.task.measured(model, "valid", self.valid, self.recipe.data.valid, quick=not final)
        return Validation(report.figures, self.task.samples(model, self.recipe) if self.settings.samples else [])

    def overview(self) -> str:
        """What is worth knowing before step 1, for a person."""
        data = self.summary()
        return (
            f"{data['symbols']:,} symbols in {data['lines']:,} lines, {data['batches_per_epoch']:,} batches an epoch, "
            f"vocabulary: {data['vocabulary']}"
        )

    def summary(self) -> dict[str, Any]:
        """The same, for the run's folder."""
        return {
            "symbols": len(self.train.tokens),
            "lines": len(self.train),
            "batches_per_epoch": round(self.batches_per_epoch()),
            "vocabulary": self.task.vocabulary(),
        }

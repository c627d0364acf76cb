"""Translation on CTranslate2: what `Model` asks of a task, for a folder that `seqloom export` wrote. No torch.

The network of such a model is an `Engine`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqloom.answers import Answer
from seqloom.decoding.known import KnownDecoding
from seqloom.errors import UserError, one_of
from seqloom.export.checked import is_as_written
from seqloom.export.engine import Engine, Workers
from seqloom.export.search import Found, check_decoding, search
from seqloom.files import read_json
from seqloom.folders import EXPORTED
from seqloom.machine import num_cores

if TYPE_CHECKING:  # one sentence must be answered soon: these are imported where they are needed
    from seqloom.corpus.examples import Pair
    from seqloom.corpus.readers import CorpusSettings
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.evaluation.figures import Metric
    from seqloom.evaluation.report import TextReport
    from seqloom.export.search import Decoding
    from seqloom.text.tokenizers import Tokenizer

FORMAT = 2
CLOSED = "an exported model cannot be looked into; ask the model folder that it was made from"


class ExportedTranslation:
    """Text to text on CTranslate2, with the methods of `tasks.base.Task` that need a finished model."""

    name = "translate"
    kind = "a model exported to CTranslate2"
    verbs = frozenset({"predict", "evaluate"})
    tests = "first"
    report_options = frozenset({"lowercase", "tokenized", "decoding", "output", "engine"})
    offers: frozenset[str] = frozenset()
    one_input = "a text"

    def __init__(self, positions: int | None, measured: Sequence[str], parameters: int) -> None:
        """What the exporter wrote.

        Args:
            positions: the most symbols of a text or an answer, end symbol included; None: any number.
            measured: the metrics of a report.
            parameters: how large the model is.
        """
        self.positions, self.measured, self.parameters = positions, tuple(measured), parameters

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What models are compared by: what this one is measured by, without alignments."""
        from seqloom.evaluation.figures import metrics
        from seqloom.evaluation.metrics import TEXT_METRICS

        for name in self.measured:
            if name not in TEXT_METRICS:
                raise UserError(f"{EXPORTED}: {one_of('metrics', name, TEXT_METRICS)}")
        return metrics(*self.measured)

    @property
    def Options(self) -> type[DecodingSettings]:
        """What a user may choose when the model answers."""
        from seqloom.decoding.settings import DecodingSettings

        return DecodingSettings

    @classmethod
    def refusal(cls, verb: str, model: object) -> UserError:
        """Why the model cannot do something, and what can be done instead."""
        return UserError(f"{model}: {cls.kind}, which cannot {verb}; ask the model folder that it was made from")

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, CorpusSettings]:
        """What `--data` names."""
        from seqloom.corpus.readers import corpus_of

        return {"data": corpus_of(data, None if recipe is None else recipe.data.train)}

    @staticmethod
    def is_input(value: Any) -> bool:
        """Whether a value is one input, and not several."""
        return isinstance(value, str)

    @classmethod
    def examples(cls, inputs: Any, targets: Any) -> list[Pair]:
        """Inputs and what should be answered to each, to be measured on."""
        from seqloom.corpus.examples import paired

        return paired(inputs, targets, cls.is_input, cls.one_input)

    @classmethod
    def describe(cls, corpus: CorpusSettings) -> str:
        """A short name of a corpus for people."""
        from seqloom.corpus.readers import describe

        return describe(corpus)

    @staticmethod
    def inputs(given: Sequence[str]) -> list[str]:
        """What a command line names: texts."""
        return list(given)

    @classmethod
    def read(cls, corpus: CorpusSettings) -> list[Pair]:
        """The examples of a corpus."""
        from seqloom.corpus.readers import read_pairs

        return list(read_pairs(corpus))

    def size(self, engine: Engine) -> str:
        """How large the model is, in words."""
        return f"{self.parameters:,} parameters"

    def amounts(self, engine: Engine) -> dict[str, int]:
        """The same as numbers."""
        return {"parameters": self.parameters}

    def tokenizers(self) -> dict[str, Tokenizer]:
        """They are the engine's."""
        raise UserError(f"{self.kind} keeps its tokenizers to itself; ask the model folder that it was made from")

    def engines(self, engine: Engine) -> list[str]:
        """It has one already."""
        return []

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self,
        engine: Engine,
        inputs: Sequence[str],
        options: Decoding,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """The number of a text and its answer, as they are found."""
        scoring = _Scoring(_computing(engine, options))
        for index, rivals in self.translate(engine, inputs, options, progress, sums=False):
            text = inputs[index]
            best, *others = (
                Answer(text, self.shown(engine, text, one), one.finished, scoring.of(text, one)) for one in rivals
            )
            best.alternatives.extend(others)
            yield index, best

    def evaluate(
        self,
        engine: Engine,
        data: CorpusSettings | Sequence[Pair],
        name: str,
        options: Decoding,
        progress: Callable[[float, str], None] | None = None,
        **how: Any,
    ) -> TextReport:
        """How good the answers to a corpus are."""
        from seqloom.corpus.readers import CorpusSettings, read_pairs
        from seqloom.evaluation.report import report_on

        measured = [metric.name for metric in self.metrics]
        pairs = list(read_pairs(data)) if isinstance(data, CorpusSettings) else list(data)

        def count(done: int) -> None:
            if progress is not None:
                progress(done / max(1, len(pairs)), f"{done:,} of {len(pairs):,}")

        answers = [""] * len(pairs)
        for index, rivals in self.translate(engine, [pair.source for pair in pairs], options, count, sums=False):
            answers[index] = self.shown(engine, pairs[index].source, rivals[0])
        return report_on(name, pairs, answers, measured, **how)

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    def trace(self, engine: Engine, given: str, target: Any = None, options: Any = None) -> Any:
        """There is none: what a model shows on its way to an answer stays in the engine."""
        raise UserError(CLOSED)

    def translate(
        self,
        engine: Engine,
        texts: Sequence[str],
        options: Decoding,
        progress: Callable[[int], None] | None = None,
        *,
        sums: bool = True,
    ) -> Iterator[tuple[int, list[Found]]]:
        """The number of a text and its answers as symbols, best first, as they are found.

        Without `sums`, how likely they are is not always found out.
        """
        options = options.overridden({})  # a beam is as wide as the number of answers
        check_decoding(options, self.positions)
        if self.positions is not None:
            for number, ids in enumerate(engine.source.encode_many(texts), 1):
                self._refuse_long(number, ids)
        return search(_computing(engine, options), texts, options, progress, sums=sums)

    def refuse_long(self, engine: Engine, texts: Sequence[str]) -> None:
        """Say, without reading all of them, which text has more symbols than the model has positions."""
        for number, text in enumerate(texts, 1):
            if self.positions is not None and len(text.encode()) + 1 >= self.positions:
                self._refuse_long(number, engine.source.encode(text))

    def _refuse_long(self, number: int, ids: Sequence[int]) -> None:
        if self.positions is not None and len(ids) >= self.positions:  # the end symbol needs one too
            raise UserError(
                f"text {number} has {len(ids):,} symbols; the exported model has positions for "
                f"{self.positions - 1:,}: split the text, or ask the model folder that it was made from"
            )

    def shown(self, engine: Engine, text: str, found: Found) -> str:
        """Natural text of an answer."""
        from seqloom.text.sides import natural_text

        return natural_text(text, found.tokens, found.attention, engine.source, engine.target)


def _computing(engine: Engine, options: Decoding) -> Engine:
    """The engine that computes with the numbers that are asked for."""
    return engine.int8 if options.precision == "int8" and engine.compute == "float32" else engine


# -- opening -----------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """An exported folder, as `Model` takes it."""

    folder: Path
    task: ExportedTranslation
    network: Engine
    options: Decoding
    config: dict[str, Any]


def open_exported(path: str | Path, num_workers: int | None = None) -> Opened:
    """Read an exported folder; `num_workers` batches are worked on at a time (default: one a core)."""
    folder = Path(path).expanduser()
    origin = folder / EXPORTED
    found = read_json(origin)
    about: dict[str, Any] = found if isinstance(found, dict) else {}
    if about.get("format") != FORMAT:
        other = about.get("format")
        raise UserError(f"{origin}: this seqloom reads export format {FORMAT}; it has {other!r}; export it again")
    compute, positions, measured, parameters = map(about.get, ("compute", "positions", "metrics", "parameters"))
    if (
        about.get("task") != ExportedTranslation.name
        or not isinstance(compute, str)
        or not (positions is None or type(positions) is int)
        or not (isinstance(measured, list) and measured and all(isinstance(name, str) for name in measured))
        or type(parameters) is not int
    ):
        raise UserError(f"{origin}: not the description of an exported model; export it again")
    known = is_as_written(folder, about)
    options = KnownDecoding(about["decoding"]) if known else _checked_decoding(about, origin)
    workers = Workers(folder, compute, num_workers or num_cores())
    source, target = _load_sides(folder, about["text"] if known else None)  # while the workers do their first step
    if about.get("symbols") != {"source": len(source), "target": len(target)}:
        raise UserError(f"{folder}: the tokenizers are not those it was exported with; export it again")
    task = ExportedTranslation(positions, measured, parameters)
    return Opened(folder, task, Engine(workers, source, target), options, about)


def _load_sides(folder: Path, known: Mapping[str, Any] | None) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers; what cannot be read without checks is read with them, and they say what is wrong."""
    from seqloom.text.sides import load_sides

    if known is not None:
        with suppress(Exception):
            return load_sides(folder, known)
    return load_sides(folder)


def _checked_decoding(about: Mapping[str, Any], origin: Path) -> DecodingSettings:
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.settings import validated

    options: DecodingSettings = validated(DecodingSettings, about.get("decoding", {}), f"{origin}: decoding")
    return options


# -- what is known of an answer ----------------------------------------------------------------------------------------


class _Scoring:
    """The log probabilities of all symbols of many answers, computed together when the first is asked for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.texts: list[str] = []
        self.answers: list[list[int]] = []

    def of(self, text: str, found: Found) -> _Details:
        """One more answer."""
        self.texts.append(text)
        self.answers.append(found.tokens)
        return _Details(self, len(self.answers) - 1, found)

    @cached_property
    def log_probs(self) -> list[list[float]]:
        sources = self.engine.source.encode_many(self.texts)
        real = [index for index, ids in enumerate(sources) if ids]
        found = self.engine.log_probs([sources[i] for i in real], [self.answers[i] for i in real])
        log_probs: list[list[float]] = [[] for _ in sources]
        for index, values in zip(real, found, strict=True):
            log_probs[index] = values
        return log_probs


class _Details:
    """What the search found out about an answer; what it did not need to know, the engine computes when it is asked."""

    __slots__ = ("found", "number", "scoring")

    def __init__(self, scoring: _Scoring, number: int, found: Found) -> None:
        self.scoring, self.number, self.found = scoring, number, found

    def sums(self) -> tuple[float, float]:
        if not math.isnan(self.found.log_probability):
            return self.found.score, self.found.log_probability
        total = math.fsum(self.log_probs())  # nothing was ranked: both are the same
        return total, total

    def labels(self) -> list[str]:
        return self.scoring.engine.target.labels(self.found.tokens)

    def log_probs(self) -> list[float]:
        return self.scoring.log_probs[self.number]

    def trace(self) -> Any:
        raise UserError(CLOSED)

    def warnings(self) -> list[str]:
        from seqloom.text.unknown import warnings_about

        return warnings_about(self.scoring.texts[self.number], self.scoring.engine.source)

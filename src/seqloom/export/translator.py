"""Answers from a model that `seqloom export` wrote, as `Predictor` gives them from a model folder. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.answers import Answer
from seqloom.decoding.known import KnownDecoding
from seqloom.errors import UserError
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
    from seqloom.evaluation.report import Evaluation
    from seqloom.export.search import Decoding
    from seqloom.text.tokenizers import Tokenizer

FORMAT = 1
CLOSED = "an exported model cannot be looked into; ask the model folder that it was made from"


class ExportedTranslator:
    """A translation model on CTranslate2, with everything that turns raw text into an answer."""

    def __init__(
        self,
        engine: Engine,
        source: Tokenizer,
        target: Tokenizer,
        decoding: Decoding,
        positions: int | None,
    ) -> None:
        self.engine, self.source, self.target = engine, source, target
        self.decoding, self.positions = decoding, positions

    @classmethod
    def load(cls, path: str | Path, num_workers: int | None = None) -> ExportedTranslator:
        """Load an exported folder; `num_workers` batches are worked on at a time (default: one a core)."""
        folder = Path(path).expanduser()
        origin = f"{folder}/{EXPORTED}"
        found = read_json(folder / EXPORTED)
        found = found if isinstance(found, dict) else {}
        if found.get("format") != FORMAT:
            raise UserError(f"{origin}: this seqloom reads export format {FORMAT}; it has {found.get('format')!r}")
        compute, positions, symbols = found.get("compute"), found.get("positions"), found.get("symbols")
        if not isinstance(compute, str) or not isinstance(positions, int | None):
            raise UserError(f"{origin}: not the description of an exported model; export it again")
        known = is_as_written(folder, found)
        decoding = KnownDecoding(found["decoding"]) if known else _checked_decoding(found, origin)
        workers = Workers(folder, compute, num_workers or num_cores())
        from seqloom.text.sides import load_sides  # while the workers do their first step

        source, target = load_sides(folder, found["text"] if known else None)
        if symbols != {"source": len(source), "target": len(target)}:
            raise UserError(f"{folder}: the tokenizers are not those it was exported with; export it again")
        return cls(Engine(workers, source, target), source, target, decoding, positions)

    def __call__(self, text: str, **decoding: Any) -> Answer:
        """Answer one text; keyword arguments override the decoding settings, such as `beam_size=1`."""
        return self.predict([text], **decoding)[0]

    def predict(
        self, texts: Sequence[str], progress: Callable[[int], None] | None = None, **decoding: Any
    ) -> list[Answer]:
        """Answer many texts; the order is kept."""
        settings = self.decoding.overridden(decoding)
        scoring = _Scoring(self._engine_for(settings))
        answers: list[Any] = [None] * len(texts)
        for index, rivals in self._search(texts, settings, progress, sums=False):
            text = texts[index]
            best, *others = [Answer(text, self.shown(text, one), one.finished, scoring.of(text, one)) for one in rivals]
            best.alternatives.extend(others)
            answers[index] = best
        return answers

    def evaluate(
        self,
        corpus: CorpusSettings | Sequence[Pair],
        name: str = "test",
        progress: Callable[[int], None] | None = None,
        options: dict[str, Any] | None = None,
        **decoding: Any,
    ) -> tuple[Evaluation, list[str]]:
        """Quality on a corpus with references, and the answers; alignments are for the model folder to tell."""
        from seqloom.corpus.readers import CorpusSettings, read_pairs
        from seqloom.evaluation.report import evaluate_texts

        pairs = list(read_pairs(corpus)) if isinstance(corpus, CorpusSettings) else list(corpus)
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        said = [""] * len(sources)
        for index, rivals in self._search(sources, self.decoding.overridden(decoding), progress, sums=False):
            said[index] = self.shown(sources[index], rivals[0])
        tags = [pair.tags for pair in pairs]
        report = evaluate_texts(name, sources, said, references, tags=tags if any(tags) else None, **(options or {}))
        return report, said

    def trace(self, source: str, target: str | None = None) -> Any:
        """There is none: what a model shows on its way to an answer stays in the engine."""
        raise UserError(CLOSED)

    def translate(self, texts: Sequence[str], settings: Decoding) -> list[list[Found]]:
        """The answers to each text as symbols, best first, and how likely they are."""
        found = dict(self._search(texts, settings))
        return [found[index] for index in range(len(texts))]

    def _search(
        self,
        texts: Sequence[str],
        settings: Decoding,
        progress: Callable[[int], None] | None = None,
        *,
        sums: bool = True,
    ) -> Iterator[tuple[int, list[Found]]]:
        """The same as they are found: which text, and its answers; without `sums`, not always how likely they are."""
        check_decoding(settings, self.positions)
        if self.positions is not None:
            for number, ids in enumerate(self.source.encode_many(texts), 1):
                self._refuse_long(number, ids)
        return search(self._engine_for(settings), texts, settings, progress, sums=sums)

    def _engine_for(self, settings: Decoding) -> Engine:
        rounded = settings.precision == "int8" and self.engine.compute == "float32"
        return self._rounded if rounded else self.engine

    @cached_property
    def _rounded(self) -> Engine:
        """The same model with eight-bit weights."""
        return self.engine.computing("int8")

    def refuse_long(self, texts: Sequence[str]) -> None:
        """Say, without reading all of them, which text has more symbols than the model has positions."""
        for number, text in enumerate(texts, 1):
            if self.positions is not None and len(text.encode()) + 1 >= self.positions:
                self._refuse_long(number, self.source.encode(text))

    def _refuse_long(self, number: int, ids: Sequence[int]) -> None:
        if self.positions is not None and len(ids) >= self.positions:  # the end symbol needs one too
            raise UserError(
                f"text {number} has {len(ids):,} symbols; the exported model has positions for "
                f"{self.positions - 1:,}: split the text, or ask the model folder that it was made from"
            )

    def shown(self, text: str, found: Found) -> str:
        """Natural text of an answer."""
        from seqloom.text.sides import natural_text

        return natural_text(text, found.tokens, found.attention, self.source, self.target)


def _checked_decoding(description: Mapping[str, Any], origin: str) -> DecodingSettings:
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.settings import validated

    settings: DecodingSettings = validated(DecodingSettings, description.get("decoding", {}), f"{origin}: decoding")
    return settings


class _Scoring:
    """The log probabilities of all symbols of many answers, computed together when the first is asked for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.texts: list[str] = []
        self.said: list[list[int]] = []

    def of(self, text: str, found: Found) -> _Details:
        """One more answer."""
        self.texts.append(text)
        self.said.append(found.tokens)
        return _Details(self, len(self.said) - 1, found)

    @cached_property
    def chances(self) -> list[list[float]]:
        sources = self.engine.source.encode_many(self.texts)
        real = [index for index, ids in enumerate(sources) if ids]
        found = self.engine.chances([sources[i] for i in real], [self.said[i] for i in real])
        chances: list[list[float]] = [[] for _ in sources]
        for index, values in zip(real, found, strict=True):
            chances[index] = values
        return chances


class _Details:
    """What the search found out about an answer; where it did not need to know, the engine is led along it again."""

    __slots__ = ("found", "number", "scoring")

    def __init__(self, scoring: _Scoring, number: int, found: Found) -> None:
        self.scoring, self.number, self.found = scoring, number, found

    def sums(self) -> tuple[float, float]:
        if not math.isnan(self.found.log_probability):
            return self.found.score, self.found.log_probability
        total = math.fsum(self.chances())  # nothing was ranked: both are the same
        return total, total

    def labels(self) -> list[str]:
        return self.scoring.engine.target.labels(self.found.tokens)

    def chances(self) -> list[float]:
        return self.scoring.chances[self.number]

    def trace(self) -> Any:
        raise UserError(CLOSED)

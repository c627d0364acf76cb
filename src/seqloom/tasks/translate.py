"""Translation: a text goes in, a text comes out; also summarising, spelling to sound, inflection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import nn

from seqloom.answers import Answer
from seqloom.batches.collate import Batch
from seqloom.batches.samplers import sorted_batches
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.decoding.beam import Considered, beam_search
from seqloom.decoding.search import answer_sources, limits, with_precision
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import UserError
from seqloom.evaluation.alignment import alignment_error_rate, links_from_attention, words_from_pieces
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.metrics import TEXT_METRICS, USUAL, corpus_scores
from seqloom.evaluation.report import TextReport, report_on
from seqloom.export.supported import problem_with
from seqloom.inspection.beam import Search
from seqloom.inspection.forcing import Forcing
from seqloom.inspection.heads import NO_HEADS, HeadMeasures, HeadTally
from seqloom.inspection.trace import Trace
from seqloom.models import TRANSLATORS
from seqloom.models.encoder_decoder import EncoderDecoder
from seqloom.sources.text import TextSource
from seqloom.targets.text import TextTarget, text_loss
from seqloom.tasks.base import Progress, Say
from seqloom.tasks.beside import build_beside, fill_beside, load_beside, open_beside, save_beside
from seqloom.tasks.looking import next_symbols, watched
from seqloom.tasks.supervised import Compute, ExampleRecipe, Examples, Supervised
from seqloom.text.settings import PairTextSettings
from seqloom.text.sides import load_sides, natural_text, save_sides
from seqloom.text.special import BOS_ID, EOS_ID, UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.settings import TrainingSettings

HEAD_TOKENS = 512  # positions whose whole distributions are compared at once: twice this many times the vocabulary


class TranslationRecipe(ExampleRecipe):
    """Text to text: translation, summarising, spelling to sound, inflection."""

    text: PairTextSettings = PairTextSettings()
    training: TrainingSettings
    decoding: DecodingSettings = DecodingSettings()
    metrics: tuple[str, ...] = Field(USUAL, min_length=1, description="what answers are judged by")

    def contradictions(self) -> list[str]:
        parts, problems = self.model.expanded(), []  # type: ignore[attr-defined]
        if parts.one_vocabulary and not self.text.joint:
            problems.append("one table for both sides (model.share_embeddings, model.tie: source) needs text.joint")
        if self.training.metric == "aer" and not parts.decoder.attends:
            problems.append("training.metric: aer needs model.decoder: attention")
        if parts.contextual is not None and any(self.text.side(side).dropout for side in ("source", "target")):
            problems.append(
                "text.dropout cuts words anew; model.contextual needs to know where they are: leave one out"
            )
        if getattr(parts.encoder, "subwords", None) is not None:
            problems.append("model.encoder.subwords are for classifiers; leave them out")
        unknown = [name for name in self.metrics if name not in TEXT_METRICS]
        problems += [f"metrics must be of {', '.join(TEXT_METRICS)}; got {name!r}" for name in unknown]
        return problems


class Translated(NamedTuple):
    """An answer and its rivals, best first; `texts` are natural text."""

    hypotheses: list[Hypothesis]
    texts: list[str]


SILENT = Translated([Hypothesis([], 0.0, 0.0)], [""])  # nothing but spaces: nothing to say


class Translation(Supervised):
    """Text to text: translation, summarising, spelling to sound, inflection."""

    name = "translate"
    about = "text to text: translation, summarising, spelling to sound, inflection"
    Recipe = TranslationRecipe
    models = TRANSLATORS
    metrics: ClassVar[tuple[Metric, ...]] = metrics(
        "bleu",
        "chrf",
        "exact_match",
        "sequence_error_rate",
        "word_error_rate",
        "character_error_rate",
        "phone_error_rate",
        "aer",
    )
    drawn = ("bleu", "perplexity", "loss")
    per_symbol = frozenset({"loss", "perplexity"})
    report_options = frozenset({"lowercase", "tokenized", "decoding", "output", "engine"})
    kind = "a translator"
    source: TextSource
    target: TextTarget

    def __init__(self, source: TextSource, target: TextTarget, measured: Sequence[str] = USUAL) -> None:
        """`measured` are the metrics that a report has."""
        super().__init__(source, target)
        self.measured = tuple(measured)

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: TranslationRecipe, say: Say) -> Translation:
        """Learn the tokenizers from the training corpus: one for both sides, or one each."""
        corpus, text = recipe.data.train, recipe.text
        contextual = getattr(recipe.model, "contextual", None)
        beside = None if contextual is None else open_beside(contextual.source)
        if text.joint:
            both = Tokenizer.train(
                (side for pair in read_pairs(corpus) for side in (pair.source, pair.target)), text.side("source")
            )
            return cls(TextSource(both, beside), TextTarget(both), recipe.metrics)
        source = Tokenizer.train((pair.source for pair in read_pairs(corpus)), text.side("source"))
        target = Tokenizer.train((pair.target for pair in read_pairs(corpus)), text.side("target"))
        return cls(TextSource(source, beside), TextTarget(target), recipe.metrics)

    def adopt(self, recipe: TranslationRecipe) -> None:
        self.measured = tuple(recipe.metrics)

    def save(self, folder: Path) -> dict[str, Any]:
        save_sides(folder, self.source.tokenizer, self.target.tokenizer)
        save_beside(self.source.beside, folder)
        symbols = {side: len(tokenizer) for side, tokenizer in self.tokenizers().items()}
        return {"symbols": symbols, "metrics": self.measured}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Translation:
        source, target = load_sides(folder)
        measured = config.get("metrics", USUAL)
        if not isinstance(measured, list | tuple) or not all(name in TEXT_METRICS for name in measured):
            raise UserError(f"{folder}/config.json: metrics must be of {', '.join(TEXT_METRICS)}; got {measured!r}")
        return cls(TextSource(source, load_beside(folder)), TextTarget(target), measured)

    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"source": self.source.tokenizer, "target": self.target.tokenizer}

    def vocabulary(self) -> str:
        source, target = self.source.tokenizer, self.target.tokenizer
        kinds = source.kind if source.kind == target.kind else f"{source.kind} and {target.kind}"
        return f"{len(source):,} source and {len(target):,} target symbols ({kinds})"

    def sizes(self, settings: Any) -> dict[str, Any]:
        beside = self.source.beside
        if (settings.contextual is None) != (beside is None):
            raise UserError(
                "model.contextual and the files contextual.json and tokenizer.contextual.json belong together; one is "
                "here without the other: copy the whole model folder"
            )
        sizes = {"source_symbols": len(self.source.tokenizer), "target_symbols": len(self.target.tokenizer)}
        return {**sizes, "reader": None if beside is None else build_beside(beside)}

    def start(self, model: Any, settings: Any, say: Say) -> None:
        if settings.contextual is not None:
            fill_beside(settings.contextual.source, model.encoder.reader.contextual.language)
            learns = "stays as it is" if settings.contextual.freeze else "learns along"
            say(f"{settings.contextual.source} reads the source too and {learns}")
        super().start(model, settings, say)

    def of_loss(self, loss: float) -> dict[str, float]:
        return {"loss": loss, "perplexity": float(np.exp(min(50.0, loss)))}

    def encode_for_training(self, recipe: TranslationRecipe) -> Examples:
        """With `text.dropout` the corpus several times over, each time cut into other pieces."""
        cut = [self.source.tokenizer.settings, self.target.tokenizer.settings]
        if not any(settings.dropout for settings in cut):
            return self.encode(recipe.data.train)
        times = max(settings.segmentations for settings in cut)
        return self.encode(recipe.data.train, times=times, recut=recipe.seed)

    def losses(self, train: Examples, s: TrainingSettings) -> Compute:
        sampled = self.target.sampled(train.rows["target"]["ids"], s)
        return lambda model, batch: text_loss(model, batch, s, sampled)

    def validate(
        self, model: Any, pairs: list[Pair], recipe: TranslationRecipe, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        s, wanted = recipe.training, recipe.training.metric
        settings = recipe.decoding if final else DecodingSettings(method="greedy")
        found = dict(self.translate(model, [pair.source for pair in pairs], settings))
        answers = [found[index].texts[0] for index in range(len(pairs))]
        first = recipe.metrics[0]
        names = (first, wanted) if wanted in TEXT_METRICS and wanted != first else (first,)
        figures = corpus_scores(answers, [pair.target for pair in pairs], names)
        if wanted == "aer":
            error = self.alignment_error(model, pairs)
            if error is None:
                raise UserError("training.metric: aer needs attention, and validation data with gold alignments")
            figures["aer"] = error
        samples = [
            {"source": pair.source, "reference": pair.target, "answer": answer}
            for pair, answer in list(zip(pairs, answers, strict=True))[: s.samples]
        ]
        return figures, samples

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [f'seqloom predict {folder} "some text"', f"seqloom evaluate {folder}"]

    def engines(self, model: EncoderDecoder) -> list[str]:
        return ["ctranslate2"] if problem_with(model.settings) is None else []

    # -- answers -----------------------------------------------------------------------------------------------------

    def predict(
        self,
        model: Any,
        inputs: Sequence[str],
        options: DecodingSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        for index, found in self.translate(model, inputs, options, progress):
            text = inputs[index]
            best, *others = (
                Answer(text, shown, hypothesis.finished, _Details(self, model, text, hypothesis))
                for hypothesis, shown in zip(found.hypotheses, found.texts, strict=True)
            )
            best.alternatives.extend(others)
            yield index, best

    def translate(
        self,
        model: Any,
        texts: Sequence[str],
        settings: DecodingSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Translated]]:
        """The answers to each text, with the text's number, as they are found."""
        rows = settings.beam_size if settings.method == "beam" else 1

        def answer(source: Any, numbers: list[int]) -> dict[int, Translated]:
            found = answer_sources(model, source, settings, numbers=numbers)
            return {
                number: Translated(rivals, [self.shown(model, texts[number], one, settings) for one in rivals])
                for number, rivals in zip(numbers, found, strict=True)
            }

        size = settings.batch_tokens
        yield from self.answered(texts, answer, batch_tokens=size, silent=SILENT, rows=rows, progress=progress)

    def shown(self, model: Any, source: str, hypothesis: Hypothesis, settings: DecodingSettings) -> str:
        """Natural text; an unknown symbol becomes the source word it was looking at, where attention tells.

        Few answers hold an unknown symbol. Only those are led through the model again, to see where it looked.
        """
        attention = None
        if UNK_ID in hypothesis.tokens and settings.unknown == "replace" and model.attends:
            with torch.inference_mode():
                attention = model.align(self.pair(source, hypothesis.tokens))[0].numpy()
        return natural_text(source, hypothesis.tokens, attention, self.source.tokenizer, self.target.tokenizer)

    def pair(self, source: str, target: Sequence[int]) -> Batch:
        """One text and one answer, teacher-forced."""
        return Batch(self.source.batch([source]), self.target.collate({"ids": [target]}))

    # -- quality -----------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        model: Any,
        data: CorpusSettings | Sequence[Pair],
        name: str,
        options: DecodingSettings,
        progress: Progress | None = None,
        **how: Any,
    ) -> TextReport:
        pairs = list(read_pairs(data)) if isinstance(data, CorpusSettings) else list(data)

        def heard(done: int) -> None:
            if progress is not None:
                progress(done / max(1, len(pairs)), f"{done:,} of {len(pairs):,}")

        sources = [pair.source for pair in pairs]
        found = dict(self.translate(model, sources, options, heard))
        return report_on(
            name,
            pairs,
            [found[index].texts[0] for index in range(len(pairs))],
            self.measured,
            aer=self.alignment_error(model, pairs),
            **how,
        )

    def alignment_weights(self, model: Any, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Word-by-word attention (target, source) while the model is led along the known target."""
        found = []
        for start in range(0, len(pairs), 64):
            chunk = pairs[start : start + 64]
            sources = [self.source.tokenizer.encode_detailed(pair.source) for pair in chunk]
            targets = [self.target.tokenizer.encode_detailed(pair.target) for pair in chunk]
            read = self.source.batch([pair.source for pair in chunk])
            with torch.inference_mode():
                weights = model.align(Batch(read, self.target.collate({"ids": [t.ids for t in targets]})))
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                kept = weights[row, : len(target.ids) + 1, : len(source.ids) + 1]
                found.append(words_from_pieces(kept.numpy(), [*target.words, -1], [*source.words, -1]))
        return found

    def alignment_error(self, model: Any, pairs: Sequence[Pair]) -> float | None:
        """AER of the attention against gold links, over the pairs that have them; None without attention or gold."""
        gold = [pair for pair in pairs if pair.alignment is not None]
        if not gold or not model.attends:
            return None
        links = [links_from_attention(weights) for weights in self.alignment_weights(model, gold)]
        return alignment_error_rate(links, [set(pair.alignment or ()) for pair in gold])

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: str, target: Any = None, options: Any = None) -> Trace:
        """How the model gets from a source to a target: a text, symbols, or its own answer when none is given."""
        if target is None:
            target = next(self.translate(model, [given], options or DecodingSettings()))[1].hypotheses[0].tokens
        tokens = self.target.tokenizer.encode(target) if isinstance(target, str) else target
        trace = Trace({"source": self.source.labels(given), **self.target.labels(tokens)})
        with torch.inference_mode():
            model(self.pair(given, tokens), trace=trace)
        return trace

    def next_log_probs(self, model: Any, given: str, prefix: str = "") -> tuple[list[str], np.ndarray]:
        """All symbols, and their log probabilities after a prefix of the answer."""
        with torch.inference_mode():
            features = model(self.pair(given, self.target.tokenizer.encode(prefix)))[0, -1]
            return next_symbols(model.output(features), self.target.tokenizer)

    def beam(self, model: Any, given: str, options: DecodingSettings) -> Search:
        """A beam search step by step."""
        steps = list[Considered]()
        source = self.source.batch([given])
        if not self.source.is_empty(given):
            with torch.inference_mode(), with_precision(model, options):
                begin = torch.full((1,), BOS_ID)
                limit = limits(source.lengths, options)
                lengths = source.lengths
                (found,) = beam_search(
                    model, model.start(source), begin, limit, options, source_lengths=lengths, watch=steps.append
                )
        return watched(steps, found if steps else [], self.target.tokenizer, options)

    def forcing(
        self, model: Any, pairs: Sequence[tuple[str, str]], progress: Callable[[float], None] | None = None
    ) -> list[Forcing]:
        """Source and reference of each pair: what the model says when it is teacher-forced, and by itself."""
        tokenizer = self.target.tokenizer
        greedy = DecodingSettings(method="greedy", unknown="keep")
        free = dict(self.translate(model, [source for source, _ in pairs], greedy))
        found = []
        for number, (source, reference) in enumerate(pairs):
            gold = [*tokenizer.encode(reference), EOS_ID]
            with torch.inference_mode():
                log_probs = model.output(model(self.pair(source, gold[:-1]))[0]).log_softmax(-1)
            own = free[number].hypotheses[0]
            ended = [EOS_ID] if own.finished else []
            found.append(
                Forcing(
                    tokenizer.labels(gold),
                    tokenizer.labels(log_probs.argmax(-1).tolist()),
                    log_probs.exp()[torch.arange(len(gold)), torch.tensor(gold)].double().numpy(),
                    tokenizer.labels([*own.tokens, *ended]),
                )
            )
            if progress is not None:
                progress((number + 1) / len(pairs))
        return found

    def head_measures(
        self, model: Any, pairs: Sequence[Pair], progress: Callable[[float], None] | None = None
    ) -> list[HeadMeasures]:
        """What every attention head looks at, and what changes without it.

        The model is led along the references; `progress` is told the share that is done.

        Raises:
            UserError: The model has no heads.
        """
        heads = model.heads()
        if not heads:
            raise UserError(NO_HEADS)
        assert not model.training, "dropout would be measured too"
        tally = HeadTally()
        sources = self.source.tokenizer.encode_many([pair.source for pair in pairs])
        targets = self.target.tokenizer.encode_many([pair.target for pair in pairs])
        for pair, target in zip(pairs, targets, strict=True):
            tally.look(self.trace(model, pair.source, target))
        lengths = np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)], np.int64)
        batches = sorted_batches(lengths, HEAD_TOKENS)
        for number, indices in enumerate(batches):
            read = self.source.batch([pairs[i].source for i in indices])
            batch = Batch(read, self.target.collate({"ids": [targets[i] for i in indices]}))
            gold, whole = _log_probs(model, batch)
            for index, head in enumerate(heads):
                with model.without_head(*head):
                    tally.silence(head, whole, _log_probs(model, batch)[1], gold)
                if progress is not None:
                    progress((number + (index + 1) / len(heads)) / len(batches))
        return tally.measures()


def _log_probs(model: nn.Module, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The real target symbols (symbols,), and what the model would say in their place (symbols, vocabulary)."""
    outputs = batch.target.outputs.flatten()
    real = outputs.nonzero()[:, 0]  # PAD is 0
    with torch.inference_mode():
        logits = model.output(model(batch).flatten(0, 1)[real])  # type: ignore[operator]
    return outputs[real].numpy(), torch.log_softmax(logits, -1).numpy()


class _Details:
    """What a search found out about an answer, and what the model shows when it is teacher-forced on it."""

    __slots__ = ("hypothesis", "model", "source", "task")

    def __init__(self, task: Translation, model: Any, source: str, hypothesis: Hypothesis) -> None:
        self.task, self.model, self.source, self.hypothesis = task, model, source, hypothesis

    def sums(self) -> tuple[float, float]:
        return self.hypothesis.score, self.hypothesis.log_probability

    def labels(self) -> list[str]:
        return self.task.target.tokenizer.labels(self.hypothesis.tokens)

    def log_probs(self) -> list[float]:
        return self.hypothesis.token_log_probabilities

    def trace(self) -> Any:
        return self.task.trace(self.model, self.source, self.hypothesis.tokens)

    def warnings(self) -> list[str]:
        return self.task.warnings(self.source)

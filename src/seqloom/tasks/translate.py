"""Translation: a text goes in, a text comes out; also summarising, spelling to sound, inflection."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batches.collate import ContextBatch, PairBatch, collate_pairs, collate_sources
from seqloom.batches.running import count_symbols
from seqloom.batches.samplers import BucketSampler, Position, padding_share, sorted_batches
from seqloom.batches.shards import Encode, SymbolCounts, TokenSequences, write_shard
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, describe, fingerprint, read_pairs
from seqloom.decoding.search import decode, side_by_side
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import UserError
from seqloom.evaluation.alignment import alignment_error_rate, links_from_attention, words_from_pieces
from seqloom.evaluation.metrics import TEXT_METRICS, corpus_scores
from seqloom.evaluation.report import Evaluation, evaluate_texts
from seqloom.inspection.heads import NO_HEADS, HeadMeasures, HeadTally
from seqloom.losses import (
    SampledCrossEntropy,
    SymbolLoss,
    consistent_cross_entropy,
    plain_consistent_cross_entropy,
    plain_cross_entropy,
    projected_cross_entropy,
)
from seqloom.models import MODELS
from seqloom.nn.drawing import own_generator
from seqloom.nn.multihead import drops_attention
from seqloom.tasks.contextual import DESCRIPTION, TOKENIZER, Context, EncodedContext, Read
from seqloom.tasks.starting import start_embedding
from seqloom.text.recutting import Recutter
from seqloom.text.settings import TextSettings
from seqloom.text.sides import load_sides, natural_text, save_sides
from seqloom.text.special import BOS, EOS, EOS_ID, UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.loop import Validation
from seqloom.training.settings import TrainingSettings

VALIDATION_TOKENS = 1024
BATCHES_A_THREAD = 8  # of a search: the shorter the last ones are, the less one thread waits for another
SEARCHED_AT_LEAST = 512  # tokens of a batch, however few there are for each thread
HEAD_TOKENS = 512  # positions whose whole distributions are compared at once: twice this many times the vocabulary


class EncodedPairs(NamedTuple):
    """A tokenised corpus on disk."""

    source: TokenSequences
    target: TokenSequences
    context: EncodedContext | None = None

    @property
    def lengths(self) -> SymbolCounts:
        return SymbolCounts(self.source, self.target)

    def batch(self, indices: np.ndarray) -> PairBatch:
        context = None if self.context is None else self.context.batch(indices)
        return collate_pairs([self.source[i] for i in indices], [self.target[i] for i in indices], context)


@dataclass(frozen=True)
class Translated:
    """An answer and its rivals, best first; `texts` are natural text."""

    source: str
    hypotheses: list[Hypothesis]
    texts: list[str]


@dataclass(frozen=True)
class Translation:
    """Text to text: translation, summarising, spelling to sound, inflection.

    The task owns the tokenizers, and with them the road from raw text to raw text. Where a language model reads the
    source too, the task knows how.
    """

    source: Tokenizer
    target: Tokenizer
    context: Context | None = None

    # -- text ---------------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, corpus: CorpusSettings, text: TextSettings, model: Any = None) -> Translation:
        """Learn the tokenizers from the training corpus: one for both sides, or one each.

        `model` are the settings of the model to be: they may name a language model to be opened.
        """
        contextual = getattr(model, "contextual", None)
        context = None if contextual is None else Context.open(contextual.source)
        if text.joint:
            both = Tokenizer.train((side for pair in read_pairs(corpus) for side in (pair.source, pair.target)), text)
            return cls(both, both, context)
        source = Tokenizer.train((pair.source for pair in read_pairs(corpus)), text)
        return cls(source, Tokenizer.train((pair.target for pair in read_pairs(corpus)), text), context)

    def save(self, folder: Path) -> None:
        save_sides(folder, self.source, self.target)
        if self.context is not None:
            self.context.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Translation:
        return cls(*load_sides(folder), Context.load(folder))

    def encode(self, corpus: CorpusSettings, progress: Callable[[int], None] | None = None) -> EncodedPairs:
        """The corpus as numbers, from the cache where it was tokenised before."""
        key = "\n".join([fingerprint(corpus), self.source.to_json(), self.target.to_json()])
        sides: dict[str, Encode] = {"source": self.source.encode_many, "target": self.target.encode_many}
        sizes = (len(self.source), len(self.target))
        pairs = write_shard((pair[:2] for pair in read_pairs(corpus)), sides, sizes, key, progress)
        return EncodedPairs(pairs["source"], pairs["target"], self._encode_context(corpus))

    def _encode_context(self, corpus: CorpusSettings) -> EncodedContext | None:
        """What the language model reads of the same sources, where there is one."""
        if self.context is None:
            return None
        read = _ReadOnce(self.context, self.source)
        sides: dict[str, Encode] = {"symbols": read.symbols, "places": read.places}
        key = "\n".join(["context", fingerprint(corpus), self.source.to_json(), self.context.key()])
        sources = ((pair.source, pair.source) for pair in read_pairs(corpus))
        return EncodedContext(**write_shard(sources, sides, (2**32,), key))  # a place may be anywhere in a line

    def encode_for_training(self, corpus: CorpusSettings, seed: int) -> EncodedPairs:
        """The same; with `text.dropout` the corpus several times over, each time cut into other pieces."""
        text = self.source.settings
        if not text.dropout:
            return self.encode(corpus)
        key = "\n".join([fingerprint(corpus), self.source.to_json(), self.target.to_json(), f"recut {seed}"])
        sides: dict[str, Encode] = {
            side: Recutter(tokenizer, text.dropout, seed).encode_many
            for side, tokenizer in (("source", self.source), ("target", self.target))
        }
        pairs = (pair[:2] for _ in range(text.segmentations) for pair in read_pairs(corpus))
        found = write_shard(pairs, sides, (len(self.source), len(self.target)), key)
        return EncodedPairs(found["source"], found["target"])

    def symbols(self) -> dict[str, int]:
        """How large the vocabularies are."""
        return {"source": len(self.source), "target": len(self.target)}

    def describe_vocabulary(self) -> str:
        return f"{len(self.source):,} source, {len(self.target):,} target symbols"

    # -- model --------------------------------------------------------------------------------------------------------

    def build(self, settings: Any) -> nn.Module:
        """A fresh model for these vocabularies."""
        kind = MODELS[settings.kind][1]
        if (settings.contextual is None) != (self.context is None):
            raise UserError(
                f"model.contextual and the files {DESCRIPTION} and {TOKENIZER} belong together; one is here without "
                "the other: copy the whole model folder"
            )
        reader = None if self.context is None else self.context.build()
        return kind(settings, source_symbols=len(self.source), target_symbols=len(self.target), reader=reader)

    def start_from_vectors(self, model: Any, settings: Any, told: Callable[[str], None]) -> None:
        """Set the embeddings of a fresh model from the vectors that its settings name, and freeze these if asked to.

        The same for a language model that its settings name.
        """
        if settings.contextual is not None:
            Context.fill(settings.contextual.source, model.contextual.language)
            learns = "stays as it is" if settings.contextual.freeze else "learns along"
            told(f"{settings.contextual.source} reads the source too and {learns}")
        pretrained = getattr(settings, "pretrained", None)
        if pretrained is None:
            return
        for side, path in pretrained.paths().items():
            embedding = getattr(model, f"{side}_embedding")
            start_embedding(embedding, getattr(self, side), path, side, freeze=pretrained.freeze, told=told)

    def loss(
        self, model: Any, batch: PairBatch, s: TrainingSettings, sampled: SampledCrossEntropy | None = None
    ) -> SymbolLoss:
        """Cross-entropy of the real target symbols, summed; padding is left out before the output layer.

        A model in training is asked to choose among few candidates where `sampled` is given, else among all symbols.
        """
        chance, smoothing = (s.scheduled_sampling, s.label_smoothing) if model.training else (0.0, 0.0)
        twice = model.training and s.consistency > 0
        if twice:
            batch = batch.doubled()
        features = sampled_features(model, batch, chance) if chance else model(batch)
        real = batch.target_out.flatten().nonzero()[:, 0]  # PAD is 0
        rows, gold = features.flatten(0, 1)[real], batch.target_out.flatten()[real]
        weight, bias = model.output.weight, model.output.bias
        if twice:
            gold = gold[: len(gold) // 2]
        if sampled is not None and model.training:
            return sampled(rows, weight, bias, gold, smoothing, s.consistency)
        if twice:
            agreeing = plain_consistent_cross_entropy if s.plain else consistent_cross_entropy
            return agreeing(rows, weight, bias, gold, smoothing, s.consistency)
        entropy = plain_cross_entropy if s.plain else projected_cross_entropy
        return entropy(rows, weight, bias, gold, smoothing)

    # -- answers ------------------------------------------------------------------------------------------------------

    def translate(
        self,
        model: Any,
        texts: Sequence[str],
        settings: DecodingSettings,
        progress: Callable[[int], None] | None = None,
    ) -> list[Translated]:
        """Translate texts in batches of similar length; the order of answers is the order of texts."""
        sources = self.source.encode_many(texts)
        lengths = np.array([len(row) + 1 for row in sources], np.int64)
        rows = settings.beam_size if settings.method == "beam" else 1

        def answer(indices: np.ndarray) -> dict[int, Translated]:
            asked = [int(i) for i in indices if sources[i]]
            silent = Translated("", [Hypothesis([], 0.0, 0.0)], [""])  # nothing but spaces: nothing to say
            said = {int(i): replace(silent, source=texts[i]) for i in indices if not sources[i]}
            if asked:
                batch = collate_sources([sources[i] for i in asked], self._context([texts[i] for i in asked]))
                found = decode(model, batch, settings, numbers=asked)
                for index, hypotheses in zip(asked, found, strict=True):
                    shown = [self._show(model, texts[index], h, settings) for h in hypotheses]
                    said[index] = Translated(texts[index], hypotheses, shown)
            return said

        answers: dict[int, Translated] = {}
        shares = max(SEARCHED_AT_LEAST, int(lengths.sum()) // (BATCHES_A_THREAD * torch.get_num_threads()))
        size = min(settings.batch_tokens, shares) * 5 // max(rows, 5)
        for said in side_by_side(answer, sorted_batches(lengths, max(1, size))):
            answers |= said
            if progress is not None:
                progress(len(answers))
        return [answers[index] for index in range(len(texts))]

    def _show(self, model: Any, source: str, hypothesis: Hypothesis, settings: DecodingSettings) -> str:
        """Natural text; an unknown symbol becomes the source word it was looking at, where attention tells.

        Few answers hold an unknown symbol. Only those are led through the model again, to see where it looked.
        """
        attention = None
        if UNK_ID in hypothesis.tokens and settings.unknown == "replace" and model.attends:
            with torch.inference_mode():
                attention = model.align(self._pair(source, hypothesis.tokens))[0].numpy()
        return natural_text(source, hypothesis.tokens, attention, self.source, self.target)

    def _pair(self, source: str, target: Sequence[int]) -> PairBatch:
        return collate_pairs([self.source.encode(source)], [target], self._context([source]))

    def _context(self, texts: Sequence[str]) -> ContextBatch | None:
        return None if self.context is None else self.context.batch(texts, self.source)

    # -- quality ------------------------------------------------------------------------------------------------------

    def alignment_weights(self, model: Any, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Word-by-word attention (target, source) while the model is led along the known target."""
        found = []
        for start in range(0, len(pairs), 64):
            chunk = pairs[start : start + 64]
            sources = [self.source.encode_detailed(pair.source) for pair in chunk]
            targets = [self.target.encode_detailed(pair.target) for pair in chunk]
            context = self._context([pair.source for pair in chunk])
            batch = collate_pairs([s.ids for s in sources], [t.ids for t in targets], context)
            with torch.inference_mode():
                weights = model.align(batch)
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                kept = weights[row, : len(target.ids) + 1, : len(source.ids) + 1]
                found.append(words_from_pieces(kept.numpy(), [*target.words, -1], [*source.words, -1]))
        return found

    def alignment_error(self, model: Any, pairs: Sequence[Pair]) -> float | None:
        """AER of the attention against gold links, over the pairs that have them; None without attention or gold."""
        gold = [pair for pair in pairs if pair.alignment is not None]
        if not gold or not model.attends:
            return None
        predicted = [links_from_attention(weights) for weights in self.alignment_weights(model, gold)]
        return alignment_error_rate(predicted, [set(pair.alignment or ()) for pair in gold])

    def evaluate(
        self,
        model: Any,
        name: str,
        pairs: Sequence[Pair],
        settings: DecodingSettings,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> tuple[Evaluation, list[str]]:
        """Translate a corpus and compare with its references."""
        hypotheses = [a.texts[0] for a in self.translate(model, [p.source for p in pairs], settings, progress)]
        tags = [pair.tags for pair in pairs]
        report = evaluate_texts(
            name,
            [pair.source for pair in pairs],
            hypotheses,
            [pair.target for pair in pairs],
            tags=tags if any(tags) else None,
            aer=self.alignment_error(model, pairs),
            **options,
        )
        return report, hypotheses

    def trace(self, model: Any, source: str, tokens: Sequence[int]) -> Any:
        """Run one pair with everything shown: attention, gates; axes labelled with the tokens."""
        from seqloom.inspection.trace import Trace

        ids = self.source.encode(source)
        said = self.target.labels(tokens)
        labels = {"source": [*self.source.labels(ids), EOS], "target": [*said, EOS], "target_in": [BOS, *said]}
        trace = Trace(labels)
        with torch.inference_mode():
            model(self._pair(source, tokens), trace=trace)
        return trace

    def head_measures(
        self, model: Any, pairs: Sequence[Pair], progress: Callable[[float], None] | None = None
    ) -> list[HeadMeasures]:
        """What every attention head looks at, and what changes without it.

        The model is led along the references; `progress` is told the share that is done.

        Raises:
            UserError: The model has no heads.
        """
        if not hasattr(model, "heads"):
            raise UserError(NO_HEADS)
        assert not model.training, "dropout would be measured too"
        tally, heads = HeadTally(), model.heads()
        sources = self.source.encode_many([pair.source for pair in pairs])
        targets = self.target.encode_many([pair.target for pair in pairs])
        for pair, target in zip(pairs, targets, strict=True):
            tally.look(self.trace(model, pair.source, target))
        lengths = np.array([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)], np.int64)
        batches = sorted_batches(lengths, HEAD_TOKENS)
        for number, indices in enumerate(batches):
            context = self._context([pairs[i].source for i in indices])
            batch = collate_pairs([sources[i] for i in indices], [targets[i] for i in indices], context)
            gold, told = _log_probabilities(model, batch)
            for index, head in enumerate(heads):
                with model.without_head(*head):
                    tally.silence(head, told, _log_probabilities(model, batch)[1], gold)
                if progress is not None:
                    progress((number + (index + 1) / len(heads)) / len(batches))
        return tally.measures()


class _ReadOnce:
    """Texts as the language model reads them, and their places: asked for one after the other, read once."""

    def __init__(self, context: Context, pieces: Tokenizer) -> None:
        self.context, self.pieces = context, pieces
        self.last: list[Read] = []

    def symbols(self, texts: Sequence[str]) -> list[list[int]]:
        self.last = [self.context.read(text, self.pieces) for text in texts]
        return [one.symbols for one in self.last]

    def places(self, texts: Sequence[str]) -> list[list[int]]:
        assert len(texts) == len(self.last), "a shard asks for one side of a chunk after the other"
        return [one.places for one in self.last]


def _log_probabilities(model: Any, batch: PairBatch) -> tuple[np.ndarray, np.ndarray]:
    """The real target symbols (symbols,), and what the model would say in their place (symbols, vocabulary)."""
    with torch.inference_mode():
        real = batch.target_out.flatten().nonzero()[:, 0]  # PAD is 0
        logits = model.output(model(batch).flatten(0, 1)[real])
    return batch.target_out.flatten()[real].numpy(), torch.log_softmax(logits, -1).numpy()


def sample_pairs(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """At most so many pairs, spread over all of them, always the same ones."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[i] for i in sorted(random.Random(0).sample(range(len(pairs)), most))]


def sampled_features(model: Any, batch: PairBatch, chance: float) -> Tensor:
    """Scheduled sampling (Bengio et al. 2015): each symbol read is, with this chance, the model's own best guess."""
    state = model.start(batch)
    tokens, steps = batch.target_in[:, 0], []
    for time in range(batch.target_in.shape[1]):
        features, state, _ = model.advance(tokens, state)
        steps.append(features)
        if time + 1 < batch.target_in.shape[1]:
            with torch.no_grad():
                own = model.output(features).argmax(-1)
            tokens = torch.where(
                torch.rand(len(batch), generator=own_generator()) < chance, own, batch.target_in[:, time + 1]
            )
    return torch.stack(steps, 1)


class TranslationWork:
    """What translation brings to the training loop."""

    def __init__(
        self,
        task: Translation,
        train: CorpusSettings,
        valid: CorpusSettings,
        s: TrainingSettings,
        seed: int,
        decoding: DecodingSettings | None = None,
    ) -> None:
        self.task, self.settings = task, s
        self.decoding = decoding or DecodingSettings()
        self.train, self.valid = task.encode_for_training(train, seed), task.encode(valid)
        self.sampler = BucketSampler(
            self.train.lengths, batch_tokens=s.batch_tokens, seed=seed, max_length=s.max_length
        )
        if not self.sampler.num_examples:
            raise UserError(
                f"{describe(train)}: no pair is left to train on ({self.sampler.num_dropped} are empty or longer than "
                f"training.max_length {s.max_length} or training.batch_tokens {s.batch_tokens})"
            )
        self.valid_batches = sorted_batches(self.valid.lengths[:].max(1), VALIDATION_TOKENS)
        self.pairs = list(self._some(valid, s.validation_sentences))
        self.sampled = self._sampled()

    def _sampled(self) -> SampledCrossEntropy | None:
        """The loss over few candidates, where it is wanted and they are fewer than all."""
        s, symbols = self.settings, len(self.task.target)
        if s.candidates is None or s.candidates >= symbols:
            return None
        counts = count_symbols(self.train.target.tokens, symbols)
        counts[EOS_ID] += len(self.train.target)  # said after every sentence, but not stored
        return SampledCrossEntropy(torch.from_numpy(counts), s.candidates, s.plain)

    @staticmethod
    def _some(corpus: CorpusSettings, most: int) -> Iterator[Pair]:
        """At most so many pairs, spread evenly over the corpus."""
        return iter(sample_pairs(list(read_pairs(corpus)), most) if most else [])

    def batches(self, position: Position) -> Iterator[tuple[Position, PairBatch]]:
        for after, indices in self.sampler.batches_from(position):
            yield after, self.train.batch(indices)

    def batches_per_epoch(self) -> float:
        return self.sampler.batches_per_epoch()

    def epochs_done(self, position: Position) -> float:
        return self.sampler.epochs_done(position)

    def loss(self, model: nn.Module, batch: PairBatch) -> SymbolLoss:
        return self.task.loss(model, batch, self.settings, self.sampled)

    def fits_threads(self, model: nn.Module) -> bool:
        """Sentences stand for themselves; but what torch itself drops it draws from one generator for all threads."""
        return not self.settings.plain and not drops_attention(model)

    def carried(self) -> dict[str, Tensor]:
        """Nothing: sentences stand for themselves."""
        return {}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        assert not tensors

    def validate(self, model: nn.Module, *, final: bool = False) -> Validation:
        total = tokens = 0.0
        with torch.inference_mode():
            for indices in self.valid_batches:
                batch = self.valid.batch(indices)
                total += float(self.loss(model, batch).nll)
                tokens += batch.num_tokens
        metrics = {"loss": total / tokens, "perplexity": float(np.exp(min(50.0, total / tokens)))}
        samples: list[dict[str, str]] = []
        if self.pairs:
            settings = self.decoding if final else DecodingSettings(method="greedy")
            answers = self.task.translate(model, [pair.source for pair in self.pairs], settings)
            hypotheses = [answer.texts[0] for answer in answers]
            metrics |= corpus_scores(hypotheses, [pair.target for pair in self.pairs], self._text_metrics())
            if self.settings.metric == "aer":
                metrics["aer"] = self._alignment_error(model)
            for pair, said in list(zip(self.pairs, hypotheses, strict=True))[: self.settings.samples]:
                samples.append({"source": pair.source, "reference": pair.target, "answer": said})
        return Validation(metrics, samples)

    def _text_metrics(self) -> tuple[str, ...]:
        wanted = self.settings.metric
        return ("bleu", wanted) if wanted in TEXT_METRICS and wanted != "bleu" else ("bleu",)

    def _alignment_error(self, model: nn.Module) -> float:
        error = self.task.alignment_error(model, self.pairs)
        if error is None:
            raise UserError("training.metric: aer needs attention, and validation data with gold alignments")
        return error

    def told(self) -> str:
        """What is worth knowing before step 1, for a person."""
        dropped = self.sampler.num_dropped
        left_out = f" ({dropped:,} left out: empty or too long)" if dropped else ""
        return (
            f"{len(self.train.lengths):,} pairs{left_out}, {round(self.batches_per_epoch()):,} batches an epoch, "
            f"vocabulary {len(self.task.source):,} and {len(self.task.target):,}"
        )

    def summary(self) -> dict[str, Any]:
        """The same and more, for the run's folder."""
        padding = padding_share(self.sampler.pool(0, 0)[:200], self.train.lengths)
        return {
            "pairs": len(self.train.lengths),
            "left_out": self.sampler.num_dropped,
            "batches_per_epoch": round(self.batches_per_epoch()),
            "source_symbols": len(self.task.source),
            "target_symbols": len(self.task.target),
            "padding_source": round(float(padding[0]), 4),
            "padding_target": round(float(padding[1]), 4),
        }

"""Modelling language: what comes next in a text, symbol by symbol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batches.running import (
    Batches,
    Sentences,
    Stream,
    Symbols,
    TextBatch,
    Windows,
    collate_lines,
    count_symbols,
    gather,
)
from seqloom.batches.samplers import Position, sorted_batches
from seqloom.batches.shards import TokenSequences, write_shard
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines, read_parts
from seqloom.decoding.prompts import Continuation, prompts
from seqloom.decoding.search import decode
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import UserError
from seqloom.evaluation.language import LanguageReport, LastSymbolReport, TextSize
from seqloom.evaluation.masked import MaskedReport
from seqloom.losses import (
    Entropy,
    SampledCrossEntropy,
    SymbolLoss,
    plain_cross_entropy,
    projected_cross_entropy,
)
from seqloom.models import LANGUAGE_MODELS
from seqloom.models.language import detach
from seqloom.models.masked_lm import MaskedLanguageModel
from seqloom.tasks.count_ngrams import blocks_of
from seqloom.tasks.guessing import guesses, guessing_loss, measure
from seqloom.tasks.starting import start_embedding
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID, PAD_ID, UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.loop import Validation
from seqloom.training.settings import LanguageTrainingSettings

ROW = 100_000  # symbols that a recurrent model reads in one row when it is measured; longer texts have several rows
AT_ONCE = 512  # of them in one call
TOKENS = 8192  # symbols of a batch when a model without a memory is measured
ROWS_IN_TRAINING = 20
SAMPLED = 60  # symbols of a sample, at most

READINGS = {
    "stream": "as running text",
    "windows": "in pieces",
    "sentences": "line by line",
}
BOTH_WAYS = "forward and backward: all figures are of the mean of both directions' losses"


@dataclass(frozen=True)
class Language:
    """The task owns the tokenizer, and with it the road from text to symbols and back."""

    tokenizer: Tokenizer

    # -- text ---------------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, corpus: PlainTextSettings, text: TextSettings, model: Any = None) -> Language:
        """Learn the vocabulary from the training text."""
        texts = read_parts(corpus) if text.tokenizer == "verbatim" else read_lines(corpus)
        return cls(Tokenizer.train(texts, text))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path) -> Language:
        return cls(Tokenizer.load(folder / "tokenizer.json"))

    @property
    def verbatim(self) -> bool:
        """Whether line breaks are symbols like others; else every line ends with EOS."""
        return self.tokenizer.kind == "verbatim"

    @property
    def first(self) -> int:
        """What is read before the first symbol of a text: the end of another one."""
        return self.tokenizer.encode("\n")[0] if self.verbatim else EOS_ID

    def texts(self, corpus: PlainTextSettings) -> Iterator[str]:
        """The text as it is encoded, a line at a time."""
        return read_parts(corpus) if self.verbatim else read_lines(corpus)

    def encode_lines(self, lines: Sequence[str]) -> list[list[int]]:
        """The symbols of each line, its end included."""
        found = self.tokenizer.encode_many(lines)
        return found if self.verbatim else [[*ids, EOS_ID] for ids in found]

    def encode(self, corpus: PlainTextSettings) -> TokenSequences:
        """The text as numbers, line by line and all in a row, from the cache where it was encoded before."""
        key = "\n".join(["language", fingerprint(corpus), self.tokenizer.to_json()])
        examples = ((line,) for line in self.texts(corpus))
        return write_shard(examples, {"text": self.encode_lines}, (len(self.tokenizer),), key)["text"]

    def size(self, corpus: PlainTextSettings) -> TextSize:
        return TextSize.verbatim(read_parts(corpus)) if self.verbatim else TextSize.of(read_lines(corpus))

    # -- model --------------------------------------------------------------------------------------------------------

    def build(self, settings: Any) -> nn.Module:
        """A fresh model for this vocabulary."""
        kind, num_symbols = LANGUAGE_MODELS[settings.kind][1], len(self.tokenizer)
        if getattr(settings, "characters", None) is not None:  # reads what symbols are spelled like
            return kind(settings, num_symbols=num_symbols, pieces=self.tokenizer.pieces(range(num_symbols)))
        return kind(settings, num_symbols=num_symbols)

    def start_from_vectors(self, model: Any, settings: Any, told: Callable[[str], None]) -> None:
        """Set the embedding of a fresh model from the vectors that its settings name, and freeze these if asked to."""
        pretrained = getattr(settings, "pretrained", None)
        if pretrained is not None:
            path, freeze = pretrained.text, pretrained.freeze
            start_embedding(model.embedding, self.tokenizer, path, "text", freeze=freeze, told=told)

    def symbols(self) -> dict[str, int]:
        return {"text": len(self.tokenizer)}

    def describe_vocabulary(self) -> str:
        return f"{len(self.tokenizer):,} symbols"

    # -- what is minimised --------------------------------------------------------------------------------------------

    def loss(
        self,
        model: Any,
        batch: TextBatch,
        state: Any,
        *,
        smoothing: float = 0.0,
        entropy: Entropy = projected_cross_entropy,
    ) -> tuple[SymbolLoss, Any]:
        """Cross-entropy of the symbols to be said, summed, and the state to go on from."""
        if guesses(model):
            return guessing_loss(model, batch, smoothing=smoothing, entropy=entropy), None
        features, state = model(batch.inputs, state, batch.lengths)
        features, gold = features.flatten(0, 1), batch.targets.flatten()
        if batch.lengths is not None:
            real = gold.nonzero()[:, 0]  # PAD is 0
            features, gold = features[real], gold[real]
        return entropy(features, model.output.weight, model.output.bias, gold, smoothing), state

    # -- quality ------------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        model: Any,
        name: str,
        corpus: PlainTextSettings,
        batching: str,
        progress: Callable[[float], None] | None = None,
    ) -> LanguageReport | MaskedReport:
        """How well the model foresees a text, read as it was trained to read."""
        lines = self.encode(corpus)
        if not len(lines.tokens):
            raise UserError(f"{describe(corpus)}: there is no text in it")
        return self.measured(model, name, lines, self.size(corpus), batching, progress=progress)

    def measured(
        self,
        model: Any,
        name: str,
        lines: TokenSequences,
        size: TextSize,
        batching: str,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> LanguageReport | MaskedReport:
        """The same for a text that is encoded; `quick` as in `scored`."""
        if not guesses(model):
            scored = self.scored(model, lines, batching, quick=quick, progress=progress)
            return self.report(name, float(sum(-part.sum() for part in scored)), lines, size, READINGS[batching])
        nll, count = measure(model, lines, batching, self.first, TOKENS, progress)
        if not isinstance(model, MaskedLanguageModel):
            return self.report(name, nll, lines, size, f"{READINGS[batching]}, {BOTH_WAYS}")
        if not count:
            raise UserError(
                f"{name}: too short a text to measure a {model.settings.kind}; none of its symbols was hidden"
            )
        return MaskedReport(name, nll, count, len(lines.tokens), READINGS[batching])

    def evaluate_last(
        self, model: Any, name: str, corpus: PlainTextSettings, progress: Callable[[float], None] | None = None
    ) -> LastSymbolReport:
        """How well the model foresees the last symbol of each line, all but its end."""
        return self.last_report(model, name, self.encode(corpus), describe(corpus), progress)

    def last_report(
        self,
        model: Any,
        name: str,
        lines: TokenSequences,
        described: str,
        progress: Callable[[float], None] | None = None,
    ) -> LastSymbolReport:
        lengths = np.diff(lines.offsets[0 : len(lines) + 1])
        numbers = np.flatnonzero(lengths > 1)
        if not len(numbers):
            raise UserError(f"{described}: there is no line with a symbol to ask for")
        nll, right, batches = 0.0, 0, sorted_batches(lengths[numbers], TOKENS)
        for number, some in enumerate(batches):
            batch = collate_lines([lines[int(i)] for i in numbers[some]], self.first, only_last=True)
            with torch.inference_mode():
                features = model(batch.inputs, None, batch.lengths)[0]
                asked = batch.targets != PAD_ID  # one a row
                logits, gold = model.output(features[asked]).double(), batch.targets[asked]
                nll -= float(logits.log_softmax(-1).gather(1, gold[:, None]).sum())
                right += int((logits.argmax(-1) == gold).sum())
            if progress is not None:
                progress((number + 1) / len(batches))
        return LastSymbolReport(name, nll, len(numbers), right)

    def report(self, name: str, nll: float, lines: TokenSequences, size: TextSize, reading: str) -> LanguageReport:
        count = len(lines.tokens)
        unknown = sum(int((lines.tokens[i : i + 2**20] == UNK_ID).sum()) for i in range(0, count, 2**20))
        return LanguageReport(name, nll, count, unknown, size, reading)

    def scored(
        self,
        model: Any,
        lines: TokenSequences,
        batching: str,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Iterator[np.ndarray]:
        """Log probabilities of all symbols of a text, each once, in no particular order.

        `quick`: a text is cut into more rows, or pieces do not overlap, so that some symbols have less before them.
        """
        context = getattr(model.settings, "context", None)
        if hasattr(model, "ngrams"):
            yield from map(model.ngrams.score, blocks_of(lines, False))
        elif batching == "sentences":
            lengths = np.diff(lines.offsets[0 : len(lines) + 1])
            batches = sorted_batches(lengths, TOKENS)
            for number, indices in enumerate(batches):
                yield self._chances(model, collate_lines([lines[i] for i in indices], self.first), None)[0]
                if progress is not None:
                    progress((number + 1) / len(batches))
        elif context is not None:
            yield from self._in_windows(model, lines.tokens, context, context if quick else max(1, context // 2))
        else:
            rows = ROWS_IN_TRAINING if quick else -(-len(lines.tokens) // ROW)
            yield from self._in_rows(model, lines.tokens, min(rows, len(lines.tokens)), progress)

    def _chances(self, model: Any, batch: TextBatch, state: Any) -> tuple[np.ndarray, Any]:
        """Log probability of every symbol to be said, row after row, and the state to go on from."""
        with torch.inference_mode():
            features, state = model(batch.inputs, state, batch.lengths)
            gold = batch.targets.flatten()
            real = gold.nonzero()[:, 0]
            rows, gold, found = features.flatten(0, 1)[real], gold[real], []
            for start in range(0, len(rows), 1024):  # a vocabulary is wide
                logits = model.output(rows[start : start + 1024])
                chosen = logits.gather(1, gold[start : start + 1024, None])[:, 0]
                found.append((chosen - logits.logsumexp(-1)).double())
        return torch.cat(found).numpy(), state

    def _in_rows(
        self, model: Any, tokens: Symbols, rows: int, progress: Callable[[float], None] | None
    ) -> Iterator[np.ndarray]:
        """Read on and on with the state carried along; the last row may be shorter."""
        each = -(-len(tokens) // rows)
        starts = each * np.arange(-(-len(tokens) // each))
        state = None
        for at in range(0, each, AT_ONCE):
            width = min(AT_ONCE, each - at)
            rest = np.clip(len(tokens) - (starts + at), 0, width)
            batch = gather(tokens, starts[rest == width] + at, width, self.first, fresh=at == 0)
            if rest[-1] < width:  # the last row ends here, or has ended
                ending = np.full((1, width + 1), PAD_ID, np.int64)
                if rest[-1]:
                    last = gather(tokens, starts[-1:] + at, int(rest[-1]), self.first)
                    ending[0, : rest[-1]], ending[0, 1 : rest[-1] + 1] = last.inputs[0], last.targets[0]
                both = torch.from_numpy(ending)
                targets = both[:, 1:].clone()
                batch = TextBatch(torch.cat([batch.inputs, both[:, :-1]]), torch.cat([batch.targets, targets]))
            found, state = self._chances(model, batch, state)
            yield found
            if progress is not None:
                progress((at + width) / each)

    def _in_windows(self, model: Any, tokens: Symbols, context: int, stride: int) -> Iterator[np.ndarray]:
        """Pieces of `context` symbols, of which the last `stride` count: all, in the first piece."""
        first = gather(tokens, np.zeros(1, np.int64), min(context, len(tokens)), self.first)
        yield self._chances(model, first, None)[0]
        starts = np.arange(context, len(tokens), stride)
        ends = np.minimum(starts + stride, len(tokens))
        many = max(1, TOKENS // context)
        for some in range(0, len(starts), many):
            rows = slice(some, some + many)
            batch = gather(tokens, ends[rows] - context, context, self.first)
            counted = torch.from_numpy(ends[rows] - starts[rows])[:, None]
            targets = batch.targets.masked_fill(torch.arange(context) < context - counted, PAD_ID)
            yield self._chances(model, TextBatch(batch.inputs, targets), None)[0]

    def line_scores(
        self, model: Any, lines: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Log probability of every symbol of each line, its end included; each line is read by itself."""
        encoded = self.encode_lines([line + "\n" for line in lines] if self.verbatim else lines)
        if hasattr(model, "ngrams"):
            return [model.ngrams.score(np.array(ids, np.int64)) for ids in encoded]
        found: list[np.ndarray] = [np.empty(0)] * len(lines)
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        done = 0
        for indices in sorted_batches(lengths, TOKENS):
            batch = collate_lines([encoded[i] for i in indices], self.first)
            chances = self._chances(model, batch, None)[0]
            for index, part in zip(indices, np.split(chances, np.cumsum(lengths[indices])[:-1]), strict=True):
                found[index] = part
            done += len(indices)
            if progress is not None:
                progress(done)
        return found


class LanguageWork:
    """What language modelling brings to the training loop."""

    def __init__(
        self,
        task: Language,
        train: PlainTextSettings,
        valid: PlainTextSettings,
        s: LanguageTrainingSettings,
        seed: int,
        decoding: DecodingSettings | None = None,
    ) -> None:
        self.task, self.settings = task, s
        self.decoding, self.valid_name = decoding or DecodingSettings(unknown="forbid"), describe(valid)
        self.train, self.valid = task.encode(train), task.encode(valid)
        self.valid_size = task.size(valid)
        self.cut = self._cut(describe(train), seed)
        self.entropy = self._entropy()
        self.state: Any = None  # of the rows that the next batch goes on with
        self.kept: list[Tensor] | None = None  # the same, from a checkpoint, until the model is seen

    def _cut(self, name: str, seed: int) -> Batches:
        s, first = self.settings, self.task.first
        if s.batching == "sentences":
            lines = Sentences(
                self.train,
                batch_tokens=s.batch_tokens,
                max_length=s.max_length,
                seed=seed,
                first=first,
                only_last=s.predict == "last",
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
        s, symbols = self.settings, len(self.task.tokenizer)
        if s.candidates is None or s.candidates >= symbols:
            return plain_cross_entropy if s.plain else projected_cross_entropy
        return SampledCrossEntropy(torch.from_numpy(count_symbols(self.train.tokens, symbols)), s.candidates, s.plain)

    def batches(self, position: Position) -> Iterator[tuple[Position, TextBatch]]:
        return self.cut.batches_from(position)

    def batches_per_epoch(self) -> float:
        return self.cut.batches_per_epoch()

    def epochs_done(self, position: Position) -> float:
        return self.cut.epochs_done(position)

    def loss(self, model: Any, batch: TextBatch) -> SymbolLoss:
        s = self.settings
        if self.kept is not None:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):  # what is dropped here must not be missing later
                like = model(batch.inputs[:, :1])[1]
            self.state, self.kept = rebuilt(like, iter(self.kept)), None
        found, state = self.task.loss(
            model, batch, None if batch.fresh else self.state, smoothing=s.label_smoothing, entropy=self.entropy
        )
        self.state = detach(state) if s.batching == "stream" else None
        return found

    def fits_threads(self, model: nn.Module) -> bool:
        """No: the state of a stream is carried on from batch to batch."""
        return False

    def carried(self) -> dict[str, Tensor]:
        return {str(index): tensor for index, tensor in enumerate(flat(self.state))}

    def carry(self, tensors: dict[str, Tensor]) -> None:
        self.kept = [tensors[str(index)] for index in range(len(tensors))]

    def validate(self, model: Any, *, final: bool = False) -> Validation:
        if self.settings.predict == "last":
            return Validation(self.task.last_report(model, "valid", self.valid, self.valid_name).metrics(), [])
        report = self.task.measured(
            model, "valid", self.valid, self.valid_size, self.settings.batching, quick=not final
        )
        return Validation(report.metrics(), [] if guesses(model) else self._samples(model))

    def _samples(self, model: Any) -> list[dict[str, str]]:
        """What the model says when it begins by itself: the same draws at every validation."""
        if not self.settings.samples:
            return []
        settings = self.decoding.model_copy(
            update={"method": "sample", "max_length": SAMPLED, "max_ratio": 1.0, "n_best": 1}
        )
        batch = prompts([], self.task.first, self.settings.samples, SAMPLED)
        found = decode(Continuation(model), batch, settings)
        return [{"says": " ".join(self.task.tokenizer.decode(one[0].tokens).split())} for one in found]

    def summary(self) -> dict[str, Any]:
        """What is worth knowing before step 1."""
        return {
            "symbols": len(self.train.tokens),
            "lines": len(self.train),
            "batches_per_epoch": round(self.batches_per_epoch()),
            "vocabulary": len(self.task.tokenizer),
        }

    def told(self) -> str:
        """The same for a person."""
        data = self.summary()
        return (
            f"{data['symbols']:,} symbols in {data['lines']:,} lines, {data['batches_per_epoch']:,} batches an epoch, "
            f"vocabulary {data['vocabulary']:,}"
        )


def flat(state: Any) -> list[Tensor]:
    """The tensors of a nested state, in order."""
    if state is None:
        return []
    return [state] if isinstance(state, Tensor) else [tensor for item in state for tensor in flat(item)]


def rebuilt(like: Any, tensors: Iterator[Tensor]) -> Any:
    """The tensors in the form of another state."""
    if like is None:
        return None
    if isinstance(like, Tensor):
        return next(tensors)
    items = [rebuilt(item, tensors) for item in like]
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)

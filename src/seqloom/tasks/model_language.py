"""Modelling language: what comes next in a text, symbol by symbol, learned by a network or counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field

from seqloom.answers import Generated
from seqloom.batches.running import Symbols, TextBatch, collate_lines, gather
from seqloom.batches.samplers import sorted_batches
from seqloom.batches.shards import Sequences
from seqloom.corpus.plain import PlainTextSettings, describe
from seqloom.decoding.beam import Considered, beam_search
from seqloom.decoding.prompts import Continuation
from seqloom.decoding.search import search, with_precision
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import UserError, one_of
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.language import LanguageReport, LastSymbolReport, ScoredLine, TextSize
from seqloom.inspection.beam import Search
from seqloom.inspection.gradients import Gradients
from seqloom.inspection.trace import Trace
from seqloom.losses import Entropy, Loss
from seqloom.models import LANGUAGE_MODELS
from seqloom.models.ngram_lm import NGramLanguageModel
from seqloom.ngrams.arpa import read_arpa, write_arpa
from seqloom.ngrams.building import build_ngrams
from seqloom.ngrams.model import NGramModel
from seqloom.sources.running_text import RunningText
from seqloom.tasks.base import Fitted, Say
from seqloom.tasks.gradients import asked_of_corpus, asked_of_text, measure_gradients
from seqloom.tasks.looking import next_symbols, watched
from seqloom.tasks.running_text import READINGS, TOKENS, RunningTextRecipe, RunningTextTask
from seqloom.text.special import EOS, EOS_ID, PAD_ID, SPECIAL, UNK_ID
from seqloom.text.tokenizers import SPACE, Tokenizer
from seqloom.training.journal import Journal
from seqloom.training.progress import Progress as Bar
from seqloom.training.progress import duration
from seqloom.training.settings import LanguageTrainingSettings

ROW = 100_000  # symbols that a recurrent model reads in one row when it is measured; longer texts have several rows
AT_ONCE = 512  # of them in one call
ROWS_IN_TRAINING = 20
SAMPLED = 60  # symbols of a sample, at most
BLOCK = 1 << 20


class LanguageRecipe(RunningTextRecipe):
    """What comes next in a text. N-grams are counted: their recipe has no section `training`."""

    training: LanguageTrainingSettings | None = Field(None)
    decoding: DecodingSettings = DecodingSettings(method="sample", unknown="forbid")

    def contradictions(self) -> list[str]:
        counted = self.model.kind == "ngram_lm"
        if counted and self.training is not None:
            return ["training: an ngram_lm is counted, not trained; remove this section"]
        if counted and self.start_from is not None:
            return ["start_from: an ngram_lm is counted from its text alone; remove this setting"]
        if not counted and self.training is None:
            return ["training is missing"]
        return super().contradictions()


class LanguageModelling(RunningTextTask):
    """Foresee the next symbol of a text."""

    name = "model_language"
    about = "running text: foresee the next symbol; generate, score"
    Recipe = LanguageRecipe
    models = LANGUAGE_MODELS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("perplexity", "bits_per_character", "accuracy")
    drawn = ("perplexity", "bits_per_character", "loss")
    per_symbol = frozenset({"loss"})
    verbs = frozenset({"evaluate", "generate", "score", "trace"})
    instead = "seqloom generate {model}"

    def __init__(self, text: RunningText, batching: str, predict: str = "all") -> None:
        """`predict: last`: models learn only the last symbol of each line, and are measured by that."""
        super().__init__(text, batching)
        self.predicts = predict

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: Any, say: Say) -> Self:
        text = RunningText.learn(recipe.data.train, recipe.text)
        s = recipe.training
        return cls(text, "sentences") if s is None else cls(text, s.batching, s.predict)

    def adopt(self, recipe: Any) -> None:
        super().adopt(recipe)
        self.predicts = recipe.training.predict

    def save(self, folder: Path) -> dict[str, Any]:
        return {**super().save(folder), "predict": self.predicts}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        task, predict = super().load(folder, config), config.get("predict")
        if predict not in ("all", "last"):
            raise UserError(f"{folder}/config.json: " + one_of("predict", predict, ["all", "last"]))
        task.predicts = str(predict)
        return task

    def fit(self, recipe: Any, run: Path, *, resume: bool, ranks: Any, say: Say) -> Fitted:
        if recipe.training is None:
            self.refuse_ranks(ranks)
            return self._count(recipe, run, say)
        return super().fit(recipe, run, resume=resume, ranks=ranks, say=say)

    def _count(self, recipe: Any, run: Path, say: Say) -> Fitted:
        """Count, smooth, measure."""
        lines, valid = self.text.encode(recipe.data.train), self.text.encode_something(recipe.data.valid)
        num_symbols = len(self.text.tokenizer)
        say(f"{len(lines.tokens):,} symbols in {len(lines):,} lines, vocabulary: {self.vocabulary()}")
        journal = Journal(run / "journal.jsonl", 0)
        journal.write("start", symbols=len(lines.tokens), vocabulary=num_symbols)
        began = time.monotonic()
        with Bar("counting") as bar:
            counted = build_ngrams(blocks_of(lines, self.text.verbatim), recipe.model, num_symbols, bar.update)
        seconds, model = time.monotonic() - began, NGramLanguageModel(counted)
        report = self.measured(model, "valid", valid, recipe.data.valid)
        figures = {name: round(value, 5) for name, value in report.figures.items()}
        journal.write("validation", **figures, seconds=round(seconds, 2), best=True, samples=[])
        journal.write("end", seconds=round(seconds, 2), ngrams=counted.num_ngrams())
        journal.close()
        counts = ", ".join(f"{count:,}" for count in counted.num_ngrams())
        say(f"counted in {duration(seconds)}: {counts} n-grams of order 1 to {counted.order}")
        for order in counted.degenerate_orders:
            say(f"order {order}: the text is too small to tell how much to discount; a fixed discount was used")
        found = f"perplexity {report.figures['perplexity']:.4g} on {describe(recipe.data.valid)}"
        say(f"valid {found}")
        card = {"counted": f"order {counted.order}, {recipe.model.smoothing}", "validation": found}
        return Fitted(model, self.size(model), card, seconds)

    def save_model(self, model: Any, folder: Path) -> None:
        if isinstance(model, NGramLanguageModel):
            model.ngrams.save(folder)
        else:
            super().save_model(model, folder)

    def load_model(self, settings: Any, folder: Path) -> Any:
        if self.models[settings.kind][1] is not NGramLanguageModel:
            return super().load_model(settings, folder)
        counted = NGramModel.load(folder)
        if counted.num_symbols != len(self.text.tokenizer):
            raise UserError(f"{folder}: n-grams of {counted.num_symbols:,} symbols, but a tokenizer of others")
        return NGramLanguageModel(counted)

    def untrained(self, recipe: Any) -> Any:
        if recipe.training is None:
            raise UserError("n-grams do not begin as anything before training: they are counted")
        return super().untrained(recipe)

    def size(self, model: Any) -> str:
        return f"{sum(model.num_ngrams()):,} n-grams" if isinstance(model, NGramLanguageModel) else super().size(model)

    def amounts(self, model: Any) -> dict[str, int]:
        return {"ngrams": sum(model.num_ngrams())} if isinstance(model, NGramLanguageModel) else super().amounts(model)

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [f"seqloom generate {folder}", f"seqloom evaluate {folder}"]

    # -- n-grams of other programs -----------------------------------------------------------------------------------

    @classmethod
    def open_file(cls, path: Path) -> tuple[Self, NGramLanguageModel]:
        """N-grams that any program counted; words are what stands between spaces."""
        counted, words = read_arpa(path)
        return cls(RunningText(Tokenizer.of_words(words[len(SPECIAL) :])), "sentences"), NGramLanguageModel(counted)

    def to_arpa(self, model: Any, path: str | Path) -> None:
        """Write n-grams in the form that other programs read."""
        if not isinstance(model, NGramLanguageModel):
            raise UserError(f"an ARPA file holds n-grams; this model is a {model.settings.kind}")
        tokenizer = self.text.tokenizer
        pieces = tokenizer.pieces(range(len(tokenizer)))
        if tokenizer.kind == "spaces":
            pieces = [piece.removeprefix(SPACE) for piece in pieces]
        write_arpa(model.ngrams, pieces, path)

    # -- what is minimised -------------------------------------------------------------------------------------------

    def loss(self, model: Any, batch: TextBatch, state: Any, smoothing: float, entropy: Entropy) -> Loss:
        """Cross-entropy of the next symbols, summed, and the state to go on from."""
        features, state = model(batch.inputs, state, batch.lengths)
        features, gold = features.flatten(0, 1), batch.targets.flatten()
        if batch.lengths is not None:
            real = gold.nonzero()[:, 0]  # PAD is 0
            features, gold = features[real], gold[real]
        return Loss(*entropy(features, model.output.weight, model.output.bias, gold, smoothing), state)

    # -- quality -----------------------------------------------------------------------------------------------------

    def measured(
        self,
        model: Any,
        name: str,
        lines: Sequences,
        corpus: PlainTextSettings,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> LanguageReport | LastSymbolReport:
        """How well the model foresees an encoded text, read as it was trained to read.

        `quick`: a text is cut into more rows, or pieces do not overlap, so that some symbols have less before them.
        """
        if self.predicts == "last":
            return self._last_symbols(model, name, lines, describe(corpus), progress)
        found = self.log_probs(model, lines, quick=quick, progress=progress)
        nll = float(sum(-part.sum() for part in found))
        return language_report(name, nll, lines, self.size_of(corpus), READINGS[self.batching])

    def _last_symbols(
        self, model: Any, name: str, lines: Sequences, described: str, progress: Callable[[float], None] | None
    ) -> LastSymbolReport:
        """How well the model foresees the last symbol of each line, all but its end."""
        lengths = np.diff(lines.offsets[0 : len(lines) + 1])
        numbers = np.flatnonzero(lengths > 1)
        if not len(numbers):
            raise UserError(f"{described}: there is no line with a symbol to ask for")
        nll, right, batches = 0.0, 0, sorted_batches(lengths[numbers], TOKENS)
        for number, some in enumerate(batches):
            batch = collate_lines([lines[int(i)] for i in numbers[some]], self.text.first, only_last=True)
            with torch.inference_mode():
                features = model(batch.inputs, None, batch.lengths)[0]
                asked = batch.targets != PAD_ID  # one a row
                logits, gold = model.output(features[asked]).double(), batch.targets[asked]
                nll -= float(logits.log_softmax(-1).gather(1, gold[:, None]).sum())
                right += int((logits.argmax(-1) == gold).sum())
            if progress is not None:
                progress((number + 1) / len(batches))
        return LastSymbolReport(name, nll, len(numbers), right)

    def log_probs(
        self,
        model: Any,
        lines: Sequences,
        *,
        quick: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Iterator[np.ndarray]:
        """Log probabilities of all symbols of a text, each once, in no particular order."""
        context = getattr(model.settings, "context", None)
        if isinstance(model, NGramLanguageModel):
            yield from map(model.ngrams.score, blocks_of(lines, False))
        elif self.batching == "sentences":
            lengths = np.diff(lines.offsets[0 : len(lines) + 1])
            batches = sorted_batches(lengths, TOKENS)
            for number, indices in enumerate(batches):
                yield _batch_log_probs(model, collate_lines([lines[i] for i in indices], self.text.first), None)[0]
                if progress is not None:
                    progress((number + 1) / len(batches))
        elif context is not None:
            yield from self._in_windows(model, lines.tokens, context, context if quick else max(1, context // 2))
        else:
            rows = ROWS_IN_TRAINING if quick else -(-len(lines.tokens) // ROW)
            yield from self._in_rows(model, lines.tokens, min(rows, len(lines.tokens)), progress)

    def _in_rows(
        self, model: Any, tokens: Symbols, rows: int, progress: Callable[[float], None] | None
    ) -> Iterator[np.ndarray]:
        """Read on and on with the state carried along; the last row may be shorter."""
        first, each = self.text.first, -(-len(tokens) // rows)
        starts = each * np.arange(-(-len(tokens) // each))
        state = None
        for at in range(0, each, AT_ONCE):
            width = min(AT_ONCE, each - at)
            rest = np.clip(len(tokens) - (starts + at), 0, width)
            batch = gather(tokens, starts[rest == width] + at, width, first, fresh=at == 0)
            if rest[-1] < width:  # the last row ends here, or has ended
                ending = np.full((1, width + 1), PAD_ID, np.int64)
                if rest[-1]:
                    last = gather(tokens, starts[-1:] + at, int(rest[-1]), first)
                    ending[0, : rest[-1]], ending[0, 1 : rest[-1] + 1] = last.inputs[0], last.targets[0]
                both = torch.from_numpy(ending)
                targets = both[:, 1:].clone()
                batch = TextBatch(torch.cat([batch.inputs, both[:, :-1]]), torch.cat([batch.targets, targets]))
            found, state = _batch_log_probs(model, batch, state)
            yield found
            if progress is not None:
                progress((at + width) / each)

    def _in_windows(self, model: Any, tokens: Symbols, context: int, stride: int) -> Iterator[np.ndarray]:
        """Pieces of `context` symbols, of which the last `stride` count: all, in the first piece."""
        first = gather(tokens, np.zeros(1, np.int64), min(context, len(tokens)), self.text.first)
        yield _batch_log_probs(model, first, None)[0]
        starts = np.arange(context, len(tokens), stride)
        ends = np.minimum(starts + stride, len(tokens))
        many = max(1, TOKENS // context)
        for some in range(0, len(starts), many):
            rows = slice(some, some + many)
            batch = gather(tokens, ends[rows] - context, context, self.text.first)
            counted = torch.from_numpy(ends[rows] - starts[rows])[:, None]
            targets = batch.targets.masked_fill(torch.arange(context) < context - counted, PAD_ID)
            yield _batch_log_probs(model, TextBatch(batch.inputs, targets), None)[0]

    def score(
        self, model: Any, lines: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[ScoredLine]:
        """How likely each line is, read by itself."""
        found, verbatim = [], self.text.verbatim
        end = "↵" if verbatim else EOS
        size = TextSize.verbatim if verbatim else TextSize.of
        for line, log_probs in zip(lines, self.line_log_probs(model, lines, progress), strict=True):
            labels = [*self.text.tokenizer.labels(self.text.tokenizer.encode(line)), end]
            found.append(ScoredLine(line, labels, log_probs.tolist(), size([line + "\n" if verbatim else line])))
        return found

    def line_log_probs(
        self, model: Any, lines: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Log probability of every symbol of each line, its end included."""
        encoded = self.text.encode_lines([line + "\n" for line in lines] if self.text.verbatim else lines)
        if isinstance(model, NGramLanguageModel):
            return [model.ngrams.score(np.array(ids, np.int64)) for ids in encoded]
        found: list[np.ndarray] = [np.empty(0)] * len(lines)
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        done = 0
        for indices in sorted_batches(lengths, TOKENS):
            batch = collate_lines([encoded[i] for i in indices], self.text.first)
            log_probs = _batch_log_probs(model, batch, None)[0]
            for index, part in zip(indices, np.split(log_probs, np.cumsum(lengths[indices])[:-1]), strict=True):
                found[index] = part
            done += len(indices)
            if progress is not None:
                progress(done)
        return found

    # -- texts that go on --------------------------------------------------------------------------------------------

    def generate(
        self,
        model: Any,
        prompt: str,
        options: DecodingSettings,
        *,
        count: int = 1,
        callback: Callable[[int, int], None] | None = None,
    ) -> list[Generated]:
        """Go on from a text, several times over; with a beam, the best so many.

        `callback` hears a number and a symbol as soon as it is chosen (not by a beam, which changes its mind).
        """
        symbols = self.text.tokenizer.encode(prompt)
        room = options.max_length + 1  # and the end
        if options.method == "beam":
            chosen = {"n_best": count, "beam_size": max(count, options.beam_size)}
            found = self._continued(model, symbols, 1, room, options.model_copy(update=chosen))[0]
        else:
            rows = count if options.method == "sample" else 1
            once = options.model_copy(update={"n_best": 1})
            found = [one[0] for one in self._continued(model, symbols, rows, room, once, callback)]
        return [self._generated(prompt, symbols, hypothesis) for hypothesis in found]

    def _continued(
        self,
        model: Any,
        symbols: list[int],
        rows: int,
        room: int,
        options: DecodingSettings,
        callback: Callable[[int, int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """So many texts that all go on from the same symbols, each by at most `room` more."""
        with torch.inference_mode(), with_precision(model, options):
            stepper = Continuation(model)
            state, first = stepper.start([self.text.first, *symbols], rows)
            return search(stepper, state, first, torch.full((rows,), room), options, callback=callback)

    def _generated(self, prompt: str, before: list[int], found: Hypothesis) -> Generated:
        tokenizer = self.text.tokenizer
        labels = [*tokenizer.labels(found.tokens), EOS] if found.finished else tokenizer.labels(found.tokens)
        log_probs = found.token_log_probabilities[: len(labels)]
        text = tokenizer.decode([*before, *found.tokens])
        return Generated(prompt, text, labels, log_probs, sum(log_probs), found.finished)

    def streamed(self, prompt: str, write: Callable[[str], None]) -> Callable[[int, int], None]:
        """A callback for `generate` that writes the text as it grows, the prompt first."""
        tokenizer = self.text.tokenizer
        symbols = tokenizer.encode(prompt)
        shown = tokenizer.decode(symbols)
        write(shown)

        def callback(number: int, symbol: int) -> None:
            nonlocal shown
            if symbol != EOS_ID:
                symbols.append(symbol)
                text = tokenizer.decode(symbols)
                write(text[len(shown) :])
                shown = text

        return callback

    def samples(self, model: Any, recipe: Any) -> list[dict[str, str]]:
        """What the model writes when it begins by itself: the same draws at every validation."""
        if self.predicts == "last":
            return []
        options = recipe.decoding.model_copy(update={"method": "sample", "n_best": 1})
        found = self._continued(model, [], recipe.training.samples, SAMPLED, options)
        return [{"sample": " ".join(self.text.tokenizer.decode(one[0].tokens).split())} for one in found]

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: str, target: Any = None, options: Any = None) -> Trace:
        """Gates or heads while a line is read; its axes are labelled with the symbols."""
        if target is not None:
            raise UserError("a language model has no target: it is watched while it reads the text itself")
        if isinstance(model, NGramLanguageModel):
            raise UserError("n-grams have neither gates nor heads; 'seqloom score' tells what they make of a text")
        ids = self.text.tokenizer.encode(given)
        if not ids:
            raise UserError("there is nothing to look at: give a text")
        labels = self.text.tokenizer.labels_of(given)
        first = "↵" if self.text.verbatim else EOS
        trace = Trace({"target": [*labels, EOS], "target_in": [first, *labels]})
        with torch.inference_mode():
            model(torch.tensor([[self.text.first, *ids]]), trace=trace)
        return trace

    def next_log_probs(self, model: Any, given: str, prefix: str = "") -> tuple[list[str], np.ndarray]:
        """All symbols, and their log probabilities after a text."""
        if prefix:
            raise UserError("a language model goes on from the text itself; leave the prefix out")
        with torch.inference_mode():
            stepper = Continuation(model)
            state, first = stepper.start([self.text.first, *self.text.tokenizer.encode(given)], 1)
            features = stepper.advance(first, state)[0]
            logits = features if stepper.output is None else stepper.output(features)
            return next_symbols(logits[0], self.text.tokenizer)

    def beam(self, model: Any, given: str, options: DecodingSettings) -> Search:
        """A beam search step by step."""
        steps = list[Considered]()
        with torch.inference_mode(), with_precision(model, options):
            stepper = Continuation(model)
            state, first = stepper.start([self.text.first, *self.text.tokenizer.encode(given)], 1)
            limit = torch.full((1,), options.max_length + 1)  # and the end
            (found,) = beam_search(stepper, state, first, limit, options, watch=steps.append)
        return watched(steps, found, self.text.tokenizer, options)

    def gradients(
        self,
        model: Any,
        text: str | None,
        corpus: PlainTextSettings | None,
        *,
        steps: int,
        count: int,
        name: str = "",
        progress: Callable[[float], None] | None = None,
    ) -> Gradients:
        """How far back the loss reaches: of every symbol of a text, or of `count` symbols spread over a corpus."""
        if isinstance(model, NGramLanguageModel):
            raise UserError("n-grams have no gradients: they were counted, not trained")
        if text is not None:
            asked, sample = asked_of_text(self.text, text), "every symbol of the text"
        else:
            assert corpus is not None, "a text or a corpus"
            asked = asked_of_corpus(self.text, corpus, self.batching, self.predicts == "last", count)
            sample = f"{len(asked):,} places in {describe(corpus)}"
        return measure_gradients(model, asked, steps=steps, name=name, sample=sample, progress=progress)


def language_report(name: str, nll: float, lines: Sequences, size: TextSize, reading: str) -> LanguageReport:
    """The figures of a text from minus the log probability of all of it."""
    count = len(lines.tokens)
    unknown = sum(int((lines.tokens[i : i + BLOCK] == UNK_ID).sum()) for i in range(0, count, BLOCK))
    return LanguageReport(name, nll, count, unknown, size, reading)


def blocks_of(lines: Sequences, whole: bool) -> Iterator[np.ndarray]:
    """The text a million symbols at a time, each block a few whole lines; `whole`: all in one, and an end after it."""
    if whole:
        yield np.append(lines.tokens[0 : len(lines.tokens)].astype(np.int64), EOS_ID)
        return
    first = 0
    while first < len(lines):
        offsets = lines.offsets[first : first + BLOCK + 1]
        count = max(1, int(np.searchsorted(offsets, offsets[0] + BLOCK, "right")) - 1)
        yield lines.tokens[int(offsets[0]) : int(offsets[count])]
        first += count


def _batch_log_probs(model: Any, batch: TextBatch, state: Any) -> tuple[np.ndarray, Any]:
    """Log probability of every symbol that comes next, row after row, and the state to go on from."""
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

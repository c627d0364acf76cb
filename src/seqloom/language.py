"""From a model folder to text: what a language model says, how likely it finds a text, how well it foresees one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seqloom.corpus.plain import PlainTextSettings
from seqloom.decoding.prompts import Continuation, prompts
from seqloom.decoding.search import decode
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import UserError, one_of
from seqloom.evaluation.language import MOST_NATS, LanguageReport, LastSymbolReport, TextSize
from seqloom.evaluation.masked import MaskedReport
from seqloom.files import read_json
from seqloom.folders import FORMAT, find_model, is_arpa
from seqloom.models import LANGUAGE_MODELS
from seqloom.models.ngram_lm import NGramLanguageModel
from seqloom.ngrams.arpa import read_arpa, write_arpa
from seqloom.ngrams.model import NGramModel
from seqloom.settings import validated
from seqloom.tasks.guessing import refuse_guessing
from seqloom.tasks.model_language import READINGS, Language
from seqloom.text.special import EOS, EOS_ID, SPECIAL
from seqloom.text.tokenizers import SPACE, Tokenizer
from seqloom.training.checkpoints import check_sizes, load_tensors, put_weights


@dataclass(frozen=True)
class Generated:
    """A text that was said: `text` begins with the prompt; `tokens` and their log probabilities are what follows it.

    `finished`: the model came to an end by itself (the last log probability is that of the end).
    """

    prompt: str
    text: str
    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    finished: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "text": self.text,
            "log_probability": round(self.log_probability, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
            "finished": self.finished,
        }


@dataclass(frozen=True)
class Scored:
    """How likely a line is: `tokens` are its symbols and its end, with a log probability each."""

    text: str
    tokens: list[str] = field(repr=False)
    token_log_probabilities: list[float] = field(repr=False)
    size: TextSize

    @property
    def log_probability(self) -> float:
        return sum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """A word, the end of the line included."""
        return math.exp(min(MOST_NATS, -self.log_probability / self.size.words))

    @property
    def bits_per_character(self) -> float:
        return -self.log_probability / math.log(2) / self.size.characters

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "log_probability": round(self.log_probability, 6),
            "perplexity": round(self.perplexity, 6),
            "bits_per_character": round(self.bits_per_character, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
        }


class LanguageModel:
    """A trained model of language with everything that turns text into symbols and back."""

    def __init__(
        self,
        folder: Path,
        task: Language,
        model: Any,
        decoding: DecodingSettings,
        batching: str,
        only_last: bool = False,
    ) -> None:
        """`only_last`: it was trained to say the last symbol of a line, and is measured by that."""
        self.folder, self.task, self.model = folder, task, model.eval()
        self.decoding, self.batching, self.only_last = decoding, batching, only_last

    @classmethod
    def load(cls, path: str | Path) -> LanguageModel:
        """Load a model folder, the model of a run folder, or an ARPA file. No code of the folder is executed."""
        if is_arpa(path):
            return cls.from_arpa(path)
        folder = find_model(path)
        config = read_json(folder / "config.json")
        about = config.get("model") if isinstance(config, dict) else None
        if not isinstance(about, dict):
            raise UserError(f"{folder}/config.json: not the description of a seqloom model")
        if config.get("task") != "model_language":
            kind = config.get("task")
            raise UserError(f"{path}: a model for the task {kind}; this needs a language model (task model_language)")
        if config.get("format") != FORMAT:
            found = config.get("format")
            raise UserError(f"{folder}/config.json: this seqloom reads model format {FORMAT}; the folder has {found!r}")
        kind, batching = about.get("kind"), config.get("batching")
        if not isinstance(kind, str) or kind not in LANGUAGE_MODELS:
            raise UserError(f"{folder}/config.json: " + one_of("model.kind", kind, LANGUAGE_MODELS))
        if batching not in READINGS:
            raise UserError(f"{folder}/config.json: " + one_of("batching", batching, READINGS))
        predict = config.get("predict", "all")  # folders from before the setting do not say
        if predict not in ("all", "last"):
            raise UserError(f"{folder}/config.json: " + one_of("predict", predict, ["all", "last"]))
        settings = validated(LANGUAGE_MODELS[kind][0], about, f"{folder}/config.json")
        decoding = validated(DecodingSettings, config.get("decoding", {}), f"{folder}/config.json")
        task = Language.load(folder)
        if kind == "ngram_lm":
            counted = NGramModel.load(folder)
            if counted.num_symbols != len(task.tokenizer):
                raise UserError(f"{folder}: n-grams of {counted.num_symbols:,} symbols, but a tokenizer of others")
            return cls(folder, task, NGramLanguageModel(counted), decoding, batching)
        file = folder / "model.safetensors"
        weights = load_tensors(file)
        check_sizes(settings, weights, str(file))
        model = task.build(settings)
        put_weights(model, weights, str(file))
        return cls(folder, task, model, decoding, batching, predict == "last")

    @classmethod
    def from_arpa(cls, path: str | Path) -> LanguageModel:
        """N-grams that any program counted; words are what stands between spaces."""
        counted, words = read_arpa(Path(path).expanduser())
        task = Language(Tokenizer.of_words(words[len(SPECIAL) :]))
        decoding = DecodingSettings(method="sample", unknown="forbid")
        return cls(Path(path), task, NGramLanguageModel(counted), decoding, "sentences")

    def to_arpa(self, path: str | Path) -> None:
        """Write n-grams in the form that other programs read."""
        if not isinstance(self.model, NGramLanguageModel):
            raise UserError(f"{self.folder}: an ARPA file holds n-grams; this is a {self.model.settings.kind}")
        tokenizer = self.task.tokenizer
        pieces = tokenizer.pieces(range(len(tokenizer)))
        if tokenizer.kind == "spaces":
            pieces = [piece.removeprefix(SPACE) for piece in pieces]
        write_arpa(self.model.ngrams, pieces, path)

    def size(self) -> str:
        """How large the model is."""
        if isinstance(self.model, NGramLanguageModel):
            return f"{sum(self.model.ngrams.num_ngrams()):,} n-grams"
        return f"{sum(weight.numel() for weight in self.model.parameters()):,} parameters"

    def __call__(self, prompt: str = "", **decoding: Any) -> Generated:
        """Go on from a text; keyword arguments override the decoding settings, such as `temperature=0.7`."""
        return self.generate(prompt, **decoding)[0]

    def generate(
        self, prompt: str = "", *, count: int = 1, tell: Callable[[int, int], None] | None = None, **decoding: Any
    ) -> list[Generated]:
        """Go on from a text, several times over.

        Args:
            prompt: what the text begins with; nothing, for one from its beginning.
            count: how many; with a beam, the best so many.
            tell: is told a number and a symbol whenever one is said (not by a beam, which changes its mind).
            decoding: settings to change.
        """
        refuse_guessing(self.model, "go on with a text")
        settings = self.decoding.overridden(decoding)
        symbols = self.task.tokenizer.encode(prompt)
        room = settings.max_length + 1  # and the end
        settings = settings.model_copy(update={"max_length": room, "max_ratio": 1.0, "n_best": 1})
        if settings.method == "beam":
            settings = settings.model_copy(update={"n_best": count, "beam_size": max(count, settings.beam_size)})
            found = decode(Continuation(self.model), prompts(symbols, self.task.first, 1, room), settings)[0]
        else:
            rows = count if settings.method == "sample" else 1
            batch = prompts(symbols, self.task.first, rows, room)
            found = [one[0] for one in decode(Continuation(self.model), batch, settings, tell=tell)]
        return [self._generated(prompt, symbols, hypothesis) for hypothesis in found]

    def _generated(self, prompt: str, before: list[int], said: Hypothesis) -> Generated:
        tokenizer = self.task.tokenizer
        labels = [*tokenizer.labels(said.tokens), EOS] if said.finished else tokenizer.labels(said.tokens)
        chances = said.token_log_probabilities[: len(labels)]
        text = tokenizer.decode([*before, *said.tokens])
        return Generated(prompt, text, labels, chances, sum(chances), said.finished)

    def score(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Scored]:
        """How likely each line is, read by itself."""
        refuse_guessing(self.model, "tell how likely a line is")
        found = []
        ends = ["↵"] if self.task.verbatim else [EOS]
        size = TextSize.verbatim if self.task.verbatim else TextSize.of
        for line, chances in zip(lines, self.task.line_scores(self.model, lines, progress), strict=True):
            labels = [*self.task.tokenizer.labels(self.task.tokenizer.encode(line)), *ends]
            whole = line + "\n" if self.task.verbatim else line
            found.append(Scored(line, labels, chances.tolist(), size([whole])))
        return found

    def evaluate(
        self, corpus: PlainTextSettings, name: str = "test", progress: Callable[[float], None] | None = None
    ) -> LanguageReport | LastSymbolReport | MaskedReport:
        """How well the model foresees a text, or the last symbols of its lines where it was trained for those."""
        if self.only_last:
            return self.task.evaluate_last(self.model, name, corpus, progress)
        return self.task.evaluate(self.model, name, corpus, self.batching, progress)

    def trace(self, text: str) -> Any:
        """Gates or heads while a line is read; its axes are labelled with the symbols."""
        refuse_guessing(self.model, "be watched while it says the next symbol")
        from seqloom.inspection.trace import Trace

        ids = self.task.tokenizer.encode(text)
        if isinstance(self.model, NGramLanguageModel):
            raise UserError("n-grams have neither gates nor heads; 'seqloom score' tells what they make of a text")
        if not ids:
            raise UserError("there is nothing to look at: give a text")
        labels = self.task.tokenizer.labels(ids)
        first = "↵" if self.task.verbatim else EOS
        trace = Trace({"target": [*labels, EOS], "target_in": [first, *labels]})
        with torch.inference_mode():
            self.model(torch.tensor([[self.task.first, *ids]]), trace=trace)
        return trace


def streamed(model: LanguageModel, prompt: str, write: Callable[[str], None]) -> Callable[[int, int], None]:
    """For `tell`: writes the text as it grows, the prompt first."""
    refuse_guessing(model.model, "go on with a text")  # before anything is written
    said = model.task.tokenizer.encode(prompt)
    shown = model.task.tokenizer.decode(said)
    write(shown)

    def tell(number: int, symbol: int) -> None:
        nonlocal shown
        if symbol != EOS_ID:
            said.append(symbol)
            text = model.task.tokenizer.decode(said)
            write(text[len(shown) :])
            shown = text

    return tell

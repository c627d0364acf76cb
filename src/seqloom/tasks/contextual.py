"""A language model that reads beside another model: whose words get its vectors, and how both cuts of a text meet.

The language model keeps its own tokenizer. A piece of the other model is given the mean of the vectors of all pieces
that the language model cuts the same word into; the end is given that of the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from seqloom.batches.collate import ContextBatch, collate_context
from seqloom.batches.shards import TokenSequences
from seqloom.corpus.lines import expand_path
from seqloom.errors import UserError
from seqloom.files import read_json
from seqloom.folders import FORMAT, find_model
from seqloom.models import LANGUAGE_MODELS
from seqloom.models.recurrent_lm import RecurrentLanguageModel
from seqloom.models.transformer_lm import TransformerLanguageModel
from seqloom.settings import ModelSettings, validated
from seqloom.tasks.model_language import Language
from seqloom.text.spans import pieces_of_words
from seqloom.text.special import UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.words import word_spans
from seqloom.training.checkpoints import check_sizes, load_tensors, put_weights

READERS = ("bidirectional_lm", "masked_lm")
TOKENIZER, DESCRIPTION = "tokenizer.contextual.json", "contextual.json"


class Read(NamedTuple):
    """A text for the language model, beginning and end included, and from where to where each piece looks at it."""

    symbols: list[int]
    places: list[int]  # from, to, from, to, …: one pair for each piece of the other tokenizer, one for the end


class EncodedContext(NamedTuple):
    """What the language model reads of a corpus, on disk."""

    symbols: TokenSequences
    places: TokenSequences

    def batch(self, indices: np.ndarray) -> ContextBatch:
        return collate_context([self.symbols[i] for i in indices], [self.places[i] for i in indices])


@dataclass(frozen=True)
class Context:
    """The language model that reads the source beside a translator: its road from text to symbols, and its settings."""

    language: Language
    settings: ModelSettings

    @classmethod
    def open(cls, path: str) -> Context:
        """Of the language model in a run or model folder."""
        folder = _found(path)
        config = read_json(folder / "config.json")
        about = config.get("model") if isinstance(config, dict) else None
        if not isinstance(about, dict) or config.get("task") != "model_language":
            raise UserError(f"model.contextual.source: {path} is not a language model; it must be one of {_kinds()}")
        if config.get("format") != FORMAT:
            found = config.get("format")
            raise UserError(f"{folder}/config.json: this seqloom reads model format {FORMAT}; the folder has {found!r}")
        return cls(Language.load(folder), _checked(about, f"model.contextual.source: {path}"))

    def save(self, folder: Path) -> None:
        self.language.tokenizer.save(folder / TOKENIZER)
        description = {"format": FORMAT, "model": self.settings.model_dump(mode="json")}
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Context | None:
        """What `save` wrote; None where there is nothing of it."""
        if not (folder / DESCRIPTION).is_file():
            return None
        values = read_json(folder / DESCRIPTION)
        about = values.get("model") if isinstance(values, dict) else None
        if not isinstance(about, dict) or values.get("format") != FORMAT:
            raise UserError(f"{folder / DESCRIPTION}: not the description of a language model of format {FORMAT}")
        settings = _checked(about, str(folder / DESCRIPTION))
        weights = folder / "model.safetensors"
        if weights.is_file():
            check_sizes(settings, _shapes(weights), str(weights))
        return cls(Language(Tokenizer.load(folder / TOKENIZER)), settings)

    def key(self) -> str:
        """What its encoded texts depend on."""
        return self.language.tokenizer.to_json()

    def build(self) -> nn.Module:
        """The language model with random weights and without an output layer, which nobody asks for words."""
        model = self.language.build(self.settings)
        del model.output
        return model

    @staticmethod
    def fill(path: str, model: nn.Module) -> None:
        """Take the weights from the folder that the language model was found in."""
        file = _found(path) / "model.safetensors"
        weights = load_tensors(file)
        wanted = dict(model.named_parameters())
        kept = {name: weight for name, weight in weights.items() if name in wanted or not name.startswith("output.")}
        put_weights(model, kept, str(file))

    # -- text ---------------------------------------------------------------------------------------------------------

    def read(self, text: str, pieces: Tokenizer) -> Read:
        """A text as the language model reads it, and where the pieces of the other tokenizer find their words."""
        own = self.language.tokenizer.encode_detailed(text)
        end = self.language.first  # between two texts there is one symbol, an end and a beginning
        ranges = pieces_of_words(text, pieces.encode_detailed(text), own)
        places = [(first + 1, last + 1) if last else (0, 0) for first, last in ranges]  # after the beginning
        places.append((len(own.ids) + 1, len(own.ids) + 2))
        return Read([end, *own.ids, end], [number for pair in places for number in pair])

    def batch(self, texts: Sequence[str], pieces: Tokenizer) -> ContextBatch:
        found = [self.read(text, pieces) for text in texts]
        return collate_context([one.symbols for one in found], [one.places for one in found])


def _found(path: str) -> Path:
    try:
        return find_model(expand_path(path))
    except UserError as error:
        raise UserError(f"model.contextual.source: {error}") from None


def _kinds() -> str:
    return " or ".join(READERS)


def _checked(about: dict[str, Any], origin: str) -> ModelSettings:
    kind = about.get("kind")
    if kind not in READERS:
        raise UserError(f"{origin} is a {kind}; vectors of words in their context come from a {_kinds()}")
    settings: ModelSettings = validated(LANGUAGE_MODELS[kind][0], about, origin)
    return settings


class _Shape(NamedTuple):
    shape: tuple[int, ...]


def _shapes(path: Path) -> dict[str, Any]:
    """The shapes of the tensors in a file, without reading these."""
    try:
        with safe_open(path, "pt") as file:
            return {name: _Shape(tuple(file.get_slice(name).get_shape())) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None


# -- one word in several texts ----------------------------------------------------------------------------------------


def layer_vectors(model: Any, symbols: Tensor) -> list[Tensor]:
    """(rows, time) symbols -> (rows, time, size) of each layer of a language model, the one without context first."""
    if hasattr(model, "vectors"):
        found: list[Tensor] = model.vectors(symbols, torch.full((len(symbols),), symbols.shape[1]))
        return found
    layers: list[Tensor] = []
    if isinstance(model, TransformerLanguageModel | RecurrentLanguageModel):
        context = getattr(model.settings, "context", None)
        if context is not None and symbols.shape[1] > context:
            raise UserError(f"the text has {symbols.shape[1]} symbols; this model sees {context} at once: shorten it")
        embedded = model.embedding(symbols)
        model.decoder(embedded, collect=layers)
        return [embedded, *layers]
    kind = getattr(getattr(model, "settings", None), "kind", type(model).__name__)
    others = "recurrent_lm, transformer_lm"
    raise UserError(f"a {kind} has no layers of words in their context; {', '.join(READERS)}, {others} have")


def word_in_contexts(
    language: Language,
    model: Any,
    word: str,
    texts: Sequence[str],
    told: Callable[[str], None] = lambda text: None,
) -> list[np.ndarray]:
    """The vectors of one word in several texts, where it first stands in each: (texts, size) of each layer.

    Of several pieces of the word the mean is taken. `told` hears where the model does not know the word.

    Raises:
        UserError: A text does not hold the word.
    """
    rows: list[list[np.ndarray]] = []
    for number, text in enumerate(texts, 1):
        start, end = _find(word, text, number)
        encoded = language.tokenizer.encode_detailed(text)
        places = [i for i, (first, last) in enumerate(encoded.spans) if first < end and last > start]
        assert places, "a visible word has symbols"
        if any(encoded.ids[place] == UNK_ID for place in places):
            told(f"text {number}: {text[start:end]!r} is unknown to the model; its vector is that of any unknown word")
        symbols = torch.tensor([[language.first, *encoded.ids, language.first]])
        with torch.inference_mode():
            layers = layer_vectors(model, symbols)
        rows.append([layer[0, [place + 1 for place in places]].mean(0).double().numpy() for layer in layers])
    return [np.stack(layer) for layer in zip(*rows, strict=True)]


def _find(word: str, text: str, number: int) -> tuple[int, int]:
    """Where a word stands in a text, as it is written; else whatever its case."""
    words = [(text[start:end], start, end) for start, end in word_spans(text)]
    for same in (lambda found: found == word, lambda found: found.lower() == word.lower()):
        for found, start, end in words:
            if same(found):
                return start, end
    raise UserError(f"text {number} does not hold the word {word!r}: {text!r}")

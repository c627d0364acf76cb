"""What a language model makes of words in their context: the vectors of each of its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import UserError
from seqloom.models import READERS
from seqloom.models.recurrent_lm import RecurrentLanguageModel
from seqloom.models.transformer_lm import TransformerLanguageModel
from seqloom.sources.running_text import RunningText
from seqloom.text.special import UNK_ID
from seqloom.text.words import word_spans


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
    able = [*READERS, "recurrent_lm", "transformer_lm"]
    raise UserError(f"a {kind} has no layers of words in their context; {', '.join(able)} have")


def word_in_contexts(
    language: RunningText,
    model: Any,
    word: str,
    texts: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
) -> list[np.ndarray]:
    """The vectors of one word in several texts, where it first stands in each: (texts, size) of each layer.

    Of several pieces of the word the mean is taken. `say` hears where the model does not know the word.

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
            say(f"text {number}: {text[start:end]!r} is unknown to the model; its vector is that of any unknown word")
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

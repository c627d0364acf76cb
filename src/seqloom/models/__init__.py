"""Architectures, one a file: its settings beside its module. A new one is a file and a line here."""

from __future__ import annotations

from typing import Any

from seqloom.models.bidirectional_lm import BidirectionalLanguageModel, BidirectionalLanguageModelSettings
from seqloom.models.feed_forward_lm import FeedForwardLanguageModel, FeedForwardLanguageModelSettings
from seqloom.models.masked_lm import MaskedLanguageModel, MaskedLanguageModelSettings
from seqloom.models.ngram_lm import NGramLanguageModel
from seqloom.models.recurrent_lm import RecurrentLanguageModel, RecurrentLanguageModelSettings
from seqloom.models.recurrent_translator import RecurrentTranslator, RecurrentTranslatorSettings
from seqloom.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelSettings
from seqloom.models.transformer_translator import TransformerTranslator, TransformerTranslatorSettings
from seqloom.ngrams.settings import NGramSettings
from seqloom.settings import ModelSettings

MODELS: dict[str, tuple[type[ModelSettings], Any]] = {
    "recurrent_translator": (RecurrentTranslatorSettings, RecurrentTranslator),
    "transformer_translator": (TransformerTranslatorSettings, TransformerTranslator),
}

LANGUAGE_MODELS: dict[str, tuple[type[ModelSettings], Any]] = {
    "bidirectional_lm": (BidirectionalLanguageModelSettings, BidirectionalLanguageModel),
    "feed_forward_lm": (FeedForwardLanguageModelSettings, FeedForwardLanguageModel),
    "masked_lm": (MaskedLanguageModelSettings, MaskedLanguageModel),
    "ngram_lm": (NGramSettings, NGramLanguageModel),  # counted, not fitted: see tasks/count_ngrams.py
    "recurrent_lm": (RecurrentLanguageModelSettings, RecurrentLanguageModel),
    "transformer_lm": (TransformerLanguageModelSettings, TransformerLanguageModel),
}

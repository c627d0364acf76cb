"""Architectures, one a file: its settings beside its module. A new one is a file and a line here."""

from __future__ import annotations

from typing import Any

from seqloom.models.bidirectional_lm import BidirectionalLanguageModel, BidirectionalLanguageModelSettings
from seqloom.models.classifier import Classifier, ClassifierSettings
from seqloom.models.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderSettings,
    RecurrentTranslatorSettings,
    TransformerTranslatorSettings,
)
from seqloom.models.encoder_forecaster import EncoderForecaster, EncoderForecasterSettings
from seqloom.models.feed_forward_lm import FeedForwardLanguageModel, FeedForwardLanguageModelSettings
from seqloom.models.hierarchical_classifier import HierarchicalClassifier, HierarchicalClassifierSettings
from seqloom.models.linear_forecaster import DLinear, DLinearSettings, LinearForecaster, LinearForecasterSettings
from seqloom.models.masked_lm import MaskedLanguageModel, MaskedLanguageModelSettings
from seqloom.models.ngram_lm import NGramLanguageModel
from seqloom.models.recurrent_lm import RecurrentLanguageModel, RecurrentLanguageModelSettings
from seqloom.models.regressor import Regressor, RegressorSettings
from seqloom.models.step_tagger import StepTagger, StepTaggerSettings
from seqloom.models.tagger import Tagger, TaggerSettings
from seqloom.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelSettings
from seqloom.ngrams.settings import NGramSettings
from seqloom.settings import ModelSettings

Models = dict[str, tuple[type[ModelSettings], Any]]

TRANSLATORS: Models = {
    "encoder_decoder": (EncoderDecoderSettings, EncoderDecoder),
    "recurrent_translator": (RecurrentTranslatorSettings, EncoderDecoder),
    "transformer_translator": (TransformerTranslatorSettings, EncoderDecoder),
}

LANGUAGE_MODELS: Models = {
    "feed_forward_lm": (FeedForwardLanguageModelSettings, FeedForwardLanguageModel),
    "ngram_lm": (NGramSettings, NGramLanguageModel),  # counted, not fitted
    "recurrent_lm": (RecurrentLanguageModelSettings, RecurrentLanguageModel),
    "transformer_lm": (TransformerLanguageModelSettings, TransformerLanguageModel),
}

BIDIRECTIONAL_MODELS: Models = {
    "bidirectional_lm": (BidirectionalLanguageModelSettings, BidirectionalLanguageModel),
}

MASKED_MODELS: Models = {
    "masked_lm": (MaskedLanguageModelSettings, MaskedLanguageModel),
}

READERS: Models = {**BIDIRECTIONAL_MODELS, **MASKED_MODELS}
"""What can read a text beside another model, and gives vectors of its words in their context."""

CLASSIFIERS: Models = {
    "classifier": (ClassifierSettings, Classifier),
    "hierarchical_classifier": (HierarchicalClassifierSettings, HierarchicalClassifier),
}

FORECASTERS: Models = {
    "dlinear": (DLinearSettings, DLinear),
    "encoder_forecaster": (EncoderForecasterSettings, EncoderForecaster),
    "linear_forecaster": (LinearForecasterSettings, LinearForecaster),
}

REGRESSORS: Models = {
    "regressor": (RegressorSettings, Regressor),
}

STEP_TAGGERS: Models = {
    "step_tagger": (StepTaggerSettings, StepTagger),
}

TAGGERS: Models = {
    "tagger": (TaggerSettings, Tagger),
}

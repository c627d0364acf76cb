"""Architectures, one a file: its settings beside its module. A new one is a file and a line here."""

from __future__ import annotations

from typing import Any

from seqloom.models.recurrent_translator import RecurrentTranslator, RecurrentTranslatorSettings
from seqloom.models.transformer_translator import TransformerTranslator, TransformerTranslatorSettings
from seqloom.settings import ModelSettings

MODELS: dict[str, tuple[type[ModelSettings], Any]] = {
    "recurrent_translator": (RecurrentTranslatorSettings, RecurrentTranslator),
    "transformer_translator": (TransformerTranslatorSettings, TransformerTranslator),
}

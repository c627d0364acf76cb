"""Architectures, one a file: its settings beside its module. A new one is a file and a line here."""

from __future__ import annotations

from seqloom.models.recurrent_translator import RecurrentTranslator, RecurrentTranslatorSettings

MODELS = {"recurrent_translator": (RecurrentTranslatorSettings, RecurrentTranslator)}

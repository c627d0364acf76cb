"""The one place where a folder becomes something that answers, on the engine it was written for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.folders import is_exported

if TYPE_CHECKING:
    from seqloom.export.translator import ExportedTranslator
    from seqloom.predictor import Predictor


def load(path: str | Path) -> Predictor | ExportedTranslator:
    """A model folder, the model of a run folder, or an exported model, which needs no torch."""
    if is_exported(path):
        from seqloom.export.translator import ExportedTranslator

        return ExportedTranslator.load(path)
    from seqloom.predictor import Predictor

    return Predictor.load(path)

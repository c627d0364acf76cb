"""Tasks, one a file: what goes in, what comes out, what is minimised, how it is judged. A new one is a line here."""

from __future__ import annotations

from typing import Any

from seqloom.tasks.model_language import Language, LanguageWork
from seqloom.tasks.translate import Translation, TranslationWork

TASKS: dict[str, tuple[Any, Any]] = {
    "model_language": (Language, LanguageWork),
    "translate": (Translation, TranslationWork),
}

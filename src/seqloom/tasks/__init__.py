"""Tasks, one a file: what goes in, what comes out, what is minimised, how it is judged. A new one is a line here."""

from __future__ import annotations

from seqloom.tasks.translate import Translation, TranslationWork

TASKS = {"translate": (Translation, TranslationWork)}

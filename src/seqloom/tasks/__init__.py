"""Tasks, one a file: what goes in, what comes out, what is minimised, how it is judged. A new one is a line here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.errors import UserError, one_of

if TYPE_CHECKING:
    from seqloom.tasks.base import Task

TASKS = {
    "classify": "seqloom.tasks.classify:Classification",
    "embed": "seqloom.tasks.embed:Embedding",
    "forecast": "seqloom.tasks.forecast:Forecasting",
    "model_bidirectional_language": "seqloom.tasks.model_bidirectional_language:BidirectionalLanguageModelling",
    "model_language": "seqloom.tasks.model_language:LanguageModelling",
    "model_masked_language": "seqloom.tasks.model_masked_language:MaskedLanguageModelling",
    "regress": "seqloom.tasks.regress:Regression",
    "tag": "seqloom.tasks.tag:Tagging",
    "tag_steps": "seqloom.tasks.tag_steps:StepTagging",
    "translate": "seqloom.tasks.translate:Translation",
}
"""Where each task's class is; imported when it is used, since word vectors do without torch."""


FILES = {".arpa": "model_language", ".arpa.gz": "model_language"}
"""Which task a file of another program is a model of, by its ending; any other file holds word vectors."""


def task_of_file(path: Path) -> str:
    """The name of the task that opens a file."""
    return next((task for ending, task in FILES.items() if path.name.endswith(ending)), "embed")


def find_task(name: Any, origin: str = "") -> type[Task]:
    """The class of a task by its name in recipes; `origin` is the file that names it."""
    if not isinstance(name, str) or name not in TASKS:
        raise UserError((f"{origin}: " if origin else "") + one_of("task", name, TASKS))
    module, _, kind = TASKS[name].partition(":")
    found: type[Task] = getattr(import_module(module), kind)
    return found

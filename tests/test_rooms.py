"""Data flows one way: a room imports only from rooms below its level. Kept true by reading every import statement."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqloom
from seqloom.tasks import TASKS

PACKAGE = Path(seqloom.__file__).parent

# A room is a folder or a module; the longest name that fits a module is its room. A module that others may use without
# the rest of its folder has a line of its own: settings must be readable below the code they steer.
LEVELS = {
    "errors": 0,
    "machine": 0,
    "parallel": 0,
    "decoding.lengths": 0,
    "export.supported": 0,
    "training.progress": 0,
    "layout": 0,
    "settings": 1,
    "files": 1,
    "answers": 1,
    "arrays": 2,
    "folders": 2,
    "corpus": 2,
    "text": 2,
    "decoding.settings": 2,
    "training.settings": 2,
    "decoding.known": 3,
    "batches": 3,
    "kernels": 3,
    "vectors": 4,  # may use kernels and batches
    "ngrams": 4,
    "nn": 4,
    "corpus.examination": 5,  # counts what word vectors would be learned from
    "evaluation": 5,
    "models": 5,
    "losses": 5,
    "sources": 6,
    "targets": 6,  # what is minimised is the target's, how answers are searched for is not
    "decoding": 6,
    "inspection": 6,
    "export.checked": 6,  # answers without torch, as the next
    "export.engine": 6,
    "export.search": 7,
    "export.translator": 8,
    "training": 7,  # below tasks: the loop knows no task
    "tasks": 8,
    "recipe": 9,
    "model": 10,
    "extending": 10,
    "experiment": 11,
    "export": 12,
    "serving": 12,
    "sklearn": 12,
    "studio": 13,
    "cli": 14,
    "__main__": 15,
}
WITHOUT_TORCH = (
    "errors",
    "settings",
    "files",
    "folders",
    "answers",
    "machine",
    "corpus",
    "corpus.examination",
    "text",
    "vectors",
    "ngrams",
    "decoding.lengths",
    "decoding.known",
    "decoding.settings",
    "evaluation",
    "inspection",
    "training.progress",
    "training.settings",
    "export.checked",
    "export.engine",
    "export.search",
    "export.supported",
    "export.translator",
)

# What goes through the public door, because it begins what stands above it.
DOOR = {("model", "train")}  # Model.continue_training

# Strings that read like the name of a task and are none, or of a class that stands for a task on another engine.
NOT_A_TASK = {
    ("cli.main", "embed"): "a verb",
    ("cli.embed", "embed"): "a verb",
    ("inspection.forecast", "forecast"): "a view",
    ("nn.positions", "embed"): "a method",
    ("inspection.positions", "embed"): "a method",
    ("settings", "tag"): "pydantic's word for the kind of a section",
    ("export.translator", "translate"): "the task itself, without torch",
}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"  # the door: it opens the top rooms when asked to, and nothing enters through it
}


def room_of(module: str) -> str:
    """`training.loop` -> `training`; `training.settings` -> itself."""
    parts = module.split(".")
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    found = next((name for name in names if name in LEVELS), None)
    assert found is not None, f"seqloom.{module} is in no room: add a line to LEVELS"
    return found


def imports(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["seqloom", *module.split(".")]
                here = here[: len(here) - node.level + is_package]
                base = ".".join([*here, base] if base else here)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def imported_rooms(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    for line, name in imports(tree, module, is_package):
        if name.startswith("seqloom."):
            yield line, room_of(name.removeprefix("seqloom."))


def parsed(module: str) -> ast.AST:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_room_imports_only_from_lower_levels(module: str) -> None:
    own = room_of(module)
    is_package = MODULES[module].name == "__init__.py"
    wrong = [
        f"line {line}: {own} (level {LEVELS[own]}) imports {room} (level {LEVELS[room]})"
        for line, room in imported_rooms(parsed(module), module, is_package)
        if room != own and LEVELS[room] >= LEVELS[own]
    ]
    assert wrong == []


@pytest.mark.parametrize("module", sorted(m for m in MODULES if room_of(m) in WITHOUT_TORCH))
def test_rooms_that_need_no_torch_do_not_import_it(module: str) -> None:
    found = {name for _, name in imports(parsed(module), module)}
    assert not [name for name in found if name.startswith(("torch", "safetensors.torch"))]
    heavy = {"training", "tasks", "models", "nn", "batches", "losses", "decoding"}
    assert not heavy & {room for _, room in imported_rooms(parsed(module), module)}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("seqloom", ("torch", "pydantic", "numpy")),
        ("seqloom.model", ("torch", "pydantic")),
        ("seqloom.tasks", ("torch", "pydantic")),
        ("seqloom.export.translator", ("torch", "pydantic")),
        ("seqloom.recipe", ("torch",)),
        ("seqloom.tasks.base", ("torch",)),
        ("seqloom.tasks.embed", ("torch",)),
        ("seqloom.experiment", ("torch",)),
    ],
)
def test_what_is_imported_at_once(module: str, absent: tuple[str, ...]) -> None:
    """With all that it imports itself: a word is answered, and word vectors are trained, without torch."""
    code = f"import {module}, sys; print(*({set(absent)!r} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.mark.parametrize("module", sorted(m for m in MODULES if room_of(m) != "tasks"))
def test_nobody_outside_tasks_knows_a_task_by_name(module: str) -> None:
    """What others must know of a task, the task declares."""
    found = [
        f"line {node.lineno}: {node.value!r}"
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in TASKS
        and (module, node.value) not in NOT_A_TASK
    ]
    assert found == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_of_the_package_itself_only_the_version_is_used(module: str) -> None:
    tree = parsed(module)
    if any(name == "seqloom" for _, name in imports(tree, module)):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "seqloom":
                assert node.attr == "__version__" or (module, node.attr) in DOOR, f"line {node.lineno}"


def test_the_reader_of_imports_sees_every_form() -> None:
    tree = ast.parse(
        "import seqloom.nn.cells\n"
        "from seqloom import losses\n"
        "from seqloom.training import settings\n"
        "from seqloom.training import loop\n"
        "if TYPE_CHECKING:\n    from seqloom.text.special import EOS\n"
        "def f():\n    from ..decoding import beam\n"
        "from . import trace\n"
    )
    found = sorted(imported_rooms(tree, "inspection.gates"))
    assert found == [
        (1, "nn"),
        (2, "losses"),
        (3, "training.settings"),
        (4, "training"),
        (6, "text"),
        (8, "decoding"),
        (9, "inspection"),
    ]
    assert list(imported_rooms(ast.parse("from .trace import x"), "inspection", is_package=True)) == [(1, "inspection")]
    with pytest.raises(AssertionError, match="is in no room"):
        room_of("attic.box")

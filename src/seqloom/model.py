"""A trained model with everything that turns raw input into an answer: one class for every task and engine.

The command line, Python, a server and a page all open models here. Nothing heavy is imported before it is needed: one
sentence on an exported model is answered without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.errors import UserError, one_of
from seqloom.folders import find_model, is_exported, name_of, read_config

if TYPE_CHECKING:
    from seqloom.answers import Generated
    from seqloom.evaluation.figures import Report
    from seqloom.evaluation.language import ScoredLine
    from seqloom.inspection.trace import Trace
    from seqloom.inspection.view import Picture
    from seqloom.tasks.base import Recipe


class Model:
    """What a folder became: the task knows how to answer, the network is what it asks."""

    def __init__(
        self, folder: Path, task: Any, network: Any, options: Any, config: Mapping[str, Any] | None = None
    ) -> None:
        """`options` are what a user may choose when the model answers; `config` is the folder's description."""
        self.folder, self.task, self.network, self.options = folder, task, network, options
        self.config = dict(config or {})

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Open a model folder, the model of a run folder, an exported model, or a file of another program.

        No code of the folder is executed.
        """
        if is_exported(path):
            from seqloom.export.translator import open_exported

            return cls(*open_exported(path))
        from seqloom.tasks import find_task, task_of_file

        file = Path(path).expanduser()
        if file.is_file():
            kind = find_task(task_of_file(file))
            task, network = kind.open_file(file)
            return cls(file, task, network, kind.Options())
        from seqloom.settings import validated

        folder = find_model(path)
        config, origin = read_config(folder), f"{folder}/config.json"
        kind, about = find_task(config.get("task"), origin), config["model"]
        architecture = about.get("kind")
        if not isinstance(architecture, str) or architecture not in kind.models:
            raise UserError(f"{origin}: " + one_of("model.kind", architecture, kind.models))
        settings = validated(kind.models[architecture][0], about, origin)
        options = validated(kind.Options, config.get("options", {}), origin)
        task = kind.load(folder, config)
        return cls(folder, task, task.load_model(settings, folder), options, config)

    def __repr__(self) -> str:
        return f"<{self.task.kind} {self.name}: {self.size()}>"

    @property
    def name(self) -> str:
        """The folder's name, or that of the run it lies in."""
        return name_of(self.folder)

    def size(self) -> str:
        """How large it is, in words."""
        return str(self.task.size(self.network))

    def can(self, verb: str) -> bool:
        """Whether it can predict, evaluate, trace, generate or score."""
        return verb in self.task.verbs

    def require(self, verb: str) -> None:
        """Say what to do instead where it cannot."""
        if not self.can(verb):
            raise self.task.refusal(verb, self.folder)

    # -- answering ---------------------------------------------------------------------------------------------------

    def __call__(self, given: Any, **options: Any) -> Any:
        """Answer one input; keyword arguments override the model's options, such as `beam_size=1`."""
        return self.predict([given], **options)[0]

    def predict(
        self, inputs: Sequence[Any], progress: Callable[[int], None] | None = None, **options: Any
    ) -> list[Any]:
        """Answer many inputs; the order is kept. `progress` hears how many are done."""
        self.require("predict")
        found = dict(self.task.predict(self.network, inputs, self._options(options), progress))
        return [found[index] for index in range(len(inputs))]

    def evaluate(
        self,
        data: Any,
        name: str = "test",
        progress: Callable[[float, str], None] | None = None,
        how: Mapping[str, Any] | None = None,
        *,
        baselines: bool = False,
        **options: Any,
    ) -> Report:
        """How good it is on a corpus.

        Args:
            data: a corpus, as `corpora` gives them, or examples.
            name: the heading of the report.
            progress: hears the share that is done, and a few figures.
            how: choices about the counting, such as `lowercase`, where the task has them.
            baselines: beside what simple methods reach that learned from the same data, where the task knows any.
            options: the model's options to change.
        """
        self.require("evaluate")
        for choice in how or {}:
            if choice not in self.task.report_options:
                raise UserError(f"{self.folder}: an evaluation of {self.task.kind} takes no {choice!r}; leave it out")
        report = self.task.evaluate(self.network, data, name, self._options(options), progress, **(how or {}))
        recipe = self.recipe() if baselines else None
        found: Report = report if recipe is None else report.beside(self.task.baselines(recipe, data))
        return found

    def trace(self, given: Any, target: Any = None, **options: Any) -> Trace:
        """What it shows while it works on an input; `target`: led along this answer instead of its own."""
        self.require("trace")
        found: Trace = self.task.trace(self.network, given, target, self._options(options))
        return found

    def generate(
        self,
        prompt: str = "",
        *,
        count: int = 1,
        callback: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> list[Generated]:
        """Go on from a text, several times over; `callback` hears a number and a symbol whenever one is chosen."""
        self.require("generate")
        found: list[Generated] = self.task.generate(
            self.network, prompt, self._options(options), count=count, callback=callback
        )
        return found

    def score(self, lines: Sequence[str], progress: Callable[[int], None] | None = None) -> list[ScoredLine]:
        """How likely each line is, read by itself."""
        self.require("score")
        found: list[ScoredLine] = self.task.score(self.network, lines, progress)
        return found

    def look(
        self, view: str, *inputs: str, progress: Callable[[float, str], None] | None = None, **options: Any
    ) -> Picture:
        """A picture of what it does, such as `look("attention", "the green witch arrived")`."""
        from seqloom.inspection.views import show

        return show(self, view, inputs, options, progress)

    def _options(self, changes: Mapping[str, Any]) -> Any:
        known = getattr(type(self.options), "model_fields", changes)
        unknown = [name for name in changes if name not in known]
        if unknown and not known:
            raise UserError(f"{self.folder}: {self.task.kind} takes no options when it answers; got {unknown[0]}")
        return self.options.overridden(changes) if changes else self.options

    # -- where it comes from -----------------------------------------------------------------------------------------

    def recipe(self) -> Recipe | None:
        """The recipe of the run that it lies in; None for a model folder by itself."""
        path = self.folder.expanduser().resolve().parent / "recipe.yaml"
        if not path.is_file():
            return None
        from seqloom.recipe import load_recipe

        return load_recipe(path)

    def corpora(
        self, data: Sequence[str] = (), test: str | None = None, *, default: Literal["test", "valid"] = "test"
    ) -> dict[str, Any]:
        """Name -> corpus: what `data` names, else the corpora of the run's recipe: `test`, `all`, or the usual ones."""
        if data:
            if test is not None:
                raise UserError("--test names a corpus of the recipe; it does not go together with --data")
            return dict(self.task.corpora(data, self.recipe()))
        recipe = self.recipe()
        if recipe is None:
            raise UserError(f"{self.folder}: a model folder has no data of its own; give --data FILE")
        found = dict(recipe.data.test)
        valid = recipe.data.corpora().get("valid")
        if test is None and valid is not None and (default == "valid" or not found):
            return {"valid": valid}
        if not found:
            raise UserError(f"{self.folder}: its recipe names no data to measure it on; give --data FILE")
        if test is not None and test not in (*found, "all"):
            raise UserError(one_of("--test", test, [*found, "all"]))
        if test == "all" or (test is None and self.task.tests == "all"):
            return found
        name = test or next(iter(found))
        return {name: found[name]}

    def fresh(self) -> Any:
        """The network as its run began: the same settings, the same seed."""
        recipe = self.recipe()
        if recipe is None:
            raise UserError(f"{self.folder}: a model folder does not know how it began; give its run folder")
        return self.task.untrained(recipe)


def load(path: str | Path) -> Model:
    """Open a model: a model or run folder, an exported folder, an ARPA file of n-grams, a file of word vectors."""
    return Model.load(path)

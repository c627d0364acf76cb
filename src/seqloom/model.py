"""A trained model with everything that turns raw input into an answer: one class for every task and engine.

The command line, Python, a server and a page all open models here. Nothing heavy is imported before it is needed: one
sentence on an exported model is answered without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import seqloom
from seqloom.errors import UserError, one_of
from seqloom.folders import find_model, is_exported, name_of, read_config

if TYPE_CHECKING:
    from seqloom.answers import AnyAnswer, Generated
    from seqloom.evaluation.figures import Report
    from seqloom.evaluation.language import ScoredLine
    from seqloom.inspection.trace import Trace
    from seqloom.inspection.view import Picture
    from seqloom.tasks.base import Recipe

ELSEWHERE = {
    "num_beams": ("beam_size",),
    "beam_width": ("beam_size",),
    "max_new_tokens": ("max_length",),
    "max_tokens": ("max_length",),
    "num_return_sequences": ("count", "n_best"),
    "top_n": ("n_best", "count"),
    "topn": ("count", "n_best"),
    "nbest": ("n_best",),
    "do_sample": ("method='sample'",),
}
"""What other libraries call an option, and what it is called here: the first of these that a model has."""


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

    @classmethod
    def at_checkpoint(cls, run: str | Path, which: str) -> Model:
        """The model of a run, finished or not, with the weights of a checkpoint: `best` or a number of steps."""
        from seqloom.recipe import load_recipe
        from seqloom.tasks import find_task

        run = Path(run).expanduser()
        if not (run / "recipe.yaml").is_file():
            raise UserError(f"{run}: not a run folder; only a run has checkpoints")
        kept = run / "checkpoints"
        steps = {str(int(path.name[5:])): path for path in sorted(kept.glob("step-*[0-9]"))}
        files = {step: path / "model.safetensors" for step, path in steps.items()}
        if (kept / "best.safetensors").is_file():
            files = {"best": kept / "best.safetensors", **files}
        if which not in files:
            there = f"it has {', '.join(files)}" if files else "it has none: no validation and no checkpoint came yet"
            raise UserError(f"{run}: there is no checkpoint {which!r}; {there}")
        recipe = load_recipe(run / "recipe.yaml")
        kind = find_task(recipe.task)
        task = kind.kept(run / "text")
        network = task.load_weights(recipe.model, files[which])
        config = {"task": recipe.task, "model": recipe.model.model_dump(mode="json")}
        return cls(run / "model", task, network, recipe.options(), config)

    def __repr__(self) -> str:
        return f"<{self.task.kind} {self.name}: {self.size()}>"

    def _repr_html_(self) -> str:
        """Its card, for a notebook."""
        import html

        path = self.folder / "README.md"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        cells = [
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("|")
        ]
        known = [(cell[0], " | ".join(cell[1:])) for cell in cells if cell[0].strip("-")]
        rows = [("name", self.name), *known, ("can", ", ".join(sorted(self.task.verbs)))]
        title = next((line.removeprefix("# ") for line in lines if line.startswith("# ")), self.name)
        left = ' style="text-align:left;vertical-align:top"'
        body = "".join(
            f"<tr><th{left}>{html.escape(name)}</th><td{left}>{html.escape(text)}</td></tr>" for name, text in rows
        )
        return f"<table><caption{left}><b>{html.escape(title)}</b></caption>{body}</table>"

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

    # -- what the network offers, such as the words of word vectors --------------------------------------------------

    if not TYPE_CHECKING:  # whoever checks types should hear of a name that no model has

        def __getattr__(self, name: str) -> Any:
            if "task" not in vars(self):  # while it is copied or unpickled
                raise AttributeError(name)
            if name in self.task.offers:
                return getattr(self.network, name)
            raise AttributeError(f"{self.task.kind}: a model of this kind has no {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.task.offers})

    def __getitem__(self, key: Any) -> Any:
        return self._offered("__getitem__", "is not looked up in by [ ]; ask it as model(input)")(key)

    def __contains__(self, key: object) -> bool:
        return bool(self._offered("__contains__", "holds nothing that could be asked for by 'in'")(key))

    def __len__(self) -> int:
        return int(self._offered("__len__", "has no length; model.size() says how large it is")())

    def __bool__(self) -> bool:
        return True

    __iter__ = None  # without it, Python would try numbers as keys

    def _offered(self, name: str, otherwise: str) -> Callable[..., Any]:
        if name not in self.task.offers:
            raise TypeError(f"{self.task.kind} {otherwise}")
        found: Callable[..., Any] = getattr(self.network, name)
        return found

    # -- its parts ---------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of its text, or where the two sides have one each a mapping by side."""
        found = self.task.tokenizers()
        if not found:
            raise UserError(f"{self.folder}: {self.task.kind}, which has no tokenizer of its own")
        first = next(iter(found.values()))
        return first if all(one is first for one in found.values()) else found

    def save(self, folder: str | Path) -> Path:
        """Write it as a model folder, complete or not at all; what is there already is never overwritten."""
        place = Path(folder).expanduser()
        if not self.config.get("model") or not hasattr(self.task, "write"):
            raise UserError(f"{self.folder}: {self.task.kind} that is no model folder of ours; copy it as it is")
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            raise UserError(f"{place}: something is there already; give another folder")
        card = self.folder / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else f"# {self!r}\n"
        self.task.write(self.network, place, self.config, text)
        return place

    # -- answering ---------------------------------------------------------------------------------------------------

    @overload
    def __call__(self, inputs: str, **options: Any) -> AnyAnswer: ...

    @overload
    def __call__(self, inputs: Sequence[str], **options: Any) -> list[AnyAnswer]: ...

    @overload
    def __call__(self, inputs: Any, **options: Any) -> Any: ...

    def __call__(self, inputs: Any, **options: Any) -> Any:
        """`predict`, as it is asked for most."""
        return self.predict(inputs, **options)

    @overload
    def predict(self, inputs: str, progress: Callable[[int], None] | None = None, **options: Any) -> AnyAnswer: ...

    @overload
    def predict(
        self, inputs: Sequence[str], progress: Callable[[int], None] | None = None, **options: Any
    ) -> list[AnyAnswer]: ...

    @overload
    def predict(self, inputs: Any, progress: Callable[[int], None] | None = None, **options: Any) -> Any: ...

    def predict(self, inputs: Any, progress: Callable[[int], None] | None = None, **options: Any) -> Any:
        """Answer one input, or many.

        Args:
            inputs: one input (of most models a text), which gets one answer; or several, such as a list of texts, which
                get a list of answers in the same order.
            progress: hears how many are done.
            options: the model's options to change, such as `beam_size=1`.
        """
        self.require("predict")
        if self.task.is_input(inputs):
            return self._answers([inputs], progress, options)[0]
        one = self.task.one_input
        if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | bytearray | Mapping | Set):
            raise UserError(f"predict takes {one}, or a list with several; got {_shown(inputs)}")
        is_input = self.task.is_input
        several = [
            tuple(one) if isinstance(one, list) and not is_input(one) and is_input(tuple(one)) else one
            for one in inputs
        ]
        for number, given in enumerate(several, 1):
            if not self.task.is_input(given):
                raise UserError(f"predict: input {number} of {len(several)} must be {one}; got {_shown(given)}")
        return self._answers(several, progress, options)

    def _answers(self, inputs: list[Any], progress: Callable[[int], None] | None, options: Mapping[str, Any]) -> Any:
        found = dict(self.task.predict(self.network, inputs, self._options(options), progress))
        return [found[index] for index in range(len(inputs))]

    def evaluate(
        self,
        data: Any = "test",
        targets: Sequence[Any] | None = None,
        *,
        name: str | None = None,
        progress: Callable[[float, str], None] | None = None,
        how: Mapping[str, Any] | None = None,
        baselines: bool = False,
        **options: Any,
    ) -> Report:
        """How good it is on a corpus.

        Args:
            data: a corpus of the run's recipe by its name ("train", "valid", "test" …); a file, or a list of files that
                belong together; inputs, with their `targets` beside; a list of (input, target); a corpus as `corpora`
                gives them.
            targets: what should be answered to each of the inputs.
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
        called, corpus = self._corpus(data, targets)
        changed = self._options(options)
        report = self.task.evaluate(self.network, corpus, name or called, changed, progress, **(how or {}))
        recipe = self.recipe() if baselines else None
        found: Report = report if recipe is None else report.beside(self.task.baselines(recipe, corpus))
        return found

    def _corpus(self, data: Any, targets: Sequence[Any] | None) -> tuple[str, Any]:
        """What `evaluate` measures on, and a name for it."""
        from seqloom.settings import Settings

        if targets is not None:
            return "test", self.task.examples(data, targets)
        if isinstance(data, Settings):
            return "test", data
        if isinstance(data, str | Path):
            return self._named(str(data))
        if isinstance(data, list | tuple) and data and all(isinstance(one, str | Path) for one in data):
            if not any(":" in str(path) or Path(path).expanduser().exists() for path in data):
                raise UserError(
                    f"evaluate: {str(data[0])!r} is no file that is there; inputs need their targets beside"
                )
            return self._in_files([str(one) for one in data])
        if isinstance(data, list | tuple) and any(type(one) in (tuple, list) for one in data):
            if any(not isinstance(one, tuple | list) or len(one) != 2 for one in data):
                raise UserError("of a list of pairs, each must be (input, target)")
            return "test", self.task.examples([one[0] for one in data], [one[1] for one in data])
        if isinstance(data, list | tuple) and not any(isinstance(one, _PLAIN) for one in data):
            return "test", data  # examples that have a class of their own are ready
        raise UserError(
            "evaluate takes the name of a corpus of the recipe, files, inputs and targets, or a list of pairs; got "
            + _shown(data)
        )

    def _named(self, name: str) -> tuple[str, Any]:
        """A corpus of the recipe, or a file."""
        recipe = self.recipe()
        known = {} if recipe is None else recipe.data.corpora()
        if name in known:
            return name, known[name]
        if ":" not in name and not Path(name).expanduser().exists():
            from seqloom.errors import did_you_mean

            corpora = f"a corpus of the recipe ({', '.join(known)}) nor " if known else ""
            none = "" if known else " (and a model folder by itself has no data of its own)"
            raise UserError(
                f"evaluate: {name!r} is {'neither ' if corpora else 'not '}{corpora}a file that is there{none}"
                + did_you_mean(name, known)
            )
        return self._in_files([name])

    def _in_files(self, paths: list[str]) -> tuple[str, Any]:
        found = self.task.corpora(paths, self.recipe())
        if len(found) != 1:
            raise UserError(f"evaluate measures on one corpus at a time; got {', '.join(map(repr, paths))}")
        [(name, corpus)] = found.items()
        return (Path(paths[0]).stem if name == "data" else name), corpus

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
            self.network, prompt, self._options(options, ["count"]), count=count, callback=callback
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

    def _options(self, changes: Mapping[str, Any], named: Sequence[str] = ()) -> Any:
        """The model's options with some changed; `named` are those that the caller has as arguments of its own."""
        if not changes:
            return self.options
        known = getattr(type(self.options), "model_fields", vars(self.options))
        for name in changes:
            if name not in known:
                here = next((o for o in ELSEWHERE.get(name, ()) if o.split("=")[0] in (*known, *named)), None)
                if here is not None:
                    raise UserError(f"{name} is called {here} here")
                if not known:
                    raise UserError(f"{self.folder}: {self.task.kind} takes no options when it answers; got {name}")
        return self.options.overridden(changes)

    # -- going on ----------------------------------------------------------------------------------------------------

    def continue_training(self, more: Any, run: str | Path | None = None, *, overrides: Sequence[str] = ()) -> Model:
        """Train on with other data: a new run that starts from these weights, with the same vocabulary and settings.

        Args:
            more: what to train on: a file, or files that belong together; a list of (input, target), which is kept in
                the run's folder; or the corpora of the section `data` that change, such as {"train": …, "valid": …}.
            run: folder of the new run; by default that of this one with `-continued`.
            overrides: settings to change, such as "training.learning_rate=1e-4".
        """
        recipe = self.recipe()
        if recipe is None or not hasattr(self.task, "write"):
            raise UserError(f"{self.folder}: training goes on from a run folder, which knows its recipe")
        here = self.folder.expanduser().resolve().parent
        place = Path(run or here.with_name(f"{here.name}-continued"))
        more = self._training_data(more, place)
        values = recipe.model_dump(mode="json")
        data = {name: getattr(one, "model_dump", lambda one=one, **_: one)(mode="json") for name, one in more.items()}
        values |= {"data": {**values["data"], **data}, "start_from": str(here)}
        return seqloom.train(values, place, overrides=overrides)

    def _training_data(self, more: Any, run: Path) -> Mapping[str, Any]:
        """The corpora of a recipe that somebody wants others for; a list in memory becomes a file of the run."""
        files = [more] if isinstance(more, str | Path) else more
        if isinstance(files, list | tuple) and files and all(isinstance(one, str | Path) for one in files):
            return {"train": self._in_files([str(one) for one in files])[1]}
        if isinstance(more, list | tuple) and more and all(isinstance(one, tuple | list) for one in more):
            from seqloom.corpus.examples import write_pairs

            return {"train": {"file": str(write_pairs(run, self._corpus(more, None)[1]))}}
        if isinstance(more, Mapping):
            return more
        raise UserError(
            "continue_training takes files, a list of (input, target), or corpora of the section data by name; got "
            + _shown(more)
        )

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


_PLAIN = (str, bytes, int, float, type(None), Mapping, Set)


def _shown(value: Any) -> str:
    """A value in a sentence, with its type."""
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:39] + '…'} ({type(value).__name__})"


def load(path: str | Path) -> Model:
    """Open a model: a model or run folder, an exported folder, an ARPA file of n-grams, a file of word vectors."""
    return Model.load(path)

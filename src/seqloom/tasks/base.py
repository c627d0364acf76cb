"""What a task is: all that the verbs, the server, a comparison or a model card must know of it. No torch.

A task is a class with a line in `TASKS`. Its class attributes are data for everybody else; an instance holds what was
learned from the training data before step 1 (tokenizers, labels) and does the work. `Network` (network.py) adds what
tasks share whose models the training loop fits; `Supervised` (supervised.py) what those share that learn from examples
of a source and a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, SerializeAsAny, model_validator

from seqloom.corpus.plain import PlainTextSettings
from seqloom.corpus.readers import CorpusSettings
from seqloom.errors import UserError
from seqloom.evaluation.figures import Metric, Report
from seqloom.files import folder_written_aside, read_json, write_json
from seqloom.settings import ModelSettings, Settings

DEFAULT_TASK = "translate"  # of a recipe that names none
KEPT = "task.json"  # beside what was learned, in a run's folder

Say = Callable[[str], None]
Progress = Callable[[float, str], None]  # the share that is done, and a few figures


# -- recipes ----------------------------------------------------------------------------------------------------------


class Recipe(Settings):
    """Everything a run needs. What its sections say depends on the task."""

    description: str = ""
    task: str = DEFAULT_TASK
    seed: int = Field(1, ge=0, lt=2**63)
    data: Any
    text: Any = None
    model: SerializeAsAny[ModelSettings]
    training: Any = None

    def contradictions(self) -> list[str]:
        """What no section can see by itself, as sentences."""
        return []

    def options(self) -> Settings:
        """What the finished model may be asked to do otherwise: its settings when it answers."""
        return Settings()


def one_or_several(values: Any, is_one: Callable[[Mapping[str, Any]], bool]) -> Any:
    """`test` may be one corpus or several by name."""
    test = values.get("test") if isinstance(values, Mapping) else None
    return {**values, "test": {"test": test}} if isinstance(test, Mapping) and test and is_one(test) else values


def by_name(paths: Sequence[str], name: Callable[[str], str]) -> dict[str, str]:
    """Paths by a short name each; by all of the path where two would have the same."""
    short = [name(path) for path in paths]
    return {path if short.count(one) > 1 else one: path for one, path in zip(short, paths, strict=True)}


class PairDataSettings(Settings):
    """Where examples of a source and a target come from. `test` is one corpus or several by name."""

    train: CorpusSettings
    valid: CorpusSettings
    test: dict[str, CorpusSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _test(cls, values: Any) -> Any:
        return one_or_several(values, lambda test: not all(isinstance(v, Mapping | Settings) for v in test.values()))

    def corpora(self) -> dict[str, Any]:
        return {"train": self.train, "valid": self.valid, **self.test}


class TextDataSettings(Settings):
    """Running text to learn from, and to be measured on. `test` is one text or several by name."""

    train: PlainTextSettings
    valid: PlainTextSettings
    test: dict[str, PlainTextSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _test(cls, values: Any) -> Any:
        return one_or_several(values, lambda test: isinstance(test.get("text"), str))

    def corpora(self) -> dict[str, PlainTextSettings]:
        return {"train": self.train, "valid": self.valid, **self.test}


# -- tasks ------------------------------------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """A model that was just made: itself, how large it is, and what its card says of how it came about."""

    model: Any
    size: str
    card: dict[str, str]
    seconds: float


class Examined(NamedTuple):
    """What the data doctor found: for people, for programs, and whether training may begin."""

    text: str
    values: Any
    ok: bool = True


class Task:
    """What goes in, what comes out, what is minimised, how it is judged, and what all that is called."""

    name: ClassVar[str]
    about: ClassVar[str]
    Recipe: ClassVar[type[Recipe]]
    models: ClassVar[Mapping[str, tuple[type[ModelSettings], Any]]]
    """Its architectures: settings, and what builds one."""
    Options: ClassVar[type[Settings]] = Settings
    """What a user may choose when the model answers; kept in the model folder."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """What models are compared by, the most telling first."""
    drawn: ClassVar[tuple[str, ...]] = ()
    """What can be followed through a training, the most telling first."""
    per_symbol: ClassVar[frozenset[str]] = frozenset()
    """Figures that are means over symbols: models that cut text into other symbols cannot be compared by them."""
    verbs: ClassVar[frozenset[str]] = frozenset()
    """What its models can do: predict, evaluate, trace, generate, score, neighbours."""
    instead: ClassVar[str] = ""
    """What to ask for where a verb is not possible: a command with {model}."""
    tests: ClassVar[str] = "first"
    """Which test corpora of a recipe are measured on unless one is named: the first, or all."""
    report_options: ClassVar[frozenset[str]] = frozenset()
    """What an evaluation takes besides data: lowercase, tokenized, decoding."""
    kind: ClassVar[str] = "a model"
    """What one of its models is called in a sentence."""

    offers: ClassVar[frozenset[str]] = frozenset()
    """What a model offers in Python beside the verbs: names of attributes and methods of its network."""
    one_input: str = "a text"
    """What one input is, in a sentence."""

    def is_input(self, value: Any) -> bool:
        """Whether a value is one input, and not several."""
        return isinstance(value, str)

    # -- data --------------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        """What `--data` names, as corpora by name; a recipe says how its own data is laid out."""
        raise NotImplementedError

    def examples(self, inputs: Any, targets: Any) -> Any:
        """Inputs and what should be answered to each, as a corpus to be measured on."""
        raise UserError(f"{self.kind}: measured on files, not on inputs and targets")

    @classmethod
    def describe(cls, corpus: Any) -> str:
        """A short name of a corpus for people."""
        raise NotImplementedError

    @classmethod
    def fingerprint(cls, corpus: Any) -> str:
        """A hash of what a corpus holds."""
        raise NotImplementedError

    @classmethod
    def read(cls, corpus: Any) -> Any:
        """A corpus as `evaluate` takes it: read once, where several models are measured on the same examples."""
        return corpus

    @classmethod
    def examine(cls, recipe: Any, say: Say, **limits: Any) -> Examined:
        """Find problems in a recipe's data."""
        raise NotImplementedError

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: Any, say: Say) -> Self:
        """What must be known of the training data before step 1."""
        raise NotImplementedError

    @classmethod
    def check_start(cls, recipe: Any) -> None:
        """Refuse a recipe that starts from a model it does not fit, before anything is thrown away."""

    @classmethod
    def begin(cls, recipe: Any, say: Say) -> Self:
        """What a run begins with: what is learned, or where the recipe starts from a model, what that knows."""
        return cls.learn(recipe, say)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write what was learned; what is given back goes into `config.json`."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        """What `save` wrote, and what it gave back."""
        raise NotImplementedError

    def keep(self, folder: Path) -> None:
        """`save`, for a run that has no model yet."""
        with folder_written_aside(folder) as aside:
            write_json(aside / KEPT, self.save(aside))

    @classmethod
    def kept(cls, folder: Path) -> Self:
        """What `keep` wrote."""
        if not (folder / KEPT).is_file():
            raise UserError(f"{folder.parent}: begun by an earlier version of seqloom; --restart trains it again")
        return cls.load(folder, read_json(folder / KEPT))

    def fit(self, recipe: Any, run: Path, *, resume: bool, ranks: Any, say: Say) -> Fitted:
        """Make the model; `ranks` are the processes that train it together, None where there is one."""
        raise NotImplementedError

    def refuse_ranks(self, ranks: Any) -> None:
        """What is not trained by several processes says so."""
        if ranks is not None:
            raise UserError(f"what this recipe trains ({self.kind}) one process trains; start it without a launcher")

    def rehearse(self, recipe: Any, say: Say) -> dict[str, str]:
        """What making the model would take, in words by name; nothing is kept."""
        return {"vocabulary": self.vocabulary(), "time": "not known: this model is not fitted step by step"}

    def vocabulary(self) -> str:
        """How large what was learned is, for the card."""
        raise NotImplementedError

    def save_model(self, model: Any, folder: Path) -> None:
        raise NotImplementedError

    def load_model(self, settings: Any, folder: Path) -> Any:
        raise NotImplementedError

    def load_weights(self, settings: Any, file: Path) -> Any:
        """The model with the weights of a checkpoint."""
        raise UserError(f"{file}: {self.kind} keep no checkpoints that could be looked at")

    def write(self, model: Any, folder: Path, config: Mapping[str, Any], card: str) -> None:
        """A model folder: all that turns raw input into an answer, and nothing that executes."""
        with folder_written_aside(folder) as aside:
            learned = self.save(aside)
            self.save_model(model, aside)
            write_json(aside / "config.json", {**config, **learned})
            (aside / "README.md").write_text(card, encoding="utf-8")

    def tokenizers(self) -> Mapping[str, Any]:
        """Its tokenizers by side."""
        return {}

    @classmethod
    def open_file(cls, path: Path) -> tuple[Self, Any]:
        """The task and the model in a file that another program wrote (`FILES` in `tasks/__init__.py`)."""
        raise NotImplementedError

    def untrained(self, recipe: Any) -> Any:
        """The model as a run begins it."""
        raise UserError(f"{self.kind} do not begin as anything before training")

    def size(self, model: Any) -> str:
        """How large a model is, in words."""
        raise NotImplementedError

    def amounts(self, model: Any) -> dict[str, int]:
        """The same as numbers: `parameters` or `ngrams`."""
        raise NotImplementedError

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        """Commands that show what a new model can do."""
        raise NotImplementedError

    def engines(self, model: Any) -> list[str]:
        """Other engines than torch that could run it."""
        return []

    # -- answering ---------------------------------------------------------------------------------------------------

    def inputs(self, given: Sequence[str]) -> list[Any]:
        """What a command line names, as `predict` takes it: a file may hold several inputs."""
        return list(given)

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """The number of an input and its `Answer`, as they are found."""
        raise NotImplementedError

    def evaluate(
        self,
        model: Any,
        data: Any,
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> Report:
        """How good the model is on a corpus; `how` are those `report_options` that change how figures are counted."""
        raise NotImplementedError

    def baselines(self, recipe: Any, data: Any) -> Mapping[str, Mapping[str, Any]]:
        """Figures by name of what a model has to beat on a corpus, from the training data of its recipe."""
        return {}

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Any:
        """What the model shows while it works on an input."""
        raise NotImplementedError

    @classmethod
    def refusal(cls, verb: str, model: object) -> UserError:
        """Why one of its models cannot do something, and what can be done instead."""
        instead = f"; ask '{cls.instead.format(model=model)}'" if cls.instead else ""
        return UserError(f"{model}: {cls.kind}, which cannot {verb}{instead}")

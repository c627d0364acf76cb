"""A classifier of texts for scikit-learn: pipelines, cross-validation, grid search.

>>> from seqloom.sklearn import SequenceClassifier
>>> classifier = SequenceClassifier().fit(texts, labels)
>>> classifier.predict(["what a film"]), classifier.predict_proba(["what a film"])
>>> SequenceClassifier(run="runs/films").fit(texts, labels)     # keeps runs/films/run, for the command line
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from seqloom.errors import UserError
from seqloom.experiment import train
from seqloom.model import Model
from seqloom.tasks.classify import Classification

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise UserError("seqloom.sklearn needs scikit-learn; pip install 'seqloom[sklearn]'") from None

MODEL = {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 50, "word_ngrams": 2, "buckets": 2**18}}
TEXT = {"tokenizer": "word", "vocabulary_size": None, "lowercase": True}
TRAINING = {"epochs": 10, "learning_rate": 5e-3, "max_length": 10_000, "batch_tokens": 10_000, "validate_every": 100}


class SequenceClassifier(ClassifierMixin, BaseEstimator):
    """Texts -> labels, by any classifier of seqloom.

    Args:
        model: The section `model` of a recipe; None: pooled vectors of words and pairs of words.
        text: The section `text`; None: words in lower case.
        training: The section `training`, what it names in place of the defaults here.
        validation: The share of the examples that decides which weights are kept; they are not trained on.
        run: A folder for the data and the run (RUN/data, RUN/run); None: a temporary one. A run there is thrown away.
        random_state: The seed, and how examples are drawn for validation.

    Attributes:
        classes_: The labels, sorted.
        model_: The `seqloom.model.Model`.
    """

    def __init__(
        self,
        model: Mapping[str, Any] | None = None,
        text: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        *,
        validation: float = 0.1,
        run: str | Path | None = None,
        random_state: int = 1,
    ) -> None:
        self.model, self.text, self.training = model, text, training
        self.validation, self.run, self.random_state = validation, run, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts (a list, an array, a column of a table) and a label for each."""
        texts, labels = texts_of(X), labels_of(y)
        if len(texts) != len(labels):
            raise ValueError(f"{len(texts)} texts and {len(labels)} labels; give as many of one as of the other")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must be between 0 and 1; got {self.validation!r}")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs two classes or more; y has {len(self.classes_)} class")
        self._names = [str(label) for label in self.classes_.tolist()]
        if len(set(self._names)) < len(self._names):
            raise ValueError("two labels of y read the same as text; give labels of one type")
        folder = self._made_folder()
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        examples = list(zip(texts, (self._names[number] for number in numbers), strict=True))
        for name, rows in zip(("train", "valid"), self._divided(numbers), strict=True):
            lines = (json.dumps({"text": examples[row][0], "label": examples[row][1]}) + "\n" for row in rows)
            (data / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        recipe = {
            "task": Classification.name,
            "seed": self.random_state,
            "data": {
                name: {"file": str(data / f"{name}.jsonl"), "source": "text", "target": "label"}
                for name in ("train", "valid")
            },
            "text": dict(TEXT if self.text is None else self.text),
            "model": dict(MODEL if self.model is None else self.model),
            "training": {**TRAINING, "samples": 0, **(self.training or {})},
        }
        try:
            self.model_ = train(recipe, folder / "run", restart=True)
        except UserError as error:
            raise ValueError(str(error)) from None
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest label of each text."""
        found = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[found])

    def predict_proba(self, X: Any) -> np.ndarray:
        """(texts, classes): the probability of each label, in the order of `classes_`."""
        check_is_fitted(self, "model_")
        answers = self.model_.predict(texts_of(X))
        return np.array([[answer.probabilities[name] for name in self._names] for answer in answers])

    # -- where the model is ------------------------------------------------------------------------------------------

    def _made_folder(self) -> Path:
        if self.run is not None:
            return Path(self.run)
        self._temporary = TemporaryDirectory(prefix="seqloom-")
        return Path(self._temporary.name)

    def _divided(self, numbers: np.ndarray) -> tuple[list[int], list[int]]:
        """The rows to train on, with at least one of every class, and the rows for validation, at least one."""
        order = np.random.default_rng(self.random_state).permutation(len(numbers))
        first = set(np.unique(numbers[order], return_index=True)[1].tolist())
        free = [int(row) for place, row in enumerate(order) if place not in first]
        chosen = set(free[: max(1, round(self.validation * len(numbers)))])
        if not chosen:  # a class each: what is trained on must do
            return list(range(len(numbers))), list(range(len(numbers)))
        return [row for row in range(len(numbers)) if row not in chosen], sorted(chosen)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and joblib: settings, and the files of the model folder; no network."""
        state = {name: value for name, value in super().__getstate__().items() if name not in ("model_", "_temporary")}
        if hasattr(self, "model_"):
            state["_files"] = {path.name: path.read_bytes() for path in Path(self.model_.folder).iterdir()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._temporary = TemporaryDirectory(prefix="seqloom-")
            for name, content in files.items():
                (Path(self._temporary.name) / name).write_bytes(content)
            self.model_ = Model.load(self._temporary.name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array, tags.input_tags.string = False, True, True
        tags.no_validation = True  # texts have no number of features
        return tags


def texts_of(X: Any) -> list[str]:
    """A list of texts, of whatever holds them in one row."""
    if isinstance(X, str | bytes):
        raise ValueError("X must be a list of texts; got one text. Put it into a list: [text]")
    values = X.tolist() if hasattr(X, "tolist") else list(X)
    if not values:
        raise ValueError("X holds no text; give at least one")
    wrong = next((value for value in values if not isinstance(value, str)), None)
    if wrong is not None or any(value is None for value in values):
        shown = "a row of several values" if isinstance(wrong, list) else f"{wrong!r}"
        raise ValueError(f"X must hold a text for each example, in one dimension; got {shown}")
    return values


def labels_of(y: Any) -> np.ndarray:
    """(examples,) labels."""
    if y is None:
        raise ValueError("a classifier requires y to be passed, but the target y is None")
    found = np.asarray(y)
    if found.ndim != 1:
        raise ValueError(f"y must have one label for each text; got an array of shape {found.shape}")
    return found

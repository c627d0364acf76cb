"""The classifier for scikit-learn: its checks, other tools around it, files, mistakes."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", "1.6")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import seqloom
from seqloom.sklearn import SequenceClassifier

SMALL = {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 6}, "pooling": "sum"}
QUICK = {"steps": 40, "epochs": None, "learning_rate": 0.05, "validate_every": 40, "batch_tokens": 300}


def small(**values: Any) -> SequenceClassifier:
    return SequenceClassifier(model=SMALL, training=QUICK, **values)


def examples(size: int = 80) -> tuple[list[str], list[str]]:
    draw, texts, labels = random.Random(1), [], []
    for _ in range(size):
        label = draw.choice(["good", "bad"])
        words = [*draw.choices(["the", "a", "of", "it"], k=4), {"good": "great", "bad": "awful"}[label]]
        texts.append(" ".join(draw.sample(words, len(words))))
        labels.append(label)
    return texts, labels


TEXTS, LABELS = examples()


@pytest.mark.filterwarnings("ignore:Can't test estimator")
@parametrize_with_checks([small()])
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    """It gives few to a classifier that takes texts; what the others look for is tested below."""
    check(estimator)


def test_fitting_changes_no_setting_and_no_input() -> None:
    texts, labels, classifier = list(TEXTS), np.array(LABELS), small()
    before = classifier.get_params()
    assert classifier.fit(texts, labels) is classifier
    assert classifier.get_params() == before
    assert texts == TEXTS
    assert labels.tolist() == LABELS
    assert {name for name in vars(classifier) if not name.startswith("_")} - before.keys() == {"classes_", "model_"}


def test_the_order_and_the_number_of_texts_change_no_answer(fitted: SequenceClassifier) -> None:
    whole = fitted.predict_proba(TEXTS)
    assert fitted.predict_proba(TEXTS[::-1]) == pytest.approx(whole[::-1], abs=1e-6)
    assert fitted.predict_proba(TEXTS[:1]) == pytest.approx(whole[:1], abs=1e-6)


@pytest.fixture(scope="module")
def fitted() -> SequenceClassifier:
    return small().fit(TEXTS, LABELS)


def test_it_learns_and_answers_as_scikit_learn_wants(fitted: SequenceClassifier) -> None:
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert fitted.score(*examples(40)) > 0.9
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (len(TEXTS), 2)
    assert probabilities.sum(1) == pytest.approx(np.ones(len(TEXTS)))
    assert fitted.predict(TEXTS).tolist() == [fitted.classes_[row.argmax()] for row in probabilities]
    for given in (np.array(TEXTS), np.array(TEXTS, object), tuple(TEXTS)):
        assert fitted.predict_proba(given) == pytest.approx(probabilities)


def test_labels_may_be_numbers(fitted: SequenceClassifier) -> None:
    numbers = np.array([10 if label == "good" else 9 for label in LABELS])
    other = clone(fitted).fit(np.array(TEXTS), numbers)
    assert other.classes_.tolist() == [9, 10]
    assert other.predict(TEXTS).dtype == numbers.dtype
    assert other.predict(TEXTS).tolist() == [10 if label == "good" else 9 for label in fitted.predict(TEXTS)]


def test_settings_are_got_and_set() -> None:
    classifier = small().set_params(validation=0.2, random_state=3)
    assert classifier.get_params()["validation"] == 0.2
    assert clone(classifier).get_params() == classifier.get_params()


def test_it_goes_into_pipelines_and_cross_validation() -> None:
    shouting = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    scores = cross_val_score(make_pipeline(shouting, small()), TEXTS, LABELS, cv=2)
    assert scores.min() > 0.8


def test_twice_the_same_bits_and_pickled_the_same_answers(fitted: SequenceClassifier) -> None:
    again = small().fit(TEXTS, LABELS)
    assert (again.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()
    loaded = pickle.loads(pickle.dumps(fitted))
    assert (loaded.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()
    assert loaded.get_params() == fitted.get_params()
    assert pickle.loads(pickle.dumps(small())).get_params() == small().get_params()


def test_its_run_folder_is_a_run(tmp_path: Path) -> None:
    fitted = small(run=tmp_path).fit(TEXTS, LABELS)
    model = seqloom.load(tmp_path / "run")
    assert [answer.label for answer in model.predict(TEXTS)] == fitted.predict(TEXTS).tolist()
    fitted.fit(TEXTS, LABELS)  # again, into the same folder


def test_a_class_of_one_example_is_trained_on() -> None:
    fitted = small().fit([*TEXTS, "so so"], [*LABELS, "mixed"])
    assert fitted.classes_.tolist() == ["bad", "good", "mixed"]
    assert small().fit(["great", "awful"], ["good", "bad"]).predict_proba(["great"]).shape == (1, 2)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("one text", ["a"], r"X must be a list of texts; got one text\. Put it into a list"),
        ([], [], "X holds no text"),
        (["a", 3], ["a", "b"], "X must hold a text for each example, in one dimension; got 3"),
        (["a", None], ["a", "b"], "X must hold a text for each example, in one dimension; got None"),
        (np.array([["a"], ["b"]]), ["a", "b"], "in one dimension; got a row of several values"),
        (["a", "b"], ["a"], "2 texts and 1 labels"),
        (["a", "b"], ["a", "a"], "needs two classes or more; y has 1 class"),
        (["a", "b"], [["a"], ["b"]], r"y must have one label for each text; got an array of shape \(2, 1\)"),
        (["a", "b"], None, "requires y to be passed, but the target y is None"),
    ],
)
def test_mistakes_are_named(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small().fit(texts, labels)


def test_settings_that_are_wrong_are_named() -> None:
    with pytest.raises(ValueError, match="lerning_rate is not a setting"):
        SequenceClassifier(training={"lerning_rate": 1}).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"validation must be between 0 and 1; got 1\.5"):
        small(validation=1.5).fit(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        small().predict(TEXTS)

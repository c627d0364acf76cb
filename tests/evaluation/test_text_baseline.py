"""The linear baseline by hand and against scikit-learn; its optimiser on functions whose minimum is known."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from seqloom.evaluation.text_baseline import (
    MOST_ITERATIONS,
    TextBaseline,
    approximate_newton_step,
    feature_index,
    log_softmax,
    minimise,
    penalised_loss,
    sublinear,
    text_features,
)
from seqloom.text.words import split_words
from seqloom.vectors import sparse
from seqloom.vectors.sparse import sparse_matrix

TEXTS = ["good film", "very good", "bad film", "very bad", "it rains"]
LABELS = ["+", "+", "-", "-", "weather"]


def generated_corpus(classes: int, count: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts of frequent words that all classes share and of some that one class prefers."""
    numbers = random.Random(seed)
    shared = [f"w{number}" for number in range(60)]
    texts, labels = [], []
    for _ in range(count):
        label = numbers.randrange(classes)
        words = numbers.choices(shared, weights=[1 / (i + 1) for i in range(60)], k=numbers.randrange(1, 15))
        words += [f"c{label if numbers.random() < 0.7 else numbers.randrange(classes)}x{numbers.randrange(4)}"]
        numbers.shuffle(words)
        texts.append(" ".join(words).capitalize() + " .")
        labels.append(f"class {label}")
    return texts, labels


def test_features_are_lower_cased_words_and_neighbours() -> None:
    assert text_features("It's Not good.") == ["it", "'s", "not", "good", ".", "it 's", "'s not", "not good", "good ."]
    assert text_features("  ") == []


def test_the_features_that_most_documents_have_are_kept() -> None:
    documents = [["b", "a", "a"], ["b", "c"], ["b", "a"], ["d", "d", "d"]]
    assert feature_index(documents, 1, 10) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert feature_index(documents, 2, 10) == {"a": 0, "b": 1}
    assert feature_index(documents, 1, 3) == {"a": 0, "b": 1, "c": 2}  # c and d are in one document each
    assert feature_index(documents, 1, 1) == {"b": 0}
    assert feature_index([], 1, 10) == {}


def test_sublinear_counts_by_hand() -> None:
    counts = sublinear(sparse_matrix([{0: 1.0, 2: 3.0}, {}], 3))
    np.testing.assert_allclose(counts.dense(), [[1, 0, 1 + np.log(3)], [0, 0, 0]], rtol=1e-6)


def test_log_softmax_stands_large_scores() -> None:
    found = log_softmax(np.array([[1000.0, 1000.0], [0.0, -1000.0]]))
    np.testing.assert_allclose(found, [[-np.log(2), -np.log(2)], [0.0, -1000.0]])


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    generator = np.random.default_rng(7)
    dense = generator.normal(size=(11, 5)) * (generator.random((11, 5)) < 0.5)
    vectors = sparse_matrix([{column: value for column, value in enumerate(row) if value} for row in dense], 5)
    function = penalised_loss(vectors, generator.integers(0, 3, 11), penalty=0.1)
    weights = generator.normal(size=(6, 3))
    value, gradient = function(weights)
    for place in np.ndindex(6, 3):
        moved = weights.copy()
        moved[place] += 1e-2
        after = function(moved)[0]
        moved[place] -= 2e-2
        assert gradient[place] == pytest.approx((after - function(moved)[0]) / 2e-2, abs=1e-4)

    scores = dense @ weights[:-1] + weights[-1]
    expected = -np.log(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    same = penalised_loss(vectors, np.zeros(11, np.int64), penalty=0.1)(weights)[0]
    assert same == pytest.approx(expected[:, 0].mean() + 0.05 * (weights[:-1] ** 2).sum(), rel=1e-5)
    assert value != same


def test_the_minimum_of_a_long_narrow_valley() -> None:
    curvature = np.logspace(0, 3, 20)
    goal = np.linspace(-1, 1, 20)
    calls = 0

    def function(place: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        return float(curvature @ (place - goal) ** 2 / 2), curvature * (place - goal)

    np.testing.assert_allclose(minimise(function, np.zeros(20), tolerance=1e-8), goal, atol=1e-7)
    assert calls < MOST_ITERATIONS


def test_a_quadratic_is_solved_as_newton_would_once_every_direction_has_been_seen() -> None:
    curvature = np.array([1.0, 10.0, 100.0])
    history = [(step, curvature * step) for step in np.eye(3)]
    gradient = np.array([3.0, -20.0, 500.0])
    np.testing.assert_allclose(approximate_newton_step(gradient, history), gradient / curvature)
    np.testing.assert_array_equal(approximate_newton_step(gradient, []), gradient)


def test_what_is_learned_by_hand() -> None:
    baseline = TextBaseline.fit(TEXTS, LABELS)
    assert baseline.labels == ("+", "-", "weather")
    assert baseline.predict(TEXTS) == LABELS
    assert baseline.predict(["a GOOD dog", "so bad !", "rains"]) == ["+", "-", "weather"]
    log_probs = baseline.log_probs([*TEXTS, ""])
    assert log_probs.shape == (6, 3)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1.0)
    # "good" and "bad" are mirror images, so a text without a known word leaves the two equal.
    assert log_probs[-1, 0] == pytest.approx(log_probs[-1, 1], abs=1e-3)


def test_texts_without_features_leave_the_shares_of_the_classes() -> None:
    baseline = TextBaseline.fit(["", " ", "\n", ""], ["a", "b", "a", "a"])
    np.testing.assert_allclose(np.exp(baseline.log_probs(["", "anything"])), [[0.75, 0.25]] * 2, atol=1e-3)
    assert TextBaseline.fit(TEXTS, LABELS, min_df=9).index == {}


def test_one_class() -> None:
    baseline = TextBaseline.fit(["a b", "c"], ["only", "only"])
    assert baseline.predict(["a", "d"]) == ["only", "only"]
    np.testing.assert_array_equal(baseline.log_probs(["a"]), [[0.0]])
    assert TextBaseline.fit(["a"], ["x"]).log_probs([]).shape == (0, 1)


def test_progress_rises_to_the_end() -> None:
    shares: list[float] = []
    TextBaseline.fit(TEXTS, LABELS, shares.append)
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0


def test_our_own_mistakes_fail_at_once() -> None:
    with pytest.raises(AssertionError, match="2 hypotheses, 1 references"):
        TextBaseline.fit(["a", "b"], ["x"])
    with pytest.raises(AssertionError, match="empty"):
        TextBaseline.fit([], [])


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("inverse_penalty", [1.0, 5.0])
def test_against_scikit_learn(classes: int, inverse_penalty: float) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    texts, labels = generated_corpus(classes, 300, seed=11)
    unseen, _ = generated_corpus(classes, 200, seed=12)
    options: dict[str, Any] = {"sublinear_tf": True, "ngram_range": (1, 2), "min_df": 1}
    vectorizer = text.TfidfVectorizer(tokenizer=split_words, token_pattern=None, **options)
    vectors = vectorizer.fit_transform(texts)
    model = linear.LogisticRegression(C=inverse_penalty, tol=1e-8, max_iter=2000).fit(vectors, labels)

    baseline = TextBaseline.fit(texts, labels, inverse_penalty=inverse_penalty)
    assert list(baseline.index) == vectorizer.get_feature_names_out().tolist()
    assert baseline.labels == tuple(model.classes_)
    theirs = model.predict_log_proba(vectorizer.transform(unseen))
    np.testing.assert_allclose(baseline.log_probs(unseen), theirs, atol=1e-2)
    same = np.mean(np.array(baseline.predict(unseen)) == model.predict(vectorizer.transform(unseen)))
    assert same >= 0.99


def test_the_same_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = generated_corpus(3, 200, seed=13)
    unseen, _ = generated_corpus(3, 100, seed=14)
    here = TextBaseline.fit(texts, labels).log_probs(unseen)
    monkeypatch.setattr(sparse, "can_compile", lambda: False)
    np.testing.assert_allclose(TextBaseline.fit(texts, labels).log_probs(unseen), here, atol=1e-2)


def test_numpy_is_enough() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'scipy', 'sklearn', 'numba'): sys.modules[name] = None\n"  # importing it is an error
        "from seqloom.evaluation.text_baseline import TextBaseline\n"
        "print(TextBaseline.fit(['good', 'bad'], ['+', '-']).predict(['bad']))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "['-']\n"

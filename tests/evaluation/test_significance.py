"""Differences that are chance are told from those that are not; the p-values are those that sacrebleu finds."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from seqloom.evaluation.classification import classification_report, macro_f1
from seqloom.evaluation.figures import metrics
from seqloom.evaluation.metrics import rescored
from seqloom.evaluation.significance import against_the_best, of_mean, p_value

(ACCURACY, LOSS) = metrics("accuracy", "loss")


def right(count: int, of: int) -> np.ndarray:
    """So many of the first answers right."""
    return (np.arange(of) < count).astype(np.float64)


def test_equal_models_and_very_different_ones() -> None:
    assert p_value(of_mean(right(50, 100)), of_mean(right(50, 100)), 100) == 1.0
    assert p_value(of_mean(right(10, 100)), of_mean(right(90, 100)), 100) == pytest.approx(1 / 1001)


def test_the_p_value_of_a_difference_of_means_is_that_of_the_paired_t_test() -> None:
    ttest_rel = pytest.importorskip("scipy.stats").ttest_rel
    generator = np.random.default_rng(1)
    for shift in (0.0, 0.05, 0.1, 0.2):
        first = generator.normal(size=300)
        second = first + generator.normal(shift, 1.0, size=300)
        found = p_value(of_mean(first), of_mean(second), 300)
        assert found == pytest.approx(ttest_rel(first, second).pvalue, abs=0.05)
        assert found == p_value(of_mean(second), of_mean(first), 300)


def test_models_that_are_equally_good_are_rarely_told_apart() -> None:
    """At a level of 5 % about 5 of 100 pairs of equal models are."""
    generator = np.random.default_rng(5)
    told = 0
    for _ in range(60):
        first, second = (of_mean((generator.random(80) < 0.7).astype(float)) for _ in range(2))
        told += p_value(first, second, 80) < 0.05
    assert told <= 9


def test_bleu_beside_another_test() -> None:
    """Approximate randomisation, by sacrebleu: answers of both models change places at random."""
    generator = np.random.default_rng(2)
    references = [" ".join(generator.choice(list("abcdefgh"), 8)) for _ in range(60)]

    def spoiled(share: float) -> list[str]:
        return [" ".join(w if generator.random() > share else "x" for w in text.split()) for text in references]

    for shares in ((0.1, 0.12), (0.1, 0.15), (0.1, 0.25)):
        first, second = map(spoiled, shares)
        ours = p_value(rescored("bleu", first, references), rescored("bleu", second, references), 60)
        test = PairedTest([("a", first), ("b", second)], {"bleu": BLEU(references=[references])}, None, "ar", 1000)
        theirs = test()[1]["BLEU"][1].p_value
        assert ours == pytest.approx(theirs, abs=0.1)


def test_macro_f1_drawn_anew() -> None:
    gold, predicted = list("aabbcca"), list("abbbcaa")
    again = classification_report("x", gold, predicted).rescore("macro_f1")
    assert again is not None
    times = np.array([2, 0, 1, 3, 0, 0, 1])
    drawn = [i for i, count in enumerate(times) for _ in range(count)]
    assert again(times) == pytest.approx(macro_f1([gold[i] for i in drawn], [predicted[i] for i in drawn]))
    assert classification_report("x", gold, predicted).rescore("loss") is None


def test_each_is_tested_against_the_best() -> None:
    models = {"good": right(90, 100), "nearly": right(89, 100), "poor": right(20, 100)}
    figures = {name: float(values.mean()) for name, values in models.items()}
    again = {name: of_mean(values) for name, values in models.items()}
    found = against_the_best(ACCURACY, figures, again, 100)
    assert set(found) == {"nearly", "poor"}
    assert found["poor"] < 0.05 < found["nearly"]
    assert set(against_the_best(LOSS, figures, again, 100)) == {"good", "nearly"}  # the lowest is the best
    assert against_the_best(ACCURACY, figures, {"poor": again["poor"]}, 100) == {}

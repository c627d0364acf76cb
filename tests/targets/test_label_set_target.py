"""Sets of labels: split, numbered, kept, and their loss by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.corpus.readers import LIST, CorpusSettings, read_pairs
from seqloom.errors import DataError, UserError
from seqloom.evaluation.multi_label import binary_loss, label_figures, set_scores
from seqloom.targets.label import LabelTarget
from seqloom.targets.label_set import MOST, LabelSets, LabelSetTarget, split_labels

names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="|"), min_size=1)
sets = st.lists(st.lists(names, max_size=4, unique=True), min_size=1, max_size=6)


@given(sets.filter(any))
def test_what_is_joined_is_split_again(found: list[list[str]]) -> None:
    """Between separators, spaces around them or not, and as lists of JSON."""
    texts = ["|".join(labels) for labels in found]
    target = LabelSetTarget.learn(texts, "|")
    assert list(target.names) == sorted({label for labels in found for label in labels})
    for labels, text in zip(found, texts, strict=True):
        assert target.split(text) == target.split(" | ".join(labels)) == labels
        assert split_labels("".join(LIST + label for label in labels), "|") == labels
    for row, labels in zip(target.rows(texts), found, strict=True):
        assert [name for name, there in zip(target.names, row, strict=True) if there] == sorted(labels)


def test_lists_are_read_from_jsonl(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"text": "a", "labels": ["x, y", "z"]}\n{"text": "b", "labels": []}\n{"text": "c", "labels": "z,q"}\n'
    )
    pairs = list(read_pairs(CorpusSettings(file=str(file), source="text", target="labels")))
    assert [split_labels(pair.target, ",") for pair in pairs] == [["x, y", "z"], [], ["z", "q"]]
    with pytest.raises(UserError, match="the labels are lists; add labels_separator"):
        LabelTarget.learn(pair.target for pair in pairs)
    file.write_text('{"text": ["a"], "labels": []}\n')
    with pytest.raises(DataError, match="the key 'text' must hold text or a whole number; found a list"):
        list(read_pairs(CorpusSettings(file=str(file), source="text", target="labels")))


def test_labels_nothing_can_be_learned_from() -> None:
    with pytest.raises(UserError, match="no training example has a label"):
        LabelSetTarget.learn(["", " , "], ",")
    with pytest.raises(
        UserError, match=r"10,001 different labels, at most 10,000: are the label column and labels_sep"
    ):
        LabelSetTarget.learn(map(str, range(MOST + 1)), ",")
    with pytest.raises(UserError, match="the label 'blau' is not in the training data"):
        LabelSetTarget.learn(["blue,red"], ",").rows(["red,blau"])


def test_labels_are_kept(tmp_path: Path) -> None:
    for texts in (["a,b"], ["only"]):
        target = LabelSetTarget.learn(texts, ",")
        target.save(tmp_path)
        assert LabelSetTarget.load(tmp_path, ",") == target
    assert target.key() != LabelSetTarget.learn(["only"], ";").key()
    assert target.unknown_rate(["only, other", ""]) == (1, 2)


def test_the_loss_by_hand() -> None:
    """Probabilities 3/4 (there), 1/2 (not), then 1/4 (not), 1/2 (there); smoothing wants 0.9 and 0.1."""
    logits = torch.tensor([[math.log(3.0), 0.0], [-math.log(3.0), 0.0]])
    target = LabelSets(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    plain = 2 * math.log(4 / 3) + 2 * math.log(2)
    smooth = 2 * (0.9 * math.log(4 / 3) + 0.1 * math.log(4)) + 2 * math.log(2)
    for smoothing, expected in ((0.0, plain), (0.2, smooth)):
        loss, reported = LabelSetTarget.loss(logits, target, smoothing)
        assert float(loss) == pytest.approx(expected)
        assert float(reported) == pytest.approx(plain)
    assert binary_loss(target.present.numpy(), logits.sigmoid().numpy()) == pytest.approx(plain / 2)


def test_rows_are_batches() -> None:
    target = LabelSetTarget.learn(["b,a", "c"], ",")
    batch = target.collate({"labels": [np.array(row, np.uint16) for row in target.rows(["c,a", ""])]})
    assert batch.present.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert batch.count == len(batch) == 2
    assert batch.doubled().present.tolist() == [[1, 0, 1], [0, 0, 0]] * 2
    assert batch.part(slice(1, None)).present.tolist() == [[0, 0, 0]]


def test_scores_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(5)
    gold, predicted = (random.integers(0, 2, (40, 5)) * np.array([1, 1, 1, 1, 0]) for _ in range(2))
    scores = set_scores(gold, predicted)
    assert scores["accuracy"] == pytest.approx(100 * metrics.accuracy_score(gold, predicted))
    for average in ("micro", "macro"):
        expected = 100 * metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected)
    figures = label_figures(gold, predicted, list("abcde"))
    precision, recall, f1, support = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
    for number, one in enumerate(figures.values()):
        expected = (100 * precision[number], 100 * recall[number], 100 * f1[number], support[number])
        assert (one.precision, one.recall, one.f1, one.support) == pytest.approx(expected)

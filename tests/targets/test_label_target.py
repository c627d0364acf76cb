"""A label as a target: one of those that training met."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.targets.label import FILE, MOST, Labels, LabelTarget

names = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6), min_size=2, max_size=9, unique=True
)


@given(names, st.data())
def test_labels_are_numbered_in_alphabetical_order(labels: list[str], data: st.DataObject) -> None:
    """Whatever the order in which training met them, and however often."""
    met = data.draw(st.permutations(labels + labels[:1]))
    target = LabelTarget.learn(met)
    assert list(target.names) == sorted(labels)
    assert target.numbers(target.names) == list(range(len(labels)))
    assert [target.names[number] for number in target.numbers(met)] == met


@given(names)
def test_labels_are_kept(tmp_path_factory: pytest.TempPathFactory, labels: list[str]) -> None:
    folder = tmp_path_factory.mktemp("labels")
    target = LabelTarget.learn(labels)
    target.save(folder)
    assert LabelTarget.load(folder) == target
    assert target.key() == LabelTarget.load(folder).key()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a"], "a classifier needs two labels or more; the training data has 'a'"),
        ([], "a classifier needs two labels or more; the training data has none"),
        (["a", "", "b", ""], "2 training examples have an empty label; give each one, or leave them out"),
        (map(str, range(MOST + 1)), "100,001 different labels: is the label column the right one"),
    ],
)
def test_labels_nothing_can_be_learned_from(labels: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LabelTarget.learn(labels)


def test_a_label_that_training_never_met() -> None:
    target = LabelTarget.learn(["positive", "negative"])
    with pytest.raises(
        UserError, match=r"the label 'positiv' is not in the training data \(did you mean 'positive'\?\); it has: neg"
    ):
        target.numbers(["negative", "positiv"])


@pytest.mark.parametrize("content", ["{", "[]", '["a"]', '["a", "a"]', '["a", 1]', '{"a": 1}', '[["a"], ["b"]]'])
def test_a_damaged_file_of_labels(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match=FILE):
        LabelTarget.load(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(UserError, match=FILE):
        LabelTarget.load(tmp_path)


def test_the_loss_by_hand() -> None:
    """Probabilities 3/4, 1/4 and 1/2, 1/2; with smoothing 0.2 the right label counts 0.9 and the other 0.1."""
    logits, target = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]]), Labels(torch.tensor([0, 1]))
    plain = math.log(4 / 3) + math.log(2)
    smooth = 0.9 * math.log(4 / 3) + 0.1 * math.log(4) + math.log(2)
    for smoothing, expected in ((0.0, plain), (0.2, smooth)):
        loss, reported = LabelTarget.loss(logits, target, smoothing)
        assert float(loss) == pytest.approx(expected)
        assert float(reported) == pytest.approx(plain), "what is reported is without smoothing"


def test_weights_and_focus_by_hand() -> None:
    """Probabilities of the right labels 3/4, 1/2: with γ = 2 they count 1/16, 1/4; the second label three times."""
    logits, target = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0]]), Labels(torch.tensor([0, 1]))
    first, second = math.log(4 / 3), math.log(2)
    weights = torch.tensor([1.0, 3.0])
    for how, expected in (
        ({"focal": 2.0}, first / 16 + second / 4),
        ({"weights": weights}, first + 3 * second),
        ({"weights": weights, "focal": 2.0}, first / 16 + 3 * second / 4),
    ):
        loss, reported = LabelTarget.loss(logits, target, **how)
        assert float(loss) == pytest.approx(expected)
        assert float(reported) == pytest.approx(first + second), "what is reported counts every example once"


def test_the_focal_loss_has_a_gradient_where_nothing_is_wrong() -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    for focal in (0.5, 1.0, 2.0):
        LabelTarget.loss(logits, Labels(torch.tensor([0])), focal=focal)[0].backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    class_weight = pytest.importorskip("sklearn.utils.class_weight")
    ids = np.array([0, 0, 0, 2, 1, 0, 2])
    target = LabelTarget.learn(["a", "b", "c"])
    expected = class_weight.compute_class_weight("balanced", classes=np.arange(3), y=ids)
    assert target.balanced(ids).tolist() == pytest.approx(expected.tolist())
    assert float(target.balanced(ids)[ids].mean()) == pytest.approx(1.0)


def test_rows_are_batches() -> None:
    target = LabelTarget.learn(["b", "a", "c"])
    batch = target.collate({"label": target.numbers(["c", "a"])})
    assert batch.ids.tolist() == [2, 0]
    assert batch.count == len(batch) == 2
    assert batch.doubled().ids.tolist() == [2, 0, 2, 0]
    assert batch.part(slice(1, None)).ids.tolist() == [0]
    assert json.loads(target.key()) == ["a", "b", "c"]

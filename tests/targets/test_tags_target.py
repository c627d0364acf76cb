"""Tags as numbers and back, what may stand beside what, and the loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from seqloom.corpus.examples import TagsAndLabel
from seqloom.errors import UserError
from seqloom.nn.crf import Chain, LinearChain, viterbi
from seqloom.targets.tags import TagTarget, tag_loss

DATA = [["O", "B-x", "I-x"], ["B-y"], ["B-x", "I-x", "I-x"]]


def test_tags_as_numbers_and_back() -> None:
    plain, marked = TagTarget.learn(DATA), TagTarget.learn(DATA, "bioes")
    assert plain.names == ("B-x", "B-y", "I-x", "O")
    assert marked.names == ("B-x", "E-x", "I-x", "O", "S-y")
    assert marked.shown_names == plain.names
    for target in (plain, marked):
        assert [target.shown(ids) for ids in target.encode(DATA)] == DATA
        assert target.has_spans
    assert [marked.names[number] for number in marked.encode([DATA[2]])[0]] == ["B-x", "I-x", "E-x"]
    assert marked.shown_of.sum(1).tolist() == [1] * 5, "every tag is shown as one"
    batch = marked.collate({"tags": marked.encode(DATA)})
    assert batch.ids.shape == (3, 4), "the end of the source has no tag, but a place"
    assert batch.mask.sum().item() == batch.count == 7
    assert batch.part(slice(1, 2)).ids.shape == (1, 2)
    assert len(batch.doubled()) == 6


def test_what_training_never_met() -> None:
    with pytest.raises(UserError, match=r"the tag 'B-z' is not in the training data .*it has: B-x, B-y, I-x, O"):
        TagTarget.learn(DATA).encode([["O", "B-z"]])
    assert TagTarget.learn(DATA, "bioes").unknown_rate([["B-y", "I-y"], ["B-x"]]) == (3, 3), "B-y E-y and S-x"
    with pytest.raises(UserError, match="a tagger needs two tags or more; the training data has 'O'"):
        TagTarget.learn([["O"]])
    with pytest.raises(UserError, match=r"tags\.scheme: bioes is for tags of spans .* the data has DET, NOUN"):
        TagTarget.learn([["DET", "NOUN"]], "bioes")


def test_answers_make_spans_whatever_the_scores() -> None:
    torch.manual_seed(1)
    for target in (TagTarget.learn(DATA), TagTarget.learn(DATA, "bioes")):
        emissions = 20 * torch.randn(40, 6, len(target))
        tags = viterbi(emissions, torch.ones(40, 6, dtype=torch.bool), target.penalties).tags
        for row in tags.tolist():
            shown = target.shown(row)
            assert all(
                tag[0] != "I" or before[2:] == tag[2:] for before, tag in zip(["O", *shown], shown, strict=False)
            )
            assert target.encode([shown]) == [row], "sound in its own scheme"
    free = TagTarget.learn([["DET", "NOUN"]])
    assert all(not part.any() for part in free.penalties)


def test_the_loss_by_hand() -> None:
    target = TagTarget.learn([["a", "b"]])
    batch = target.collate({"tags": [[1], [0, 1]]})
    emissions = torch.tensor([[[1.0, 2.0], [9.0, 9.0], [9.0, 9.0]], [[0.0, 1.0], [3.0, 1.0], [9.0, 9.0]]])
    chain = Chain(torch.tensor([[0.5, 0.0], [0.0, 0.0]]), torch.zeros(2), torch.zeros(2))
    first = -(emissions[0, 0].log_softmax(0)[1])
    scores = {(0, 0): 3.5, (0, 1): 1.0, (1, 0): 4.0, (1, 1): 2.0}
    second = torch.tensor(list(scores.values())).logsumexp(0) - scores[0, 1]
    loss, reported = tag_loss(emissions, batch, chain)
    assert float(loss) == pytest.approx(float(first + second))
    assert float(reported) == float(loss)
    softmax, plain = tag_loss(emissions, batch, None, smoothing=0.1)
    by_hand = -sum(emissions[row, time].log_softmax(0)[tag] for row, time, tag in ((0, 0, 1), (1, 0, 0), (1, 1, 1)))
    assert float(plain) == pytest.approx(float(by_hand))
    assert float(softmax) != pytest.approx(float(by_hand))


def test_illegal_moves_are_forbidden_at_decoding_only() -> None:
    """A text of the data that has one is learned like others."""
    target = TagTarget.learn([*DATA, *DATA, ["O", "I-x"]])
    assert target.given == "bio"
    batch = target.collate({"tags": target.encode([["O", "I-x"]])})
    loss, _ = tag_loss(torch.zeros(1, 3, len(target)), batch, LinearChain(len(target)).chain())
    assert float(loss.detach()) < 10


def test_saved_and_loaded(tmp_path: Path) -> None:
    target = TagTarget.learn(DATA, "bioes")
    target.save(tmp_path)
    assert TagTarget.load(tmp_path) == target
    good = json.loads((tmp_path / "tags.json").read_text())
    for wrong in (
        [],
        {**good, "names": ["a"]},
        {**good, "scheme": "x"},
        {**good, "given": 3},
        {"names": []},
    ):
        (tmp_path / "tags.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=r"tags\.json: not a list of different tags"):
            TagTarget.load(tmp_path)


def test_a_label_of_the_whole_text(tmp_path: Path) -> None:
    raw = [TagsAndLabel(tuple(tags), label) for tags, label in zip(DATA, ["p", "q", "p"], strict=True)]
    target = TagTarget.learn(raw)
    assert target.label is not None
    assert target.label.names == ("p", "q")
    rows = {name: field.encode(raw) for name, field in target.fields().items()}
    batch = target.collate(rows)
    assert batch.labels is not None
    assert batch.labels.tolist() == [0, 1, 0]
    assert batch.part(slice(1, 2)).labels.tolist() == [1]  # type: ignore[union-attr]
    assert batch.doubled().labels.tolist() == [0, 1, 0] * 2  # type: ignore[union-attr]
    target.save(tmp_path)
    assert TagTarget.load(tmp_path) == target
    emissions, logits = torch.zeros(3, 4, len(target)), torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    alone, _ = tag_loss(emissions, batch, None)
    both, _ = tag_loss(emissions, batch, None, 0.0, logits)
    by_hand = -sum(float(row.log_softmax(0)[label]) for row, label in zip(logits, [0, 1, 0], strict=True))
    assert float(both) == pytest.approx(float(alone) + by_hand)
    with pytest.raises(UserError, match="has a label for every text"):
        target.fields()["label"].encode([("O",)])

"""The views `tags` and `transitions`: text by hand, files, and who has them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.answers import AnsweredSpan, TagsAnswer
from seqloom.errors import UserError
from seqloom.inspection.tags import TagsView, TransitionsView, draw_tags, grouped
from seqloom.nn.crf import Chain

WORDS = ["Ann", "saw", "New", "York"]
TAGS = ["B-person", "O", "B-place", "I-place"]
SHARES = [{tag: 0.75} for tag in TAGS]
SPANS = [AnsweredSpan("person", 0, 1, "Ann"), AnsweredSpan("place", 2, 4, "New York")]
ANSWER = TagsAnswer("Ann saw New York", WORDS, TAGS, SHARES, SPANS, -0.5, lambda: None)


def model(chain: Chain | None, answer: TagsAnswer = ANSWER, spans: bool = True) -> Any:
    class Fake(SimpleNamespace):
        def __call__(self, text: str) -> TagsAnswer:
            return answer

    target = SimpleNamespace(names=("B-place", "I-place", "O"), has_spans=spans)
    task = SimpleNamespace(kind="a tagger", target=target)
    return Fake(name="mine", network=SimpleNamespace(chain=chain), task=task)


def test_text_by_hand() -> None:
    found = grouped(ANSWER, spans=True)
    assert found.groups == [("person", 0, 1), ("", 1, 2), ("place", 2, 4)]
    assert draw_tags(found, colour=False, width=40).split("\n") == [
        "[Ann]person saw [New York]place",
        "",
        "Ann       person  75%",
        "New York  place   75% 75%",
    ]
    assert draw_tags(found, colour=False, width=20).split("\n")[:2] == ["[Ann]person saw", "[New York]place"]
    coloured = draw_tags(found, colour=True, width=40)
    assert re.sub("\x1b[^m]*m", "", coloured) == draw_tags(found, colour=False, width=40)
    hues = re.findall("\x1b\\[38;([^m]*)m", coloured)
    assert hues[0] == hues[2] != hues[1] == hues[3]


def test_tags_that_are_no_spans_stand_for_themselves() -> None:
    found = grouped(ANSWER, spans=False)
    assert [label for label, _, _ in found.groups] == TAGS
    assert "[New]B-place [York]I-place" in draw_tags(found, colour=False)
    nothing = TagsAnswer("a", ["a"], ["O"], [{"O": 1.0}], [], 0.0, lambda: None)
    assert "no word has a tag other than O" in draw_tags(grouped(nothing, spans=True), colour=False)


@pytest.mark.parametrize("spans", [True, False])
def test_the_picture_holds_words_and_labels(tmp_path: Path, spans: bool) -> None:
    long = TagsAnswer("", WORDS * 9, TAGS * 9, SHARES * 9, [
        AnsweredSpan(span.label, span.start + 4 * i, span.end + 4 * i, span.text) for i in range(9) for span in SPANS
    ], -1.0, lambda: None)  # fmt: skip
    path = Path(draw_tags(grouped(long, spans=spans), tmp_path / "a.svg", title="mine"))
    texts = [
        "".join(node.itertext()).strip()
        for node in ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    ]
    assert texts.count("York") == 9
    assert texts.count("place" if spans else "I-place") == 9
    assert "mine" in texts


def test_the_view_of_tags() -> None:
    view = TagsView()
    assert view.missing(model(None)) is None
    assert "for taggers" in str(view.missing(SimpleNamespace(network=object(), task=SimpleNamespace(kind="x"))))
    picture = view.show(model(None), ["any"], view.Options(), lambda share, figures: None)
    assert picture.to_dict()["tags"] == TAGS
    empty = TagsAnswer("", [], [], [], [], 0.0, lambda: None)
    with pytest.raises(UserError, match="nothing to look at"):
        view.show(model(None, empty), [""], view.Options(), lambda share, figures: None)


def test_the_view_of_transitions(tmp_path: Path) -> None:
    chain = Chain(torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, -8.0]]), torch.ones(3), torch.zeros(3))
    view = TransitionsView()
    assert "each word for itself" in str(view.missing(model(None)))
    assert view.missing(model(chain)) is None
    picture = view.show(model(chain), [], view.Options(), lambda share, figures: None)
    found = picture.to_dict()
    assert found["rows"] == ["begin", "O", "B-place", "I-place"]
    assert found["columns"] == ["O", "B-place", "I-place", "end"]
    assert found["values"] == [[1, 1, 1, None], [-8, 6, 7, 0], [2, 0, 1, 0], [5, 3, 4, 0]]
    assert "B-place" in picture.to_text(100, colour=False)
    assert picture.save(tmp_path / "a.png").stat().st_size > 1000
    few = view.show(model(chain), [], view.Options(most=2), lambda share, figures: None)
    assert few.to_dict()["rows"] == ["begin", "O", "I-place"]
    assert few.notes == ["2 of 3 tags; --most shows others"]
    assert np.isnan(np.array(few.to_dict()["values"], float)).sum() == 1

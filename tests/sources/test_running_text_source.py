"""Running text as a source: lines as symbols, all in a row, each line with its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import UserError
from seqloom.sources.running_text import RunningText
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID

CONTENT = "the green witch\n\na cat  sees\n"


@pytest.fixture
def corpus(tmp_path: Path) -> PlainTextSettings:
    (tmp_path / "text.txt").write_text(CONTENT)
    return PlainTextSettings(text=str(tmp_path / "text.txt"))


def test_lines_in_a_row_each_with_its_end(corpus: PlainTextSettings) -> None:
    text = RunningText.learn(corpus, TextSettings(tokenizer="spaces", vocabulary_size=None))
    lines = text.encode(corpus)
    expected = [[*text.tokenizer.encode(line), EOS_ID] for line in CONTENT.splitlines()]
    assert [lines[index].tolist() for index in range(len(lines))] == expected == text.encode_lines(CONTENT.splitlines())
    assert lines.tokens[0 : len(lines.tokens)].tolist() == [symbol for ids in expected for symbol in ids]
    assert text.first == EOS_ID, "before a text there is the end of another"


def test_verbatim_text_comes_back_as_it_was(corpus: PlainTextSettings) -> None:
    text = RunningText.learn(corpus, TextSettings(tokenizer="verbatim", vocabulary_size=None))
    lines = text.encode(corpus)
    assert text.tokenizer.decode(lines.tokens[0 : len(lines.tokens)].tolist()) == CONTENT
    assert text.tokenizer.decode([text.first]) == "\n"
    assert EOS_ID not in lines.tokens[0 : len(lines.tokens)]


def test_it_is_kept(corpus: PlainTextSettings, tmp_path: Path) -> None:
    text = RunningText.learn(corpus, TextSettings(tokenizer="character", vocabulary_size=None, lowercase=True))
    text.save(tmp_path)
    again = RunningText.load(tmp_path)
    assert again.encode_lines(["The CAT"]) == text.encode_lines(["the cat"])


def test_a_text_with_nothing_in_it(corpus: PlainTextSettings, tmp_path: Path) -> None:
    text = RunningText.learn(corpus, TextSettings(tokenizer="spaces", vocabulary_size=None))
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match=r"empty\.txt: there is no text in it|empty\.txt: the file is empty"):
        text.encode_something(PlainTextSettings(text=str(tmp_path / "empty.txt")))

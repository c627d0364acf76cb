"""What `data check` says of running text, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.corpus.examination import examine_texts, examine_words
from seqloom.corpus.plain import PlainTextSettings, describe
from seqloom.errors import DataError
from seqloom.vectors.settings import WordsSettings


def text(path: Path, *lines: str) -> PlainTextSettings:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return PlainTextSettings(text=str(path))


def test_texts_of_a_language_model(tmp_path: Path) -> None:
    corpora = {
        "train": text(tmp_path / "train.txt", "a  b c d e", "a b", "", "f g h i j", "f g h i j"),
        "valid": text(tmp_path / "valid.txt", "a b", "f g h i j", "j i h g f"),
    }
    heard: list[str] = []
    shown, values = examine_texts(
        corpora, describe, lambda corpus: (len(describe(corpus)), 100), heard.append, vocabulary=12
    )
    train, valid = values["texts"]
    assert train == {
        "text": "train: train.txt",
        "lines": 5,
        "lines_without_words": 1,
        "words": 5 + 2 + 0 + 5 + 5,
        "characters": (9 + 3 + 0 + 9 + 9) + 5,  # runs of spaces count as one; so does the end of a line
        "symbols": 100,
        "unknown_symbols": len("train.txt"),
    }
    assert values["vocabulary"] == 12
    assert (valid["lines"], valid["words"], valid["unknown_symbols"]) == (3, 12, len("valid.txt"))
    assert valid["lines_also_in_train"] == 1  # "a b" has too few words to tell
    first, second = shown.split("\n\n")
    assert first.startswith("train: train.txt\nlines  ")
    assert "lines also in train  1" in second
    assert len(heard) == 2


def test_words_that_get_a_vector(tmp_path: Path) -> None:
    corpus = text(tmp_path / "words.txt", "A a a, b b", "c", "", "b")
    shown, values = examine_words(corpus, WordsSettings(min_count=3))
    assert values == {
        "text": "words.txt",
        "lines": 4,
        "lines_without_words": 1,
        "words": 7,
        "different_words": 3,
        "words_with_a_vector": 2,  # a and b, three times each
        "share_of_text_kept": round(6 / 7, 4),
    }
    assert "different words      3" in shown
    assert examine_words(corpus, WordsSettings(min_count=3, max_words=1))[1]["words_with_a_vector"] == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    corpus = PlainTextSettings(text=str(tmp_path / "nowhere.txt"))
    with pytest.raises(DataError, match="there is no such file"):
        examine_words(corpus, WordsSettings())
    with pytest.raises(DataError, match="there is no such file"):
        examine_texts({"train": corpus}, describe, lambda corpus: (0, 0))

"""Text comes back from its numbers, in blocks of any size from any start, and is written once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches import tokens
from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.errors import UserError
from seqloom.text.counts import WordCounts

COUNTS = WordCounts(("a", "b", "c"), np.array([3, 2, 1]))


@settings(max_examples=120, deadline=None)
@given(
    lines=st.lists(st.lists(st.sampled_from(["a", "b", "c", "unknown"]), max_size=7), max_size=12),
    size=st.integers(1, 15),
    at_a_time=st.integers(1, 9),
    data=st.data(),
)
def test_blocks_make_the_text(lines: list[list[str]], size: int, at_a_time: int, data: st.DataObject) -> None:
    known = [[COUNTS.index[word] for word in line if word in COUNTS.index] for line in lines]
    expected = [number for line in known if line for number in [*line, -1]]
    seen: list[int] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "WORDS_AT_A_TIME", at_a_time)
        text = (" ".join(line) for line in lines)
        if not expected:
            with pytest.raises(UserError, match="among the counted ones"):
                write_tokens(text, COUNTS, str.split, "key", folder=Path(folder))
            assert list(Path(folder).iterdir()) == []
            return
        corpus = write_tokens(text, COUNTS, str.split, "key", seen.append, folder=Path(folder))
        sentences = expected.count(-1)
        assert (corpus.num_tokens, corpus.num_sentences) == (len(expected), sentences)
        assert corpus.num_words == len(expected) - sentences == seen[-1]
        start = data.draw(st.integers(0, len(expected)))
        blocks = list(corpus.blocks(size, start))
        for offset, block in blocks:
            assert block.dtype == np.int32
            assert block.flags.c_contiguous
            assert offset == start
            assert block[-1] == -1
            assert len(block) <= size or (block[:-1] >= 0).all()
            assert block.tolist() == expected[offset : offset + len(block)]
            start += len(block)
        assert start == len(expected)


def test_written_once_for_the_same_words(tmp_path: Path) -> None:
    def unread() -> Iterator[str]:
        raise AssertionError("the text was read again")
        yield

    first = write_tokens(["a b"], COUNTS, str.split, "key", folder=tmp_path)
    again = write_tokens(unread(), COUNTS, str.split, "key", folder=tmp_path)
    assert first.folder == again.folder
    other = WordCounts(("b", "a"), np.array([2, 1]))
    turned = write_tokens(["a b"], other, str.split, "key", folder=tmp_path)
    assert next(turned.blocks(9))[1].tolist() == [1, 0, -1]
    assert next(again.blocks(9))[1].tolist() == [0, 1, -1]
    assert write_tokens(["c"], COUNTS, str.split, "more", folder=tmp_path).num_words == 1


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_tokens(broken(), COUNTS, str.split, "key", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_corpus_is_refused(tmp_path: Path) -> None:
    corpus = write_tokens(["a b"], COUNTS, str.split, "key", folder=tmp_path)
    with pytest.raises(ValueError, match="no block"):
        next(corpus.blocks(0))
    with pytest.raises(ValueError, match="no block"):
        next(corpus.blocks(1, start=4))
    corpus.path.write_bytes(b"\0" * 12)
    with pytest.raises(UserError, match="no end"):
        next(TokenCorpus(corpus.folder).blocks(2))
    corpus.path.write_bytes(b"\0" * 8)
    with pytest.raises(UserError, match="8 bytes, expected 12"):
        TokenCorpus(corpus.folder)
    (corpus.folder / "tokens.json").write_text("[]")
    with pytest.raises(UserError, match="no tokens written by seqloom"):
        TokenCorpus(corpus.folder)


def test_the_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path))
    assert write_tokens(["a"], COUNTS, str.split, "key").folder.parent == tmp_path / "tokens"
